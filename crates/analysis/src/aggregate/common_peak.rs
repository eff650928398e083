//! The peak of several processes together.
//!
//! Each process had its peak at its own moment, so the sum of peaks is more than the machine ever held. Here the heaps
//! are laid on one time line by the wall clock at which each recording began, and the highest sum is looked for. A heap
//! over time is kept in bins, each with its highest value, so the answer can be too high by what happened within one
//! bin, a few thousandths of the run; it is never too low.

use crate::load::Session;

/// The most that was alive in all processes at one time, in bytes. Exact for one process. Of a part of the sites only
/// their share of each process's own peak is known, and these are summed up.
pub fn common_peak(session: &Session) -> u64 {
    if session.processes.len() == 1 || session.filter.chooses_sites() {
        let peaks = session.processes.iter();
        return peaks.map(|process| process.sums.peak.bytes).sum();
    }
    let sums = sums(session).into_iter();
    sums.map(|(_, sum)| sum).max().unwrap_or(0)
}

/// A time at which all processes together held about that much, in nanoseconds since 1970: the middle of the stretch in
/// which it was at least 99 % of it, because what happened within a bin is not known.
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

/// What was alive in all processes from each time on at which that changed, by time.
fn sums(session: &Session) -> Vec<(u64, u64)> {
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
    let mut sum = 0u64;
    let mut sums = Vec::with_capacity(changes.len());
    for (time, number, height) in changes {
        sum = sum - heights[number] + height;
        heights[number] = height;
        sums.push((time, sum));
    }
    sums
}
