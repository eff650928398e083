//! One row per job name (or per job and worker, host or label): counts, durations, peaks, growth, and a memory limit.
//!
//! Quantiles are observed values: the p-quantile is the smallest one for which at least a share p of the values is
//! lower or equal.

use heaptide_capture::Outcome;
use rustc_hash::FxHashMap;

use super::levels::{Levels, in_time, of_process};
use super::run::{JobRun, JobRuns, OUTCOMES};
use super::trend::{Trend, Verdict, trend};
use crate::interner::Interner;

/// The runs that share a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// All runs of a name.
    #[default]
    Name,
    /// The runs of a name in one process.
    Worker,
    /// The runs of a name on one host.
    Host,
    /// The runs of a name with the same value of [`JobRuns::label`].
    Label,
}

/// The source of the bytes that runs left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The job's own blocks, all of them.
    Blocks,
    /// The job's own blocks, estimated from a sample.
    SampledBlocks,
    /// The growth of the process while the job ran. It includes other work of the process.
    Resident,
}

impl Basis {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Blocks => "blocks",
            Basis::SampledBlocks => "sampled blocks",
            Basis::Resident => "resident size",
        }
    }

    /// Growth below this many bytes, over half of the runs of a process, is no leak. The resident size also changes in
    /// steps, because the allocator takes memory in large pieces and keeps it.
    pub(super) fn min_growth(self) -> f64 {
        match self {
            Basis::Blocks => 64.0,
            Basis::SampledBlocks | Basis::Resident => 131_072.0,
        }
    }
}

/// The meaning of a peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeakKind {
    /// The high-water mark of the job's own blocks.
    Job,
    /// The highest known resident size of the process while the job ran.
    Resident,
}

impl PeakKind {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            PeakKind::Job => "job",
            PeakKind::Resident => "resident size",
        }
    }
}

/// Quantiles of the runs that have a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles<T> {
    pub n_runs: u64,
    pub p50: T,
    pub p95: T,
    pub max: T,
}

impl<T: Copy> Quantiles<T> {
    fn of(sorted: &[T]) -> Option<Quantiles<T>> {
        let rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        let max = *sorted.last()?;
        Some(Quantiles {
            n_runs: sorted.len() as u64,
            p50: rank(50),
            p95: rank(95),
            max,
        })
    }
}

/// Number of runs by value, in bins of equal width. The last bin includes its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    pub from: f64,
    pub to: f64,
    pub counts: Vec<u64>,
}

const MAX_BINS: usize = 24;

impl Distribution {
    fn of<T: Copy>(sorted: &[T], as_number: impl Fn(T) -> f64) -> Option<Distribution> {
        let (from, to) = (as_number(*sorted.first()?), as_number(*sorted.last()?));
        let n_bins = if from < to { MAX_BINS } else { 1 };
        let mut counts = vec![0; n_bins];
        for &value in sorted {
            let share = if from < to {
                (as_number(value) - from) / (to - from)
            } else {
                0.0
            };
            counts[((share * n_bins as f64) as usize).min(n_bins - 1)] += 1;
        }
        Some(Distribution { from, to, counts })
    }
}

/// The bytes that a run leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetainedPerRun {
    pub basis: Basis,
    /// Runs with a measurement.
    pub n_runs: u64,
    /// The slope of the trend, or, if there are too few runs for one, the median. `None` if `is_shared`.
    pub bytes: Option<i64>,
    pub trend: Option<Trend>,
    /// The processes grow, and their resident size cannot show whether this job or other work is the reason.
    pub is_shared: bool,
}

/// The runs of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    pub name: String,
    /// With [`Grouping::Worker`]: index of [`JobRuns::processes`].
    pub process: Option<u32>,
    /// With [`Grouping::Host`].
    pub host: Option<String>,
    /// With [`Grouping::Label`]; `None` if the runs do not have the label.
    pub label: Option<String>,
    pub n_runs: u64,
    /// In the order of [`OUTCOMES`]; their sum is `n_runs`.
    pub outcomes: [u64; OUTCOMES.len()],
    pub n_processes: u64,
    pub n_hosts: u64,
    pub seconds: Option<Quantiles<f64>>,
    pub peak_kind: PeakKind,
    pub peak: Option<Quantiles<u64>>,
    /// The errors (95%) of the three peaks in bytes; 0 for exact ones. `None` if the peaks are resident sizes.
    pub peak_error: Option<Quantiles<u64>>,
    pub peak_distribution: Option<Distribution>,
    pub seconds_distribution: Option<Distribution>,
    pub retained: Option<RetainedPerRun>,
    /// The site with the most bytes that all runs left or, if they left none, that they had at their peaks.
    pub site: Option<LargestSite>,
    /// The most frequent error.
    pub error: Option<String>,
    /// The highest resident size plus a fifth, as a multiple of 16 MiB. `None` if no resident size is known, or if only
    /// those at the start of runs are known.
    pub suggested_limit_bytes: Option<u64>,
    /// Start of the first and of the last run, in seconds since 1970.
    pub first_started: f64,
    pub last_started: f64,
}

