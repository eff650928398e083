//! What the hooks do while jobs are traced: the event goes into the accounts, and into the capture if a recording runs as well.
//!
//! The accounts know Python's blocks as such. A recording without Python's own allocators wants to see what those ask of the C
//! library instead; then the accounts look away meanwhile ([`Inside`]). These hooks stay in place if the tracing ends before
//! the recording does.

use heaptide_capture::{Allocator, Frame};

use super::events::note_allocated;
use super::{EXACT, Kind, SAMPLED, recorded};
use crate::record::threads::{self, Inner, ThreadState};
use crate::record::{self, sampler};
use crate::{jobs, session};

/// # Safety
/// `state` comes from `threads::enter` on this thread.
pub unsafe fn allocated(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    frame: Option<Frame>,
) {
    // SAFETY: as the caller says.
    unsafe {
        if jobs::looks(state) {
            jobs::allocated(state, allocator, size, address);
        }
        let is_pythons = matches!(
            allocator,
            Allocator::PymallocMalloc | Allocator::PymallocCalloc | Allocator::PymallocRealloc
        );
        match recording(is_pythons) {
            Some(Kind::Sampled) => {
                note_allocated::<SAMPLED>(state, allocator, size, address, frame)
            }
            Some(_) => note_allocated::<EXACT>(state, allocator, size, address, frame),
            None => {}
        }
    }
}

/// # Safety
/// As [`allocated`].
pub unsafe fn releasing(state: *mut ThreadState, address: usize, is_pythons: bool) {
    // SAFETY: as the caller says.
    unsafe {
        if jobs::looks(state) {
            jobs::releasing(state, address);
        }
        let is_noted = match recording(is_pythons) {
            Some(Kind::Sampled) => sampler::unfollow(address),
            Some(_) => true,
            None => false,
        };
        if is_noted {
            record::free(state, address);
        }
        jobs::remember_noted(state, is_noted);
    }
}

/// What comes next is made longer from nothing: the accounts must not take it for what was released last.
pub fn releasing_nothing() {
    let state = threads::enter();
    if state.is_null() {
        return;
    }
    // SAFETY: `state` is this thread's, marked busy until `leave`.
    unsafe {
        if jobs::looks(state) {
            jobs::forget_released(state);
        }
        threads::leave(state);
    }
}

/// # Safety
/// As [`allocated`].
pub unsafe fn releasing_range(state: *mut ThreadState, address: usize, length: usize) {
    // SAFETY: as the caller says.
    unsafe {
        if jobs::looks(state) {
            jobs::releasing_range(state, address, length);
        }
        let is_noted = recording(false).is_some();
        if is_noted {
            record::free_range(state, address, length);
        }
        jobs::remember_noted(state, is_noted);
    }
}

/// What was announced last did not happen. `follows`: it is a block, which a sampler follows, and no range.
///
/// # Safety
/// As [`allocated`].
pub unsafe fn not_released(state: *mut ThreadState, address: usize, follows: bool) {
    // SAFETY: as the caller says.
    unsafe {
        if jobs::looks(state) {
            jobs::not_released(state);
        }
        if !jobs::is_noted(state) {
            return;
        }
        if follows && recorded().is_some_and(|recorded| recorded.kind == Kind::Sampled) {
            sampler::follow(address);
        }
        record::unfree(state);
    }
}

/// How an event is to be recorded, if it is.
#[inline]
fn recording(is_pythons: bool) -> Option<Kind> {
    if !session::is_active() {
        return None;
    }
    let recorded = recorded()?;
    (recorded.objects || !is_pythons).then_some(recorded.kind)
}

/// The time that a thread spends inside Python's allocators.
#[expect(dead_code, reason = "held for what happens when they are dropped")]
pub enum Inside {
    /// The block is all that counts.
    Whole(Inner),
    /// The accounts look away; a recording sees what is asked of the C library.
    Below(jobs::LookAway),
}

impl Inside {
    pub fn begin() -> Inside {
        let is_seen_below = session::is_active() && recorded().is_some_and(|it| !it.objects);
        if is_seen_below {
            Inside::Below(jobs::LookAway::begin())
        } else {
            Inside::Whole(Inner::begin())
        }
    }
}
