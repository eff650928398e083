//! Memory of all processes over time, with a common time axis, in bins for a chart.

use std::cmp::Reverse;

use crate::model::flame::{Curves, Timeline};
use crate::model::{PeakMoment, ProcessStacks, Reading};

/// More than the columns of any chart.
const MAX_BINS: u64 = 1_000;
/// The maximum number of bins of all processes together, unless each has only [`MIN_BINS`]. With many processes, each has
/// fewer bins, because it is drawn smaller.
const MAX_BINS_OF_ALL: u64 = 100_000;
const MIN_BINS: u64 = 50;
/// Finer than the resolution of a capture's clock.
const MIN_BIN_NS: u64 = 100_000;

pub(super) fn timeline(
    processes: &[ProcessStacks],
    start_unix_ns: u64,
    moment: PeakMoment,
) -> Timeline {
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
        let bins = BinnedProcess {
            bin_ns,
            n_bins,
            start_ns: start(process),
            end_ns: start(process).saturating_add(process.duration_ns),
        };
        Curves {
            heap: bins.highest(&starting_at_zero(&process.heap)),
            resident: bins.highest(&process.resident),
        }
    };
    let of_processes: Vec<Curves> = processes.iter().map(curves).collect();
    let mut stacked = match processes {
        [_] => Vec::new(),
        _ => at_the_highest_sums(processes, start_unix_ns, bin_ns, n_bins),
    };
    if let PeakMoment::Common(ns) = moment {
        let bin = ((ns / bin_ns) as usize).min(n_bins - 1);
        lower_to_peak(&mut stacked, processes, bin);
    }
    let heaps: Vec<&Vec<_>> = match &of_processes[..] {
        [one] => vec![&one.heap],
        _ => stacked.iter().collect(),
    };
    let residents: Vec<&Vec<_>> = of_processes.iter().map(|curves| &curves.resident).collect();
    Timeline {
        bin_ns,
        all_processes: Curves {
            heap: sums(&heaps, n_bins),
            resident: sums(&residents, n_bins),
        },
        processes: of_processes,
        stacked,
    }
}

fn sums(curves: &[&Vec<Option<u64>>], n_bins: usize) -> Vec<Option<u64>> {
    let at = |bin: usize| {
        let known = curves.iter().filter_map(|curve| curve[bin]);
        known.reduce(u64::saturating_add)
    };
    (0..n_bins).map(at).collect()
}

/// For each bin, the heap of each process at the time when the sum of all heaps was highest.
fn at_the_highest_sums(
    processes: &[ProcessStacks],
    start_unix_ns: u64,
    bin_ns: u64,
    n_bins: usize,
) -> Vec<Vec<Option<u64>>> {
    let mut changes: Vec<(u64, usize, Option<u64>)> = Vec::new();
    for (number, process) in processes.iter().enumerate() {
        let start_ns = process.start_unix_ns.saturating_sub(start_unix_ns);
        let readings = starting_at_zero(&process.heap);
        let last_ns = readings.last().map_or(0, |last| last.elapsed_ns);
        let at = |elapsed_ns| start_ns.saturating_add(elapsed_ns);
        let heights = readings.iter();
        changes.extend(heights.map(|it| (at(it.elapsed_ns), number, Some(it.bytes))));
        changes.push((at(process.duration_ns.max(last_ns)), number, None));
    }
    // At the same time, larger heights come first and ends of processes last. So the sum contains a process that ends when
    // another one starts.
    changes.sort_by_key(|&(time, number, height)| (time, Reverse(height), number));
    let bin_of = |ns: u64| ((ns / bin_ns) as usize).min(n_bins - 1);
    let apply = |heights: &mut [Option<u64>], (_, number, height): (u64, usize, Option<u64>)| {
        std::mem::replace(&mut heights[number], height)
    };

    // First find only how many changes precede the highest sum of each bin: storing all heights would take much memory.
    let mut heights = vec![None; processes.len()];
    let mut now = (0u64, 0usize);
    let mut highest = vec![(now, 0); n_bins];
    let mut bin = 0;
    for (index, &change) in changes.iter().enumerate() {
        while bin < bin_of(change.0) {
            bin += 1;
            highest[bin] = (now, index);
        }
        let before = apply(&mut heights, change);
        let after = change.2;
        now.0 = now
            .0
            .saturating_sub(before.unwrap_or(0))
            .saturating_add(after.unwrap_or(0));
        now.1 = now.1 + usize::from(after.is_some()) - usize::from(before.is_some());
        if now > highest[bin].0 {
            highest[bin] = (now, index + 1);
        }
    }
    highest[bin + 1..].fill((now, changes.len()));
    let mut stacked = vec![vec![None; n_bins]; processes.len()];
    let mut heights = vec![None; processes.len()];
    let mut n_applied = 0;
    for (bin, &(_, n_changes)) in highest.iter().enumerate() {
        for &change in &changes[n_applied..n_changes] {
            apply(&mut heights, change);
        }
        n_applied = n_changes;
        for (curve, height) in stacked.iter_mut().zip(&heights) {
            curve[bin] = *height;
        }
    }
    stacked
}