impl JobRow {
    pub fn n(&self, outcome: Outcome) -> u64 {
        let at = OUTCOMES.iter().position(|&one| one == outcome);
        at.map_or(0, |at| self.outcomes[at])
    }

    pub fn verdict(&self) -> Verdict {
        let trend = self.retained.and_then(|retained| retained.trend);
        trend.map_or(Verdict::Unknown, |trend| trend.verdict)
    }
}

/// An allocation site of the runs of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargestSite {
    /// `function at file:line`.
    pub location: String,
    /// The sum over the measured runs.
    pub bytes: u64,
    /// The runs whose own blocks were measured; others have no sites.
    pub n_runs: u64,
    /// Whether `bytes` are those at the peaks of the runs, not those that the runs left.
    pub is_of_peak: bool,
}

/// The rows, largest peak first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobTable {
    pub rows: Vec<JobRow>,
    /// For each run its row.
    pub row_of_run: Vec<u32>,
    pub n_runs: u64,
    pub n_processes: u64,
    pub n_hosts: u64,
}

const LIMIT_STEP: u64 = 16 << 20;

pub fn job_table(runs: &JobRuns, grouping: Grouping) -> JobTable {
    let mut keys = Interner::default();
    // Runs that are left out have groups, but no rows.
    let all: Vec<&JobRun> = runs.runs.iter().chain(&runs.left_out).collect();
    let mut group_of: Vec<u32> = all
        .iter()
        .map(|run| {
            let host = runs.process(run).identity.host.as_str();
            keys.number(match grouping {
                Grouping::Name => (run.name, 0, ""),
                Grouping::Worker => (run.name, run.process, ""),
                Grouping::Host => (run.name, 0, host),
                Grouping::Label => (run.name, run.label.get().map_or(0, |label| label + 1), ""),
            })
        })
        .collect();
    let levels = Levels::new(runs, &all, &group_of, grouping);
    group_of.truncate(runs.runs.len());
    let mut order: Vec<u32> = (0..runs.runs.len() as u32).collect();
    let (n_processes, n_hosts) = workers_of(runs, &order);
    order.sort_unstable_by(|&a, &b| {
        let by_group = group_of[a as usize].cmp(&group_of[b as usize]);
        by_group.then_with(|| in_time(&all, a, b))
    });
    let members = order.chunk_by(|&a, &b| group_of[a as usize] == group_of[b as usize]);
    let mut rows: Vec<(JobRow, u32)> = members
        .map(|members| {
            let number = group_of[members[0] as usize];
            let (name, process, host) = keys.values[number as usize];
            let label = runs.runs[members[0] as usize].label.get();
            let label = label.filter(|_| grouping == Grouping::Label);
            let group = Group {
                runs,
                members,
                levels: &levels,
                number,
            };
            let row = JobRow {
                process: (grouping == Grouping::Worker).then_some(process),
                host: (grouping == Grouping::Host).then(|| host.to_owned()),
                label: label.map(|label| runs.label_values.values[label as usize].clone()),
                ..group.row(&runs.names.values[name as usize])
            };
            (row, number)
        })
        .collect();
    rows.sort_by(|(a, _), (b, _)| {
        let peak = |row: &JobRow| row.peak.map_or(0, |peak| peak.max);
        let rest = |row: &JobRow| {
            let group = (row.host.clone(), row.label.clone(), row.process);
            (row.name.clone(), group)
        };
        peak(b).cmp(&peak(a)).then_with(|| rest(a).cmp(&rest(b)))
    });
    let mut row_of_group = vec![0; rows.len()];
    for (number, &(_, group)) in rows.iter().enumerate() {
        row_of_group[group as usize] = number as u32;
    }
    let row_of_run = group_of.into_iter();
    JobTable {
        row_of_run: row_of_run
            .map(|group| row_of_group[group as usize])
            .collect(),
        rows: rows.into_iter().map(|(row, _)| row).collect(),
        n_runs: runs.runs.len() as u64,
        n_processes,
        n_hosts,
    }
}

