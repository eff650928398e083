//! One event of a hook: an allocation, a release, or a release that failed.
//!
//! The hook's mode determines the destination of the event: the capture, the sampler, or the accounts of jobs. The mode is
//! a constant, so a compiled hook contains only the code of its own mode.

use heaptide_capture::{Allocator, Frame};

use super::{EXACT, JOBS, Pointer, SAMPLED, job_events, own_events};
use crate::record::threads::{self, Entered, ThreadState};
use crate::record::{self, sampler};

/// Records that `block` was allocated, unless it is null. `arena` is an additional innermost frame.
#[inline(always)]
pub fn record_allocation<const MODE: u8>(
    allocator: Allocator,
    size: usize,
    block: Pointer,
    arena: Option<Frame>,
) {
    if block.is_null() {
        return;
    }
    let address = block as usize;
    match threads::enter_any() {
        // SAFETY: `enter_any` returned this thread's state, which stays busy until `leave`.
        Entered::Recording(state) => unsafe {
            allocated::<MODE>(state, allocator, size, address, arena);
            threads::leave(state);
        },
        // SAFETY: `enter_any` returned this thread's state.
        Entered::OwnPython(state) => unsafe {
            own_events::allocated::<MODE>(state, allocator, size, address, arena);
        },
        Entered::No => {}
    }
}

/// # Safety
/// `state` is the calling thread's own and busy.
#[inline(always)]
pub(super) unsafe fn allocated<const MODE: u8>(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    arena: Option<Frame>,
) {
    // SAFETY: the caller promises what every function below requires.
    unsafe {
        match MODE {
            EXACT => record::alloc::<EXACT>(state, allocator, size, address, arena),
            SAMPLED => record::alloc_if_sampled(state, allocator, size, address, arena),
            _ => job_events::allocated(state, allocator, size, address, arena),
        }
    }
}

/// What follows the release of a block or a range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Nothing.
    Final,
    /// It is resized or moved: the same hook records an allocation next.
    Resize,
}

/// Records that the block at `address` is about to be released. Returns whether that was recorded. `is_pythons` is true if
/// the block belongs to one of Python's own allocators.
#[inline(always)]
pub fn record_release<const MODE: u8>(address: usize, is_pythons: bool) -> bool {
    release_if_followed::<MODE>(address, is_pythons, Release::Final)
}

#[inline(always)]
fn release_if_followed<const MODE: u8>(address: usize, is_pythons: bool, release: Release) -> bool {
    match MODE {
        SAMPLED => sampler::may_follow(address) && release_sampled(address, is_pythons, release),
        _ => release_block::<MODE>(address, is_pythons, release),
    }
}

/// Not inlined, because few releases are of sampled blocks.
#[cold]
#[inline(never)]
fn release_sampled(address: usize, is_pythons: bool, release: Release) -> bool {
    sampler::must_note_release(address) && release_block::<SAMPLED>(address, is_pythons, release)
}

#[inline(always)]
fn release_block<const MODE: u8>(address: usize, is_pythons: bool, release: Release) -> bool {
    match threads::enter_any() {
        // SAFETY: `enter_any` returned this thread's state, which stays busy until `leave`.
        Entered::Recording(state) => unsafe {
            released::<MODE>(state, address, is_pythons, release);
            threads::leave(state);
            true
        },
        // SAFETY: `enter_any` returned this thread's state.
        Entered::OwnPython(state) => unsafe {
            own_events::released::<MODE>(state, address, is_pythons, release)
        },
        Entered::No => false,
    }
}

/// # Safety
/// `state` is the calling thread's own and busy.
#[inline(always)]
pub(super) unsafe fn released<const MODE: u8>(
    state: *mut ThreadState,
    address: usize,
    is_pythons: bool,
    release: Release,
) {
    // SAFETY: the caller promises what every function below requires.
    unsafe {
        match MODE {
            EXACT => record::free::<EXACT>(state, address),
            SAMPLED => record::free::<SAMPLED>(state, address),
            _ => job_events::releasing(state, address, is_pythons, release),
        }
    }
}

/// Records that the block at `old` is about to be resized, which releases it. Returns whether that was recorded. Address 0
/// is not a block: the call will allocate a new one.
#[inline(always)]
pub fn record_resize<const MODE: u8>(old: usize, is_pythons: bool) -> bool {
    if old != 0 {
        return release_if_followed::<MODE>(old, is_pythons, Release::Resize);
    }
    if MODE == JOBS {
        job_events::releasing_nothing();
    }
    false
}

/// Records that the pages of an address range are about to be released. Returns whether that was recorded.
#[inline(always)]
pub fn record_range_release<const MODE: u8>(
    address: usize,
    length: usize,
    release: Release,
) -> bool {
    // The kernel releases whole pages, of 4096 bytes at least.
    let length = length.checked_next_multiple_of(4096).unwrap_or(length);
    match threads::enter_any() {
        // SAFETY: `enter_any` returned this thread's state, which stays busy until `leave`.
        Entered::Recording(state) => unsafe {
            released_range::<MODE>(state, address, length);
            threads::leave(state);
            true
        },
        // SAFETY: `enter_any` returned this thread's state.
        Entered::OwnPython(state) => unsafe {
            own_events::released_range::<MODE>(state, address, length, release)
        },
        Entered::No => false,
    }
}

/// # Safety
/// `state` is the calling thread's own and busy.
#[inline(always)]
pub(super) unsafe fn released_range<const MODE: u8>(
    state: *mut ThreadState,
    address: usize,
    length: usize,
) {
    // SAFETY: the caller promises what every function below requires.
    unsafe {
        match MODE {
            EXACT => record::free_range::<EXACT>(state, address, length),
            SAMPLED => record::free_range::<SAMPLED>(state, address, length),
            _ => job_events::releasing_range(state, address, length),
        }
    }
}

/// Undoes the release of the block at `address`, which this thread recorded last, because the real call failed.
#[cold]
pub fn undo_release<const MODE: u8>(address: usize) {
    if MODE == SAMPLED {
        sampler::follow(address);
    }
    undo::<MODE>(address, true);
}

/// Undoes the release of a range, as [`undo_release`] does for a block. The sampler does not follow ranges.
#[cold]
pub fn undo_range_release<const MODE: u8>(address: usize) {
    undo::<MODE>(address, false);
}

fn undo<const MODE: u8>(address: usize, is_block: bool) {
    match threads::enter_any() {
        // SAFETY: `enter_any` returned this thread's state, which stays busy until `leave`.
        Entered::Recording(state) => unsafe {
            not_released::<MODE>(state, address, is_block);
            threads::leave(state);
        },
        // SAFETY: `enter_any` returned this thread's state.
        Entered::OwnPython(state) => unsafe {
            own_events::not_released::<MODE>(state, address, is_block);
        },
        Entered::No => {}
    }
}

/// # Safety
/// `state` is the calling thread's own and busy.
#[inline(always)]
pub(super) unsafe fn not_released<const MODE: u8>(
    state: *mut ThreadState,
    address: usize,
    is_block: bool,
) {
    // SAFETY: the caller promises what every function below requires.
    unsafe {
        match MODE {
            EXACT => record::unfree::<EXACT>(state),
            SAMPLED => record::unfree::<SAMPLED>(state),
            _ => job_events::not_released(state, address, is_block),
        }
    }
}