/// Sets the bin of the common peak to its exact sizes. In a long run each reading is the maximum of an interval, so
/// sums of processes can be too high. Sums above the common peak are scaled down to it.
fn lower_to_peak(stacked: &mut [Vec<Option<u64>>], processes: &[ProcessStacks], peak_bin: usize) {
    let peak_bytes = processes
        .iter()
        .map(|process| process.whole_peak_bytes)
        .fold(0, u64::saturating_add);
    let n_bins = stacked.first().map_or(0, Vec::len);
    for bin in 0..n_bins {
        let sum = stacked
            .iter()
            .filter_map(|curve| curve[bin])
            .fold(0, u64::saturating_add);
        if bin == peak_bin {
            for (curve, process) in stacked.iter_mut().zip(processes) {
                let is_running = curve[bin].is_some() || process.whole_peak_bytes > 0;
                curve[bin] = is_running.then_some(process.whole_peak_bytes);
            }
        } else if sum > peak_bytes {
            for height in stacked.iter_mut().filter_map(|curve| curve[bin].as_mut()) {
                let scaled = u128::from(*height) * u128::from(peak_bytes) / u128::from(sum);
                *height = scaled as u64;
            }
        }
    }
}

/// Prepends zero if needed: a heap is empty until the first allocation.
fn starting_at_zero(readings: &[Reading]) -> Vec<Reading> {
    let empty = Reading::default();
    let is_late = readings.first().is_none_or(|first| first.elapsed_ns > 0);
    let empty = is_late.then_some(empty).into_iter();
    empty.chain(readings.iter().copied()).collect()
}

/// A process on the common time axis, which is divided into bins.
pub(crate) struct BinnedProcess {
    pub bin_ns: u64,
    pub n_bins: usize,
    pub start_ns: u64,
    pub end_ns: u64,
}

impl BinnedProcess {
    /// The highest reading that applies to each bin, from the first reading to the end of the process.
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
    fn reading_applies_until_the_next_one_and_a_process_has_no_memory_before_its_start() {
        let first = process(10, 5, &[(1, 7), (2, 3)]);
        let second = process(12, 1, &[(0, 100)]);
        let line = timeline(&[first, second], 10 * MIN_BIN_NS, PeakMoment::EachOwn);
        let heap = |number: usize| line.processes[number].heap.clone();
        assert_eq!(heap(0), [0, 7, 7, 3, 3, 3].map(Some));
        assert_eq!(heap(1), [None, None, Some(100), Some(100), None, None]);
        assert_eq!(line.all_processes.heap, [0, 7, 107, 103, 3, 3].map(Some));
        assert_eq!(line.stacked[1][2], Some(100));
        assert_eq!(line.all_processes.resident, [None; 6]);
    }

    #[test]
    fn peaks_of_processes_at_different_times_of_a_bin_are_not_summed() {
        // A thousand bins of four units each: both spikes are in bin 100, one after the other.
        let first = process(0, 4000, &[(0, 5), (400, 50), (401, 5)]);
        let second = process(0, 4000, &[(0, 7), (402, 40), (403, 7)]);
        let line = timeline(&[first, second], 0, PeakMoment::EachOwn);
        assert_eq!(line.processes[0].heap[100], Some(50));
        assert_eq!(line.processes[1].heap[100], Some(40));
        assert_eq!(line.all_processes.heap[100], Some(57));
        let at_once = (line.stacked[0][100], line.stacked[1][100]);
        assert_eq!(at_once, (Some(50), Some(7)));
        assert_eq!(line.all_processes.heap[99], Some(12));
    }

    #[test]
    fn long_run_has_a_bounded_number_of_bins_and_keeps_its_highest_value() {
        let long = process(0, 1_000_000, &[(0, 1), (777_777, 99), (777_778, 1)]);
        let line = timeline(&[long], 0, PeakMoment::OfProcess);
        assert!(line.all_processes.heap.len() <= MAX_BINS as usize + 1);
        assert_eq!(line.all_processes.heap.iter().flatten().max(), Some(&99));
    }
}
