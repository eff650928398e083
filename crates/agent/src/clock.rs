//! Time from the processor's counter: cheap enough for every event.
//!
//! A clock *unit* is `1 << tick_shift` ticks of the counter, chosen between half a millisecond and one.
//! Readers turn units into time with the clock points that the keeper writes.
//!
//! Runs on: any thread. Allocates: never. Locks: never. During fork/exit: no state.

use std::time::{SystemTime, UNIX_EPOCH};

/// What the counter and the two system clocks said at one instant.
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
    // SAFETY: `time` is a valid place for the result.
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

/// How far to shift ticks so that a unit lasts between 0.5 and 1 ms: from the counter's speed, measured over
/// the first fraction of a millisecond that this function itself spends.
pub fn tick_shift() -> u32 {
    const MEASURE_NS: u64 = 200_000;
    const UNIT_NS: u64 = 1_000_000;
    let first = point();
    let mut last = point();
    while last.monotonic_ns - first.monotonic_ns < MEASURE_NS {
        core::hint::spin_loop();
        last = point();
    }
    let elapsed_ns = (last.monotonic_ns - first.monotonic_ns).max(1);
    let ticks_per_unit =
        (last.ticks.wrapping_sub(first.ticks)).saturating_mul(UNIT_NS) / elapsed_ns;
    ticks_per_unit.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    #[test]
    fn unit_lasts_between_half_a_millisecond_and_one() {
        let shift = super::tick_shift();
        let first = super::point();
        while super::ticks() >> shift < (first.ticks >> shift) + 100 {}
        let unit_ns = (super::monotonic_ns() - first.monotonic_ns) / 100;
        // The bounds are wider than the claim by the part of a unit in which the loop began.
        assert!((480_000..1_040_000).contains(&unit_ns), "{unit_ns} ns");
    }
}