/// The runs of a row.
struct Group<'a> {
    runs: &'a JobRuns,
    /// Indices of [`JobRuns::runs`], in the order of time.
    members: &'a [u32],
    levels: &'a Levels,
    number: u32,
}

impl Group<'_> {
    fn iter(&self) -> impl Iterator<Item = &JobRun> {
        self.members.iter().map(|&at| &self.runs.runs[at as usize])
    }

    fn row(&self, name: &str) -> JobRow {
        let mut seconds: Vec<f64> = self.iter().filter_map(|run| run.seconds.get()).collect();
        seconds.sort_unstable_by(f64::total_cmp);
        let (peak_kind, peaks, peak_errors) = self.peaks();
        let (n_processes, n_hosts) = workers_of(self.runs, self.members);
        // If all runs were killed, only their sizes at the start may be known, and a limit of these would be too low.
        let is_measured = self
            .iter()
            .any(|run| run.knows_resident_high() || run.numbers.peak_bytes.is_known());
        let high = self.iter().filter_map(JobRun::resident_high).max();
        let high = high.filter(|_| is_measured);
        JobRow {
            name: name.to_owned(),
            process: None,
            host: None,
            label: None,
            n_runs: self.members.len() as u64,
            outcomes: OUTCOMES
                .map(|outcome| self.iter().filter(|run| run.outcome == outcome).count() as u64),
            n_processes,
            n_hosts,
            peak_kind,
            peak: Quantiles::of(&peaks),
            peak_error: Quantiles::of(&peak_errors),
            peak_distribution: Distribution::of(&peaks, |peak| peak as f64),
            seconds_distribution: Distribution::of(&seconds, |seconds| seconds),
            seconds: Quantiles::of(&seconds),
            retained: self.retained(),
            site: self.largest_site(),
            error: self.most_frequent_error(),
            suggested_limit_bytes: high.map(limit_for),
            first_started: self.iter().next().map_or(0.0, |run| run.started),
            last_started: self.iter().last().map_or(0.0, |run| run.started),
        }
    }

    /// Returns the peaks, the smallest first, and their errors if they are the job's own. All are of one kind: the job's own
    /// if any run has it.
    fn peaks(&self) -> (PeakKind, Vec<u64>, Vec<u64>) {
        let own = self.iter().filter_map(|run| {
            let numbers = &run.numbers;
            Some((numbers.peak_bytes.get()?, numbers.peak_error as u64))
        });
        let mut own: Vec<(u64, u64)> = own.collect();
        if own.is_empty() {
            // The peak of a killed run is unknown, even if its resident size at the start is known.
            let measured = self.iter().filter(|run| run.knows_resident_high());
            let mut resident: Vec<u64> = measured.filter_map(JobRun::resident_high).collect();
            resident.sort_unstable();
            return (PeakKind::Resident, resident, Vec::new());
        }
        own.sort_unstable();
        let (peaks, errors) = own.into_iter().unzip();
        (PeakKind::Job, peaks, errors)
    }

    /// All numbers have the same basis: the job's own blocks, unless they were measured in less than half as many runs
    /// as the resident size.
    fn retained(&self) -> Option<RetainedPerRun> {
        let blocks = |run: &JobRun| run.numbers.retained_bytes.get();
        let n_blocks = self.iter().filter(|run| blocks(run).is_some()).count();
        let grown = self.iter().filter(|run| run.resident_growth().is_some());
        let grown = grown.count();
        let is_sampled = self
            .iter()
            .any(|run| blocks(run).is_some() && run.numbers.is_sampled);
        let basis = match (n_blocks > 0 && n_blocks * 2 >= grown, is_sampled) {
            (true, false) => Basis::Blocks,
            (true, true) => Basis::SampledBlocks,
            (false, _) => Basis::Resident,
        };
        let mut all: Vec<i64> = Vec::new();
        let mut by_process: FxHashMap<u32, Vec<i64>> = FxHashMap::default();
        let mut levels: FxHashMap<u32, u64> = FxHashMap::default();
        for (run, &at) in self.iter().zip(self.members) {
            let left = match basis {
                Basis::Resident => self.levels.left[at as usize].get(),
                _ => blocks(run).map(|bytes| match run.numbers.name_bytes.get() {
                    // Memory of earlier runs that was freed meanwhile, such as their results, reduces the bytes of this run.
                    Some(level) => {
                        let before = levels.insert(run.process, level);
                        level as i64 - before.unwrap_or(0) as i64
                    }
                    None => bytes,
                }),
            };
            if let Some(bytes) = left {
                all.push(bytes);
                by_process.entry(run.process).or_default().push(bytes);
            }
        }
        all.sort_unstable();
        let median = Quantiles::of(&all)?.p50;
        // In a fixed order, so that sums are the same every time.
        let mut processes: Vec<(u32, Vec<i64>)> = by_process.into_iter().collect();
        processes.sort_unstable_by_key(|(process, _)| *process);
        let processes: Vec<Vec<i64>> = processes.into_iter().map(|(_, left)| left).collect();
        let trend = trend(&processes, basis.min_growth());
        let growth = self.levels.growth.get(&self.number);
        let (trend, is_shared) = match (basis, trend, growth) {
            (Basis::Resident, Some(trend), Some(growth)) => of_process(trend, *growth),
            _ => (trend, false),
        };
        let bytes = trend.map_or(median, |trend| trend.slope.round() as i64);
        Some(RetainedPerRun {
            basis,
            n_runs: all.len() as u64,
            bytes: (!is_shared).then_some(bytes),
            trend,
            is_shared,
        })
    }

    fn largest_site(&self) -> Option<LargestSite> {
        self.largest_site_of(false)
            .or_else(|| self.largest_site_of(true))
    }

    /// Bytes that runs left and bytes at their peaks are never added. A sampled run may have sites of its peak only,
    /// although it left bytes.
    fn largest_site_of(&self, is_of_peak: bool) -> Option<LargestSite> {
        let runs = self
            .iter()
            .filter(|run| run.numbers.are_sites_of_peak == is_of_peak);
        let mut bytes: FxHashMap<u32, u64> = FxHashMap::default();
        for &(site, n) in runs.flat_map(|run| self.runs.sites_of(run)) {
            let sum = bytes.entry(site).or_default();
            *sum = sum.saturating_add(n);
        }
        let (site, bytes) = largest(bytes, &self.runs.sites.values)?;
        let is_measured = |run: &&JobRun| {
            let numbers = &run.numbers;
            numbers.peak_bytes.is_known() || numbers.retained_bytes.is_known()
        };
        Some(LargestSite {
            location: self.runs.sites.values[site as usize].clone(),
            bytes,
            n_runs: self.iter().filter(is_measured).count() as u64,
            is_of_peak,
        })
    }

    fn most_frequent_error(&self) -> Option<String> {
        let mut counts: FxHashMap<u32, u64> = FxHashMap::default();
        for error in self.iter().filter_map(|run| run.error.get()) {
            *counts.entry(error).or_default() += 1;
        }
        let (error, _) = largest(counts, &self.runs.errors.values)?;
        Some(self.runs.errors.values[error as usize].clone())
    }
}

