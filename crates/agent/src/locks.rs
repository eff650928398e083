//! Locks inside somebody else's program: never a panic, and a known state after a fork.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. A holder that panicked would have aborted the process at the hook's border, so what a poisoned
/// lock protects is as good as any.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock for a few instructions, which can be held across `fork` and let go on both sides of it.
pub struct ForkLock(AtomicBool);

/// Lets go of its lock at the end of the scope.
pub struct ForkGuard<'a>(&'a ForkLock);

impl ForkLock {
    pub const fn new() -> Self {
        ForkLock(AtomicBool::new(false))
    }

    pub fn lock(&self) -> ForkGuard<'_> {
        self.acquire();
        ForkGuard(self)
    }

    /// For the fork handlers, where taking and letting go happen in different functions.
    pub fn acquire(&self) {
        let mut n_tries = 0u32;
        while self
            .0
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            n_tries += 1;
            if n_tries % 64 == 0 {
                // SAFETY: no preconditions.
                unsafe { libc::sched_yield() };
            } else {
                std::hint::spin_loop();
            }
        }
    }

    pub fn release(&self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Drop for ForkGuard<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}
