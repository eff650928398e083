//! Locks inside somebody else's program: never a panic, and a known state after a fork.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. A holder that panicked would have aborted the process at the hook's border, so what a poisoned
/// lock protects is as good as any.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock that can be held across `fork` and let go on both sides of it, so that no child inherits it locked by a
/// thread that does not exist there.
struct ForkLock(AtomicBool);

impl ForkLock {
    fn acquire(&self) {
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

    fn release(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A value behind such a lock.
pub struct ForkMutex<T> {
    lock: ForkLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and there is one guard at a time.
unsafe impl<T: Send> Sync for ForkMutex<T> {}

impl<T> ForkMutex<T> {
    pub const fn new(value: T) -> Self {
        ForkMutex {
            lock: ForkLock(AtomicBool::new(false)),
            value: UnsafeCell::new(value),
        }
    }

    /// The guard, if nobody has it at this moment.
    pub fn try_lock(&self) -> Option<ForkGuard<'_, T>> {
        let taken = self
            .lock
            .0
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| ForkGuard(self))
    }

    pub fn lock(&self) -> ForkGuard<'_, T> {
        self.lock.acquire();
        ForkGuard(self)
    }

    /// For the fork handlers, where taking and letting go happen in different functions.
    pub fn acquire(&self) {
        self.lock.acquire();
    }

    /// Undoes [`ForkMutex::acquire`], in the parent and in the child.
    pub fn release(&self) {
        self.lock.release();
    }
}

/// Lets go of its lock at the end of the scope.
pub struct ForkGuard<'a, T>(&'a ForkMutex<T>);

impl<T> Deref for ForkGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard has the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for ForkGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard has the lock, and is borrowed alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for ForkGuard<'_, T> {
    fn drop(&mut self) {
        self.0.release();
    }
}
