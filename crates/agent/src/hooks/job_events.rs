//! Passes events of hooks, while jobs are traced, to the accounts of jobs, and to the capture if a session records.
//!
//! The accounts count the blocks of Python's allocators. A session without objects instead records the blocks that these
//! allocators request from the C library. The accounts pause during these requests ([`NestedForJobs`]). If the tracing ends
//! before the session does, these hooks stay installed.

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use heaptide_capture::{Allocator, Frame};

use super::events::Release;
use super::{EXACT, Pointer, SessionMode};
use crate::record::releases;
use crate::record::sampler;
use crate::record::threads::{self, IDLE, NESTED, Nested, RECORDING, ThreadState};
use crate::{jobs, record, session};

/// Adds an allocation to the accounts and to the capture.
///
/// # Safety
/// `state` comes from `threads::enter` on this thread.
#[inline(always)]
pub unsafe fn allocated(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    arena: Option<Frame>,
) {
    // SAFETY: the caller guarantees the conditions of every function below.
    unsafe {
        if jobs::events::counts(state) {
            jobs::events::allocated(state, allocator, size, address);
        }
        if session::is_active() {
            record_allocated(state, allocator, size, address, arena);
        }
    }
}

/// Adds an allocation to the capture. Not inlined, because usually no session records while jobs are traced.
///
/// # Safety
/// As for [`allocated`].
#[inline(never)]
unsafe fn record_allocated(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    arena: Option<Frame>,
) {
    // SAFETY: the caller guarantees the conditions of both functions.
    unsafe {
        match recording(allocator.is_pythons()) {
            Some(mode) if mode.sampled => {
                record::alloc_if_sampled(state, allocator, size, address, arena);
            }
            Some(_) => record::alloc::<EXACT>(state, allocator, size, address, arena),
            None => {}
        }
    }
}

/// Adds a block's release, which is about to happen, to the accounts and to the capture.
///
/// # Safety
/// As for [`allocated`].
#[inline(always)]
pub unsafe fn releasing(
    state: *mut ThreadState,
    address: usize,
    is_pythons: bool,
    release: Release,
) {
    // SAFETY: the caller guarantees the conditions of every function below.
    unsafe {
        if jobs::events::counts(state) {
            jobs::events::releasing(state, address, release);
        }
        match session::is_active() {
            true => record_releasing(state, address, is_pythons),
            false => jobs::events::remember_noted(state, false),
        }
    }
}

/// Adds a block's release to the capture. Not inlined, as [`record_allocated`].
///
/// # Safety
/// As for [`allocated`].
#[inline(never)]
unsafe fn record_releasing(state: *mut ThreadState, address: usize, is_pythons: bool) {
    // SAFETY: the caller guarantees the conditions of every function below.
    unsafe {
        let is_noted = match recording(is_pythons) {
            Some(mode) => !mode.sampled || sampler::must_note_release(address),
            // The session no longer records objects, but it may have recorded this one.
            None => {
                is_pythons
                    && releases::are_wanted()
                    && (sampler::unfollow(address) | releases::is_first(address))
            }
        };
        if is_noted {
            record::free::<EXACT>(state, address);
        }
        jobs::events::remember_noted(state, is_noted);
    }
}

/// Makes the accounts forget the thread's last release. The next allocation resizes no block, so the accounts must not
/// treat it as the new version of the block that was released last.
pub fn releasing_nothing() {
    let state = threads::enter();
    if state.is_null() {
        return;
    }
    // SAFETY: `enter` returned this thread's state, which stays busy until `leave`.
    unsafe {
        if jobs::events::counts(state) {
            jobs::events::forget_released(state);
        }
        threads::leave(state);
    }
}

/// Adds a range's release, which is about to happen, to the accounts and to the capture.
///
/// # Safety
/// As for [`allocated`].
pub unsafe fn releasing_range(state: *mut ThreadState, address: usize, length: usize) {
    // SAFETY: the caller guarantees the conditions of every function below.
    unsafe {
        if jobs::events::counts(state) {
            jobs::events::releasing_range(state, address, length);
        }
        let is_noted = recording(false).is_some();
        if is_noted {
            record::free_range::<EXACT>(state, address, length);
        }
        jobs::events::remember_noted(state, is_noted);
    }
}

