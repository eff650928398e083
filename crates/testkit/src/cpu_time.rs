//! The processor time of the calling thread, which other load on the machine hardly changes.

use std::time::Duration;

/// Returns the processor time that the calling thread has used so far.
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer refers to a live value that the call fills.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "this kernel has no processor time of threads");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