/// Returns the largest number and the index of its text; among equal numbers, the one whose text is first in
/// alphabetical order.
fn largest(numbers: FxHashMap<u32, u64>, texts: &[String]) -> Option<(u32, u64)> {
    let text = |at: u32| texts[at as usize].as_str();
    let numbers = numbers.into_iter();
    numbers.max_by(|a, b| a.1.cmp(&b.1).then_with(|| text(b.0).cmp(text(a.0))))
}

/// The memory limit to suggest for this resident size.
fn limit_for(resident: u64) -> u64 {
    (resident + resident / 5).next_multiple_of(LIMIT_STEP)
}

/// Returns the number of processes and hosts of some runs.
fn workers_of(runs: &JobRuns, members: &[u32]) -> (u64, u64) {
    let mut is_member = vec![false; runs.processes.len()];
    for &at in members {
        is_member[runs.runs[at as usize].process as usize] = true;
    }
    let processes = runs.processes.iter().zip(is_member);
    let processes = processes.filter(|(_, is_member)| *is_member);
    let mut hosts: Vec<&str> = processes
        .map(|(process, _)| process.identity.host.as_str())
        .collect();
    let n_processes = hosts.len() as u64;
    hosts.sort_unstable();
    hosts.dedup();
    (n_processes, hosts.len() as u64)
}
