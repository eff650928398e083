//! The peak of several processes together.
//!
//! Each process had its peak at its own moment, so the sum of peaks is more than the machine ever held. Here the heaps
//! are laid on one time line by the wall clock at which each recording began, and the highest sum is looked for. A heap
//! over time is kept in bins, each with its highest value, so the answer can be too high by what happened within one
//! bin, a few thousandths of the run; it is never too low.

use crate::load::{Process, Session};

/// The most that was alive in all processes at one time, in bytes. Exact for one process.
pub fn peak_together(session: &Session) -> u64 {
    if let [process] = &session.processes[..] {
        return process.sums.peak.bytes;
    }
    let mut changes: Vec<(u64, usize, u64)> = Vec::new();
    for (number, process) in session.processes.iter().enumerate() {
        let heights = process.sums.heap.highest.iter();
        for (bin, &height) in heights.enumerate() {
            let start = process.sums.heap.bin_units.saturating_mul(bin as u64);
            changes.push((process.unix_ns(start), number, height));
        }
        changes.push((end_ns(process), number, 0));
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

/// When the process's memory was given back: one bin behind its last.
fn end_ns(process: &Process) -> u64 {
    let heap = &process.sums.heap;
    let last_bin = heap.bin_units.saturating_mul(heap.highest.len() as u64);
    process.unix_ns(process.end_units().max(last_bin))
}
