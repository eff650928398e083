//! Decides which job makes the resident size of its process grow, if that can be decided.
//!
//! The resident size does not show whose memory grows. A job that leaks fills free memory that another job left, and
//! the process grows when the other job runs next. So it does not matter during which run the process grew. What counts
//! is how its growth depends on the *number* of runs of each job:
//!
//! - Only the second half of a job's runs counts, because caches are filled by then. These runs are divided into
//!   windows. A regression over all processes explains the growth of a window by the numbers of runs in it.
//! - Growth may become visible late: only when a certain job runs. The regression is repeated for each job that may
//!   show it, and a conclusion holds only if all regressions agree.
//! - Work outside of jobs may leak. So a job must grow the process significantly more than the other jobs do.
//!
//! Jobs that always take turns cannot be distinguished this way, and their growth is [`Growth::Shared`].

use rustc_hash::FxHashMap;

use super::regression::Regression;
use super::trend::{Kendall, MIN_CONFIDENCE, MIN_RUNS};

/// Windows per process: enough for a regression, and as long as possible, since growth may become visible late.
const MIN_WINDOWS: usize = 32;
const MAX_WINDOWS: usize = 256;
const WINDOWS_PER_JOB: usize = 8;
const MIN_WINDOW_RUNS: usize = 3;
/// The maximum number of jobs with separate coefficients; the less frequent jobs share one.
const MAX_JOBS: usize = 48;
/// The hypothesis that growth becomes visible only when a certain job runs is tested for at most this many jobs.
const MAX_SHOWING: usize = 12;
/// If a process runs only one job and the job leaks, at least this share of the growth happens during its runs.
const INSIDE_SHARE: f64 = 0.9;
/// A job with at most this share of the growth is not the one that leaks.
const CLEAN_SHARE: f64 = 0.25;

/// One run of a job: its group, and the resident size of its process.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub process: u32,
    pub group: u32,
    /// Resident size when the run began, and when it ended.
    pub before: u64,
    pub after: Option<u64>,
}

/// The conclusion about a group of runs from resident sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Growth {
    /// The processes stop growing.
    Stops,
    /// The processes run only this group, and grow during its runs.
    Alone,
    /// The processes grow by this many bytes for each run.
    Counted { slope: f64, confidence: f64 },
    /// The processes grow, but this group is not the reason; `slope` is the estimated growth for each of its runs.
    Elsewhere { slope: f64 },
    /// The processes grow, and other jobs or other work may be the reason.
    Shared,
}

/// Returns the growth of each group that has enough runs in one process. `steps` are sorted by process and time.
pub fn growth(steps: &[Step], min_bytes: f64) -> FxHashMap<u32, Growth> {
    let processes: Vec<ProcessRuns> = steps
        .chunk_by(|one, other| one.process == other.process)
        .filter_map(ProcessRuns::of)
        .collect();
    let mut groups: FxHashMap<u32, Sums> = FxHashMap::default();
    for process in &processes {
        process.add_to(&mut groups);
    }
    let mut frequent: Vec<u32> = groups.keys().copied().collect();
    frequent.sort_unstable_by_key(|group| (std::cmp::Reverse(groups[group].n_runs), *group));
    let columns: FxHashMap<u32, usize> = frequent
        .iter()
        .enumerate()
        .map(|(at, &group)| (group, at.min(MAX_JOBS)))
        .collect();
    let n_columns = frequent.len().min(MAX_JOBS + 1);
    let is_growing = |sums: &Sums| {
        sums.grown / f64::from(sums.n_processes) >= min_bytes
            && sums.kendall.confidence() >= MIN_CONFIDENCE
    };
    let needs_counts = groups
        .values()
        .any(|sums| is_growing(sums) && !sums.is_alone);
    let showing = frequent.iter().take(MAX_SHOWING).map(|&group| Some(group));
    let hypotheses: Vec<Regression> = [None]
        .into_iter()
        .chain(showing)
        .filter(|_| needs_counts)
        .map(|shows| regression(&processes, &columns, n_columns, shows))
        .collect();
    let judged = groups.iter().filter(|(_, sums)| sums.has_enough_runs);
    judged
        .map(|(&group, sums)| {
            let column = columns[&group];
            let growth = if !is_growing(sums) {
                Growth::Stops
            } else if sums.is_alone {
                match sums.grown_inside >= INSIDE_SHARE * sums.grown {
                    true => Growth::Alone,
                    false => Growth::Shared,
                }
            } else if column == MAX_JOBS {
                Growth::Shared
            } else {
                counted(&hypotheses, column, sums, min_bytes)
            };
            (group, growth)
        })
        .collect()
}

