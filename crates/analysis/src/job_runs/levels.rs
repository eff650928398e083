//! The resident sizes of processes before and after their runs: the bytes that each run left, and the jobs that make
//! their process grow.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use super::maybe::Maybe;
use super::resident::{Growth, Step, growth};
use super::run::{JobRun, JobRuns};
use super::table::{Basis, Grouping};
use super::trend::{Trend, Verdict};

/// The growth of runs and of groups of runs, derived from the resident sizes of all processes.
pub struct Levels {
    /// The bytes by which each run changed the resident size of its process.
    pub left: Vec<Maybe<i64>>,
    /// The growth of processes, by group.
    pub growth: FxHashMap<u32, Growth>,
}

impl Levels {
    /// `all` are the runs that change the resident size, and `group_of` their groups.
    pub fn new(runs: &JobRuns, all: &[&JobRun], group_of: &[u32], grouping: Grouping) -> Levels {
        let mut order: Vec<u32> = (0..all.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| {
            let process = |at: u32| all[at as usize].process;
            process(a).cmp(&process(b)).then_with(|| in_time(all, a, b))
        });
        let mut left = left(all, &order);
        left.truncate(runs.runs.len());
        let mut parts: FxHashMap<&str, Vec<Step>> = FxHashMap::default();
        let mut growths = FxHashMap::default();
        let min_bytes = Basis::Resident.min_growth();
        for life in order.chunk_by(|&a, &b| all[a as usize].process == all[b as usize].process) {
            let steps = life.iter().filter_map(|&at| {
                let run = all[at as usize];
                Some(Step {
                    process: run.process,
                    group: group_of[at as usize],
                    before: run.numbers.resident_before.get()?,
                    after: run.numbers.resident_after.get(),
                })
            });
            match grouping {
                // A group of one worker, or of one host, is judged only by the processes of that worker or host.
                Grouping::Worker => growths.extend(growth(&steps.collect::<Vec<_>>(), min_bytes)),
                Grouping::Host => {
                    let host = runs.process(all[life[0] as usize]).identity.host.as_str();
                    parts.entry(host).or_default().extend(steps);
                }
                Grouping::Name | Grouping::Label => parts.entry("").or_default().extend(steps),
            }
        }
        for steps in parts.values() {
            growths.extend(growth(steps, min_bytes));
        }
        Levels {
            left,
            growth: growths,
        }
    }
}

/// Orders two runs by their start.
pub fn in_time(all: &[&JobRun], a: u32, b: u32) -> Ordering {
    let started = |at: u32| all[at as usize].started;
    started(a).total_cmp(&started(b)).then(a.cmp(&b))
}

/// Returns the trend of runs that have only resident sizes, and whether their growth is shared.
pub fn of_process(trend: Trend, growth: Growth) -> (Option<Trend>, bool) {
    let clean = |slope: f64| Trend {
        verdict: match trend.verdict {
            Verdict::WarmsUp => Verdict::WarmsUp,
            _ => Verdict::Clean,
        },
        slope,
        confidence: trend.confidence,
    };
    let trend = match growth {
        Growth::Alone => trend,
        // The processes do not grow, so other work frees the memory that these runs seem to leave.
        Growth::Stops => clean(if trend.verdict == Verdict::Leaks {
            0.0
        } else {
            trend.slope
        }),
        Growth::Elsewhere { slope } => clean(slope),
        Growth::Counted { slope, confidence } => Trend {
            verdict: Verdict::Leaks,
            slope,
            confidence,
        },
        Growth::Shared => return (None, true),
    };
    (Some(trend), false)
}

/// Returns, for each run, by how much it changed the resident size of its process. `order` is by process and time.
///
/// Memory freed between the end of a run and the next run, such as its result, is subtracted from that run. Growth in
/// between counts only if both runs have the same name; otherwise other work may have caused it.
fn left(all: &[&JobRun], order: &[u32]) -> Vec<Maybe<i64>> {
    let growth = all.iter().map(|run| run.resident_growth().into());
    let mut left: Vec<Maybe<i64>> = growth.collect();
    for pair in order.windows(2) {
        let (at, next) = (pair[0] as usize, pair[1] as usize);
        let (run, next) = (all[at], all[next]);
        let has_ended = run
            .seconds
            .get()
            .is_some_and(|seconds| run.started + seconds <= next.started);
        if run.process != next.process || !has_ended {
            continue;
        }
        let after = run.numbers.resident_after.get();
        let before = next.numbers.resident_before.get();
        if let (Some(bytes), Some(after), Some(before)) = (left[at].get(), after, before) {
            let change = before as i64 - after as i64;
            let change = if run.name == next.name {
                change
            } else {
                change.min(0)
            };
            left[at] = (bytes + change).into();
        }
    }
    left
}
