//! The peak of several processes together.
//!
//! Each process had its peak at its own moment, so the sum of peaks is more than the machine ever held. Here the heaps
//! are laid on one time line by the wall clock at which each recording began, and the highest sum is looked for. A heap
//! over time is kept in bins, each with its highest value, so the answer can be too high by what happened within one
//! bin, a few thousandths of the run; it is never too low.

use crate::load::Session;

/// The most that was alive in all processes at one time, in bytes. Exact for one process. Of a part of the sites only
/// their share of each process's own peak is known, and these are summed up.
pub fn peak_together(session: &Session) -> u64 {
    if session.processes.len() == 1 || session.filter.chooses_sites() {
        let peaks = session.processes.iter();
        return peaks.map(|process| process.sums.peak.bytes).sum();
    }
    let mut changes: Vec<(u64, usize, u64)> = Vec::new();
    for (number, process) in session.processes.iter().enumerate() {
        let heights = &process.sums.heap.highest;
        for (bin, &height) in heights.iter().enumerate() {
            let start = process.unix_ns(process.sums.heap.bin_start(bin));
            changes.push((start, number, height));
        }
        let behind_last_bin = process.sums.heap.bin_start(heights.len());
        changes.push((
            process.unix_ns(behind_last_bin),
            number,
            process.sums.live.bytes,
        ));
        let end = process.end_units().max(behind_last_bin);
        changes.push((process.unix_ns(end), number, 0));
    }
    // At one instant, those that rise come before those that fall: the sum is never taken too low.
    changes.sort_by_key(|&(time, number, height)| (time, std::cmp::Reverse(height), number));
    let mut heights = vec![0u64; session.processes.len()];
    let (mut sum, mut highest) = (0u64, 0);
    for (_, number, height) in changes {
        sum = sum - heights[number] + height;
        heights[number] = height;
        highest = highest.max(sum);
    }
    highest
}