/// Draws a conclusion from the regressions, all of which must agree.
fn counted(hypotheses: &[Regression], column: usize, sums: &Sums, min_bytes: f64) -> Growth {
    let estimates: Option<Vec<_>> = hypotheses.iter().map(|one| one.estimate(column)).collect();
    let Some(estimates) = estimates.filter(|estimates| !estimates.is_empty()) else {
        return Growth::Shared;
    };
    // With many jobs, one of them may seem to leak by chance, so the confidence must be higher (Bonferroni).
    let n_jobs = hypotheses[0].n_columns() as f64;
    let least = 1.0 - (1.0 - MIN_CONFIDENCE) / n_jobs;
    let n_runs = sums.n_late as f64;
    let confidence = estimates
        .iter()
        .map(|one| one.confidence.min(one.confidence_above_others))
        .fold(1.0, f64::min);
    let smallest = estimates
        .iter()
        .map(|one| one.slope)
        .fold(f64::MAX, f64::min);
    let highest = estimates.iter().map(|one| one.upper).fold(0.0, f64::max);
    if confidence >= least && smallest * n_runs >= min_bytes {
        return Growth::Counted {
            slope: estimates[0].slope,
            confidence,
        };
    }
    if highest * n_runs <= min_bytes.max(CLEAN_SHARE * sums.grown) {
        return Growth::Elsewhere {
            slope: estimates[0].slope,
        };
    }
    Growth::Shared
}

fn regression(
    processes: &[ProcessRuns],
    columns: &FxHashMap<u32, usize>,
    n_columns: usize,
    shows: Option<u32>,
) -> Regression {
    let mut regression = Regression::new(n_columns);
    for process in processes {
        process.add_rows(&mut regression, columns, shows);
    }
    regression.solve();
    regression
}

/// The runs of one process.
struct ProcessRuns<'a> {
    steps: &'a [Step],
    /// The resident size at each start of a run, and at the end of the last.
    levels: Vec<u64>,
    /// The first step of each window without early runs, and the step after its last.
    windows: Vec<(usize, usize)>,
    /// The number of runs of each group.
    counts: FxHashMap<u32, usize>,
    is_early: Vec<bool>,
}

/// The sums of a group over all processes that ran it.
#[derive(Default)]
struct Sums {
    n_runs: usize,
    /// The number of runs in windows, which have no early runs.
    n_late: usize,
    n_processes: u32,
    has_enough_runs: bool,
    is_alone: bool,
    /// Growth of its processes in windows, and the part of it during the runs of the group.
    grown: f64,
    grown_inside: f64,
    kendall: Kendall,
}

