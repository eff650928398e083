//! Locks for code inside another program: they never panic, and their state after a fork is known.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if it is poisoned: a panic in a hook aborts the process, so no code can read a value that a panic left
/// half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock that is held across `fork` and released on both sides of it, so that no child inherits it locked by a thread that
/// does not exist there.
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
                // SAFETY: `sched_yield` has no preconditions.
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

/// A value that a [`ForkLock`] protects.
pub struct ForkMutex<T> {
    lock: ForkLock,
    value: UnsafeCell<T>,
}

// SAFETY: only a guard gives access to the value, and the lock allows one guard at a time.
unsafe impl<T: Send> Sync for ForkMutex<T> {}

impl<T> ForkMutex<T> {
    pub const fn new(value: T) -> Self {
        ForkMutex {
            lock: ForkLock(AtomicBool::new(false)),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks, unless another thread holds the lock at this moment.
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

    /// Locks without a guard, for the fork handlers, which lock and release in different functions.
    pub fn acquire(&self) {
        self.lock.acquire();
    }

    /// Undoes [`ForkMutex::acquire`], in the parent and in the child.
    pub fn release(&self) {
        self.lock.release();
    }
}

/// Holds the lock of a [`ForkMutex`] and releases it when dropped.
pub struct ForkGuard<'a, T>(&'a ForkMutex<T>);

impl<T> Deref for ForkGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, so no other thread accesses the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for ForkGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and `&mut self` is the only borrow of the guard.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for ForkGuard<'_, T> {
    fn drop(&mut self) {
        self.0.release();
    }
}
