//! The common peak of several processes.
//!
//! Each process peaks at its own time, so the sum of the peaks is more than the machine ever held. Here the heaps are
//! aligned by the wall-clock start of each recording, and the highest sum is the common peak. A heap over time is known
//! in bins by its highest value, so the result can be too high by the changes within one bin, a few thousandths of the
//! run. It is never too low.

use crate::load::Session;

/// The largest number of bytes alive in all processes at one time. Exact for one process. With a filter of sites, only
/// their share of each process's own peak is known, so the result is the sum of these shares.
pub fn common_peak(session: &Session) -> u64 {
    if session.processes.len() == 1 || session.filter.chooses_sites() {
        let peaks = session.processes.iter();
        return peaks.map(|process| process.sums.peak.bytes).sum();
    }
    let sums = sums(session).into_iter();
    sums.map(|(_, sum)| sum).max().unwrap_or(0)
}

/// A time near the common peak, in nanoseconds since 1970: the middle of the interval in which the sum was at least 99% of
/// it. The exact time is not known, because bins hide it.
pub(super) fn common_peak_time(session: &Session) -> Option<u64> {
    let sums = sums(session);
    let (highest, _) = (sums.iter().enumerate()).max_by_key(|(_, (_, sum))| *sum)?;
    let is_high = |(_, sum): &(u64, u64)| *sum >= sums[highest].1 / 100 * 99;
    let n_before = sums[..highest].iter().rev().take_while(|it| is_high(it));
    let (start, _) = sums[highest - n_before.count()];
    let fall = sums[highest..].iter().find(|it| !is_high(it));
    let (end, _) = fall.or(sums.last())?;
    Some(start.midpoint(*end))
}

/// The bytes alive in all processes after each change, by time.
fn sums(session: &Session) -> Vec<(u64, u64)> {
    let mut changes: Vec<(u64, usize, u64)> = Vec::new();
    for (number, process) in session.processes.iter().enumerate() {
        let heights = &process.sums.heap.highest;
        for (bin, &height) in heights.iter().enumerate() {
            let start = process.unix_ns(process.sums.heap.bin_start(bin));
            changes.push((start, number, height));
        }
        let after_last_bin = process.sums.heap.bin_start(heights.len());
        changes.push((
            process.unix_ns(after_last_bin),
            number,
            process.sums.live.bytes,
        ));
        let end = process.end_units().max(after_last_bin);
        changes.push((process.unix_ns(end), number, 0));
    }
    // At the same time, rises come before falls, so that the sum is never too low.
    changes.sort_by_key(|&(time, number, height)| (time, std::cmp::Reverse(height), number));
    let mut heights = vec![0u64; session.processes.len()];
    let mut sum = 0u64;
    let mut sums = Vec::with_capacity(changes.len());
    for (time, number, height) in changes {
        sum = sum - heights[number] + height;
        heights[number] = height;
        sums.push((time, sum));
    }
    sums
}