impl<'a> ProcessRuns<'a> {
    fn of(steps: &'a [Step]) -> Option<ProcessRuns<'a>> {
        if steps.len() < MIN_RUNS {
            return None;
        }
        let mut counts: FxHashMap<u32, usize> = FxHashMap::default();
        for step in steps {
            *counts.entry(step.group).or_default() += 1;
        }
        let mut seen: FxHashMap<u32, usize> = FxHashMap::default();
        let is_early: Vec<bool> = steps
            .iter()
            .map(|step| {
                let rank = seen.entry(step.group).or_default();
                *rank += 1;
                let total = counts[&step.group];
                total >= MIN_RUNS && *rank <= total / 2
            })
            .collect();
        let mut levels: Vec<u64> = steps.iter().map(|step| step.before).collect();
        let last = steps[steps.len() - 1];
        levels.push(last.after.unwrap_or(last.before));
        let n_windows = (WINDOWS_PER_JOB * counts.len()).clamp(MIN_WINDOWS, MAX_WINDOWS);
        let n_windows = n_windows.min(steps.len() / MIN_WINDOW_RUNS);
        let start = |window: usize| window * steps.len() / n_windows;
        let windows = (0..n_windows)
            .map(|window| (start(window), start(window + 1)))
            .filter(|&(first, end)| !is_early[first..end].contains(&true))
            .collect();
        Some(ProcessRuns {
            steps,
            levels,
            windows,
            counts,
            is_early,
        })
    }

    fn add_to(&self, groups: &mut FxHashMap<u32, Sums>) {
        let mut kendall = Kendall::default();
        let neighbours = self.windows.chunk_by(|one, other| one.1 == other.0);
        for windows in neighbours {
            let ends = windows.iter().map(|window| window.1);
            let points = std::iter::once(windows[0].0).chain(ends);
            let points = points.map(|at| (at as f64, self.levels[at] as f64));
            kendall.add(&points.collect::<Vec<_>>());
        }
        let grown =
            |&(first, end): &(usize, usize)| self.levels[end] as f64 - self.levels[first] as f64;
        let grown: f64 = self.windows.iter().map(grown).sum();
        for (&group, &n_runs) in &self.counts {
            let sums = groups.entry(group).or_insert_with(|| Sums {
                is_alone: true,
                ..Sums::default()
            });
            sums.n_runs += n_runs;
            sums.has_enough_runs |= n_runs >= MIN_RUNS;
            sums.is_alone &= self.counts.len() == 1;
            sums.n_processes += 1;
            sums.grown += grown;
            sums.kendall.merge(&kendall);
        }
        for &(first, end) in &self.windows {
            for step in &self.steps[first..end] {
                if let Some(sums) = groups.get_mut(&step.group) {
                    let after = step.after.unwrap_or(step.before);
                    sums.n_late += 1;
                    sums.grown_inside += after as f64 - step.before as f64;
                }
            }
        }
    }

    /// Adds one row per window. Under the hypothesis that growth becomes visible only when a run of the group `shows`
    /// ends, the row counts the runs since the last such end before the window, up to the last one in it.
    fn add_rows(
        &self,
        regression: &mut Regression,
        columns: &FxHashMap<u32, usize>,
        shows: Option<u32>,
    ) {
        let visible = |end: usize| match shows.filter(|group| self.counts.contains_key(group)) {
            Some(group) => {
                let mut ends = self.steps[..end].iter();
                ends.rposition(|step| step.group == group)
                    .map_or(0, |at| at + 1)
            }
            None => end,
        };
        for &(first, end) in &self.windows {
            let mut row: Vec<(usize, f64)> = Vec::new();
            let shown = visible(first)..visible(end);
            for (step, _) in self.steps[shown.clone()]
                .iter()
                .zip(&self.is_early[shown])
                .filter(|(_, is_early)| !**is_early)
            {
                let column = columns[&step.group];
                match row.iter_mut().find(|(known, _)| *known == column) {
                    Some((_, count)) => *count += 1.0,
                    None => row.push((column, 1.0)),
                }
            }
            let grown = self.levels[end] as f64 - self.levels[first] as f64;
            regression.add(&row, grown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job of the model: the bytes that a run keeps, and the bytes that it needs temporarily.
    #[derive(Clone, Copy)]
    struct Job {
        kept: u64,
        temporary: u64,
    }

    const fn job(kept: u64, temporary: u64) -> Job {
        Job { kept, temporary }
    }

    /// A process that never returns memory to the system: it grows only when a run needs more than is free.
    struct Process {
        live: u64,
        resident: u64,
        steps: Vec<Step>,
        number: u32,
    }

    impl Process {
        fn new(number: u32) -> Process {
            Process {
                live: 10_000_000,
                resident: 12_000_000,
                steps: Vec::new(),
                number,
            }
        }

        fn run(&mut self, group: u32, job: Job) {
            let before = self.resident;
            self.live += job.kept;
            self.resident = self.resident.max(self.live + job.temporary);
            self.steps.push(Step {
                process: self.number,
                group,
                before,
                after: Some(self.resident),
            });
        }
    }

    /// Returns a pseudo-random number below `n`; the sequence is the same every time.
    fn choice(state: &mut u64, n: usize) -> usize {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 40) as usize % n
    }

    /// Runs jobs in an order; each group is the index of its job.
    fn of(jobs: &[Job], order: impl Iterator<Item = usize>) -> Vec<Growth> {
        let mut process = Process::new(1);
        for at in order {
            process.run(at as u32, jobs[at]);
        }
        let found = growth(&process.steps, 131_072.0);
        (0..jobs.len() as u32).map(|group| found[&group]).collect()
    }

    /// Runs jobs in a random order.
    fn in_random_order(jobs: &[Job], n_runs: usize, seed: u64) -> Vec<Growth> {
        let mut state = seed;
        let order: Vec<usize> = (0..n_runs)
            .map(|_| choice(&mut state, jobs.len()))
            .collect();
        of(jobs, order.into_iter())
    }

    fn leaks(growth: Growth) -> bool {
        matches!(growth, Growth::Counted { .. } | Growth::Alone)
    }

    const LEAK: Job = job(50_000, 0);
    const TEMPORARY: Job = job(0, 2_000_000);

    #[test]
    fn jobs_that_take_turns_cannot_be_distinguished() {
        for order in [[0, 1], [1, 0]] {
            let turns = order.into_iter().cycle().take(600);
            assert_eq!(of(&[LEAK, TEMPORARY], turns), [Growth::Shared; 2]);
        }
        let three = [job(0, 100_000), LEAK, TEMPORARY];
        let found = of(&three, (0..3).cycle().take(900));
        assert_eq!(found, [Growth::Shared; 3]);
        // In another order they can.
        assert!(leaks(in_random_order(&[LEAK, TEMPORARY], 3_000, 7)[0]));
        assert!(leaks(in_random_order(&three, 3_000, 7)[1]));
    }

    #[test]
    fn in_long_batches_the_clean_job_is_not_blamed_and_the_leaking_job_is_not_cleared() {
        // The leak fills the memory that the other job freed, and the process grows when the other job runs again.
        let batches = (0..2_000).map(|run| run / 25 % 2);
        let found = of(&[LEAK, TEMPORARY], batches);
        assert!(!leaks(found[1]), "{found:?}");
        assert!(!matches!(
            found[0],
            Growth::Elsewhere { .. } | Growth::Stops
        ));
        // The same runs in random order.
        let found = in_random_order(&[LEAK, TEMPORARY], 2_000, 7);
        assert!(leaks(found[0]), "{found:?}");
    }

    #[test]
    fn leak_is_found_in_random_order_although_the_process_grows_in_another_job() {
        let found = in_random_order(&[LEAK, TEMPORARY], 3_000, 7);
        let Growth::Counted { slope, confidence } = found[0] else {
            panic!("{found:?}");
        };
        assert!((45_000.0..55_000.0).contains(&slope), "{found:?}");
        assert!(confidence > 0.99, "{found:?}");
        assert!(matches!(found[1], Growth::Elsewhere { .. }), "{found:?}");
    }

    #[test]
    fn clean_jobs_are_rarely_blamed_for_the_leak() {
        let jobs: Vec<Job> = (0..6).map(|at| job(0, at * 400_000)).collect();
        let (mut n_found, mut n_wrong) = (0, 0);
        for seed in 0..50 {
            let mut jobs = jobs.clone();
            jobs[2].kept = 40_000;
            let found = in_random_order(&jobs, 4_800, seed);
            n_found += usize::from(leaks(found[2]));
            n_wrong += (0..6).filter(|&at| at != 2 && leaks(found[at])).count();
            assert_ne!(found[2], Growth::Stops);
        }
        assert!(n_found >= 40, "{n_found}");
        // A confidence of 95% allows one error in twenty processes.
        assert!(n_wrong <= 2, "{n_wrong}");
    }

    #[test]
    fn leak_outside_of_jobs_is_blamed_on_none_of_them() {
        let jobs = [job(0, 1_000), job(0, 300_000), job(0, 20_000)];
        let mut n_found = 0;
        for seed in 0..20 {
            let mut state = seed;
            let mut process = Process::new(1);
            for _ in 0..1_000 {
                let at = choice(&mut state, 3);
                process.run(at as u32, jobs[at]);
                process.live += 20_000;
                process.resident = process.resident.max(process.live);
            }
            let found = growth(&process.steps, 131_072.0);
            assert!(!found.values().any(|&one| leaks(one)), "{seed}: {found:?}");
            // The same leak in a job.
            let leaking = [jobs[0], job(60_000, 300_000), jobs[2]];
            n_found += usize::from(leaks(in_random_order(&leaking, 1_000, seed)[1]));
        }
        assert!(n_found >= 15, "{n_found}");
        let mut process = Process::new(1);
        for _ in 0..100 {
            process.run(0, job(0, 0));
            process.live += 100_000;
            process.resident = process.resident.max(process.live);
        }
        assert_eq!(growth(&process.steps, 131_072.0)[&0], Growth::Shared);
        let inside = of(&[job(100_000, 0)], std::iter::repeat_n(0, 100));
        assert_eq!(inside, [Growth::Alone]);
    }

    #[test]
    fn only_job_of_its_processes_is_judged_alone() {
        let found = of(&[LEAK], std::iter::repeat_n(0, 400));
        assert_eq!(found, [Growth::Alone]);
        assert_eq!(
            of(&[TEMPORARY], std::iter::repeat_n(0, 400)),
            [Growth::Stops]
        );
    }

    #[test]
    fn other_workers_show_which_job_leaks() {
        // Two jobs take turns in one worker; another worker runs only the clean one.
        let mut mixed = Process::new(1);
        let mut other = Process::new(2);
        for _ in 0..300 {
            mixed.run(0, LEAK);
            mixed.run(1, TEMPORARY);
            other.run(1, TEMPORARY);
        }
        let steps: Vec<Step> = [mixed.steps, other.steps].concat();
        let found = growth(&steps, 131_072.0);
        assert!(leaks(found[&0]), "{found:?}");
        assert!(!leaks(found[&1]), "{found:?}");
    }
}
