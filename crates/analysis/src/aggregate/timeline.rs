//! Memory over time of all processes on one time line, in bins that a page can draw.

use crate::model::flame::{Curves, Timeline};
use crate::model::{ProcessStacks, Reading};

/// More than a chart has columns.
const MAX_BINS: u64 = 1_000;
/// Of all processes together; many of them have fewer each, because nobody looks at each so closely.
const MAX_BINS_OF_ALL: u64 = 100_000;
const MIN_BINS: u64 = 50;
/// A capture's own clock is hardly finer.
const MIN_BIN_NS: u64 = 100_000;

pub(super) fn timeline(processes: &[ProcessStacks], start_unix_ns: u64) -> Timeline {
    let start = |process: &ProcessStacks| process.start_unix_ns.saturating_sub(start_unix_ns);
    let ends = processes
        .iter()
        .map(|process| start(process).saturating_add(process.duration_ns));
    let duration_ns = ends.max().unwrap_or(0);
    let max_bins = MAX_BINS_OF_ALL / processes.len().max(1) as u64;
    let max_bins = max_bins.clamp(MIN_BINS, MAX_BINS);
    let bin_ns = duration_ns.div_ceil(max_bins).max(MIN_BIN_NS);
    let n_bins = (duration_ns / bin_ns) as usize + 1;
    let curves = |process: &ProcessStacks| {
        let line = Line {
            bin_ns,
            n_bins,
            start_ns: start(process),
            end_ns: start(process).saturating_add(process.duration_ns),
        };
        Curves {
            heap: line.highest(&from_nothing(&process.heap)),
            resident: line.highest(&process.resident),
        }
    };
    let of_processes: Vec<Curves> = processes.iter().map(curves).collect();
    let sum = |curve: fn(&Curves) -> &Vec<Option<u64>>| {
        let at = |bin: usize| {
            let known = of_processes.iter().filter_map(|curves| curve(curves)[bin]);
            known.reduce(u64::saturating_add)
        };
        (0..n_bins).map(at).collect()
    };
    Timeline {
        bin_ns,
        together: Curves {
            heap: sum(|curves| &curves.heap),
            resident: sum(|curves| &curves.resident),
        },
        processes: of_processes,
    }
}

/// A heap is empty until something is allocated.
fn from_nothing(readings: &[Reading]) -> Vec<Reading> {
    let empty = Reading::default();
    let is_late = readings.first().is_none_or(|first| first.elapsed_ns > 0);
    let empty = is_late.then_some(empty).into_iter();
    empty.chain(readings.iter().copied()).collect()
}

/// A process on a time line that is divided into bins.
pub(crate) struct Line {
    pub bin_ns: u64,
    pub n_bins: usize,
    pub start_ns: u64,
    pub end_ns: u64,
}

impl Line {
    /// The highest reading in force in each bin, from the first reading to the end of the process.
    pub fn highest(&self, readings: &[Reading]) -> Vec<Option<u64>> {
        let mut bins = vec![None; self.n_bins];
        let bin_of = |ns: u64| ((ns / self.bin_ns) as usize).min(self.n_bins - 1);
        let starts = readings.iter().map(|reading| reading.elapsed_ns);
        let next_starts = starts.skip(1).chain([u64::MAX]);
        for (reading, next) in readings.iter().zip(next_starts) {
            let from = self.start_ns.saturating_add(reading.elapsed_ns);
            let to = self.start_ns.saturating_add(next).min(self.end_ns);
            for bin in &mut bins[bin_of(from)..=bin_of(to.max(from))] {
                *bin = Some(reading.bytes.max(bin.unwrap_or(0)));
            }
        }
        bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(start_unix_ns: u64, duration_ns: u64, heap: &[(u64, u64)]) -> ProcessStacks {
        let readings = heap.iter().map(|&(elapsed_ns, bytes)| Reading {
            elapsed_ns: elapsed_ns * MIN_BIN_NS,
            bytes,
        });
        ProcessStacks {
            start_unix_ns: start_unix_ns * MIN_BIN_NS,
            duration_ns: duration_ns * MIN_BIN_NS,
            heap: readings.collect(),
            ..ProcessStacks::default()
        }
    }

    #[test]
    fn reading_holds_until_the_next_one_and_a_process_is_nothing_before_its_start() {
        let first = process(10, 5, &[(1, 7), (2, 3)]);
        let second = process(12, 1, &[(0, 100)]);
        let line = timeline(&[first, second], 10 * MIN_BIN_NS);
        let heap = |number: usize| line.processes[number].heap.clone();
        assert_eq!(heap(0), [0, 7, 7, 3, 3, 3].map(Some));
        assert_eq!(heap(1), [None, None, Some(100), Some(100), None, None]);
        assert_eq!(line.together.heap, [0, 7, 107, 103, 3, 3].map(Some));
        assert_eq!(line.together.resident, [None; 6]);
    }

    #[test]
    fn long_run_has_a_bounded_number_of_bins_and_keeps_its_highest_value() {
        let long = process(0, 1_000_000, &[(0, 1), (777_777, 99), (777_778, 1)]);
        let line = timeline(&[long], 0);
        assert!(line.together.heap.len() <= MAX_BINS as usize + 1);
        assert_eq!(line.together.heap.iter().flatten().max(), Some(&99));
    }
}