/// Undoes the last release, because the real call failed. `is_block` is true for a block, which the sampler may follow, and
/// false for a range.
///
/// # Safety
/// As for [`allocated`].
pub unsafe fn not_released(state: *mut ThreadState, address: usize, is_block: bool) {
    // SAFETY: the caller guarantees the conditions of every function below.
    unsafe {
        if jobs::events::counts(state) {
            jobs::events::not_released(state);
        }
        if !jobs::events::is_noted(state) {
            return;
        }
        if is_block && SessionMode::current().is_some_and(|mode| mode.sampled) {
            sampler::follow(address);
        }
        record::unfree::<EXACT>(state);
    }
}

/// Returns the session's mode, if a session records the event.
#[inline]
fn recording(is_pythons: bool) -> Option<SessionMode> {
    if !session::is_active() {
        return None;
    }
    SessionMode::current().filter(|mode| mode.objects || !is_pythons)
}

/// Marks the time that a thread spends inside Python's allocators.
#[expect(dead_code, reason = "held for the effect of dropping them")]
pub enum NestedForJobs {
    /// The accounts and the session count the block, not the calls to the C library.
    Whole(Nested),
    /// The accounts pause; the session records the calls to the C library.
    AccountsPause(jobs::Excluded),
}

impl NestedForJobs {
    pub fn begin() -> NestedForJobs {
        let records_calls_to_libc =
            session::is_active() && SessionMode::current().is_some_and(|mode| !mode.objects);
        if records_calls_to_libc {
            NestedForJobs::AccountsPause(jobs::Excluded::begin())
        } else {
            NestedForJobs::Whole(Nested::begin())
        }
    }
}

/// A call of one of Python's allocators while no session records. It marks the thread's state as busy once, not once for
/// each of its events. Dropping it ends the call.
pub struct WholeCall(*mut ThreadState);

impl WholeCall {
    /// Returns `None` if a session records, or if the thread has no state yet or is busy.
    #[inline(always)]
    pub fn begin() -> Option<WholeCall> {
        let state = threads::existing_state();
        if state.is_null() || session::is_active() {
            return None;
        }
        let call = WholeCall(state);
        if call.busy().load(Ordering::Relaxed) != IDLE {
            // Not dropped: the state belongs to the event that marked it.
            std::mem::forget(call);
            return None;
        }
        call.busy().store(NESTED, Ordering::Relaxed);
        Some(call)
    }

    #[inline(always)]
    fn busy(&self) -> &AtomicU32 {
        // SAFETY: `existing_state` returned this thread's state, and states are never unmapped.
        unsafe { &(*self.0).busy }
    }

    #[inline(always)]
    fn record(&self, event: impl FnOnce(*mut ThreadState)) {
        self.busy().store(RECORDING, Ordering::Relaxed);
        // As in `threads::enter_any`: a session may start during the call.
        compiler_fence(Ordering::SeqCst);
        event(self.0);
        self.busy().store(NESTED, Ordering::Release);
    }

    /// Records a block that the allocator returned, unless it is null.
    #[inline(always)]
    pub fn allocated(&self, allocator: Allocator, size: usize, block: Pointer) {
        if !block.is_null() {
            // SAFETY: the state is this thread's own and busy.
            self.record(|state| unsafe { allocated(state, allocator, size, block as usize, None) });
        }
    }

    /// Records a block that the allocator is about to free or to resize, unless it is null.
    #[inline(always)]
    pub fn releasing(&self, block: Pointer, release: Release) {
        // SAFETY: the state is this thread's own and busy.
        self.record(|state| unsafe {
            if !block.is_null() {
                releasing(state, block as usize, true, release);
            } else if release == Release::Resize && jobs::events::counts(state) {
                jobs::events::forget_released(state);
            }
        });
    }

    /// Undoes the last release, because the allocator failed.
    #[cold]
    pub fn not_released(&self, block: Pointer) {
        // SAFETY: the state is this thread's own and busy.
        self.record(|state| unsafe { not_released(state, block as usize, true) });
    }
}

impl Drop for WholeCall {
    #[inline(always)]
    fn drop(&mut self) {
        self.busy().store(IDLE, Ordering::Release);
    }
}
