//! Time from the processor's counter, cheap enough for every event.
//!
//! A clock *unit* is `1 << tick_shift` ticks of the counter, which is between half a millisecond and one millisecond.
//! Readers convert units to time with the clock points that the keeper writes.
//!
//! Runs on: any thread. Allocates: never. Locks: never. During fork/exit: no state.

use std::time::{SystemTime, UNIX_EPOCH};

/// The values of the counter and of the two system clocks at one instant.
#[derive(Clone, Copy)]
pub struct ClockPoint {
    pub ticks: u64,
    pub monotonic_ns: u64,
    pub unix_ns: u64,
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: the instruction has no preconditions in user space on Linux (a process can forbid it to itself with
    // PR_SET_TSC, which then also breaks the system's own clock functions).
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn ticks() -> u64 {
    let value: u64;
    // SAFETY: Linux lets user space read the virtual counter.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack)) };
    value
}

pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the function writes the time into the live struct it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub fn unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_nanos() as u64)
}

pub fn point() -> ClockPoint {
    ClockPoint {
        ticks: ticks(),
        monotonic_ns: monotonic_ns(),
        unix_ns: unix_ns(),
    }
}

/// The counter and the monotonic clock, from the closest of several pairs of reads.
fn close_pair() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..16 {
        let before = ticks();
        let now_ns = monotonic_ns();
        let gap = ticks().wrapping_sub(before);
        if gap < best.0 {
            best = (gap, before, now_ns);
        }
    }
    (best.1, best.2)
}

/// The shift for which a unit lasts between 0.5 and 1 ms. Measures the speed of the counter for 0.2 ms.
pub fn tick_shift() -> u32 {
    const MEASURE_NS: u64 = 200_000;
    const UNIT_NS: u64 = 1_000_000;
    let first = close_pair();
    let mut last = close_pair();
    while last.1 - first.1 < MEASURE_NS {
        last = close_pair();
    }
    let elapsed_ns = (last.1 - first.1).max(1);
    let ticks_per_unit =
        u128::from(last.0.wrapping_sub(first.0)) * u128::from(UNIT_NS) / u128::from(elapsed_ns);
    ticks_per_unit.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_lasts_between_half_a_millisecond_and_one() {
        let shift = tick_shift();
        let first = close_pair();
        while ticks() >> shift < (first.0 >> shift) + 100 {}
        let last = close_pair();
        let unit_ns = u128::from(last.1 - first.1) * (1 << shift) / u128::from(last.0 - first.0);
        // The bounds are wider than the claim by the error of such a short measurement.
        assert!((490_000..1_020_000).contains(&unit_ns), "{unit_ns} ns");
    }
}
