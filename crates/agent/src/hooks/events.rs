//! One event of a hook: an allocation, a release, or a release that failed.
//!
//! The hook's mode determines the destination of the event: the capture, the sampler, or the accounts of jobs. The mode is
//! a constant, so a compiled hook contains only the code of its own mode.

use heaptide_capture::{Allocator, Frame};

use super::{EXACT, JOBS, Pointer, SAMPLED, job_events};
use crate::record::{self, sampler, threads};

/// Records that `block` was allocated, unless it is null. `arena` is one more frame below the innermost one.
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
    let state = threads::enter();
    if state.is_null() {
        return;
    }
    let address = block as usize;
    // SAFETY: `enter` returned this thread's state, which stays busy until `leave`.
    unsafe {
        match MODE {
            EXACT => record::alloc::<EXACT>(state, allocator, size, address, arena),
            SAMPLED => record::alloc_if_sampled(state, allocator, size, address, arena),
            _ => job_events::allocated(state, allocator, size, address, arena),
        }
        threads::leave(state);
    }
}

/// Records that the block at `address` is about to be released. Returns whether that was recorded. `is_pythons` is true if
/// the block belongs to one of Python's own allocators.
#[inline(always)]
pub fn record_release<const MODE: u8>(address: usize, is_pythons: bool) -> bool {
    match MODE {
        SAMPLED => sampler::may_follow(address) && release_sampled(address),
        _ => release::<MODE>(address, is_pythons),
    }
}

/// Not inlined, because few releases are of sampled blocks.
#[cold]
#[inline(never)]
fn release_sampled(address: usize) -> bool {
    sampler::must_note_release(address) && release::<SAMPLED>(address, false)
}

#[inline(always)]
fn release<const MODE: u8>(address: usize, is_pythons: bool) -> bool {
    let state = threads::enter();
    if state.is_null() {
        return false;
    }
    // SAFETY: `enter` returned this thread's state, which stays busy until `leave`.
    unsafe {
        match MODE {
            EXACT => record::free::<EXACT>(state, address),
            SAMPLED => record::free::<SAMPLED>(state, address),
            _ => job_events::releasing(state, address, is_pythons),
        }
        threads::leave(state);
    }
    true
}

/// Records that the block at `old` is about to be resized, which releases it. Returns whether that was recorded. Address 0
/// is not a block: the call will allocate a new one.
#[inline(always)]
pub fn record_resize<const MODE: u8>(old: usize, is_pythons: bool) -> bool {
    if old != 0 {
        return record_release::<MODE>(old, is_pythons);
    }
    if MODE == JOBS {
        job_events::releasing_nothing();
    }
    false
}

/// Records that the pages of an address range are about to be released. Returns whether that was recorded.
#[inline(always)]
pub fn record_range_release<const MODE: u8>(address: usize, length: usize) -> bool {
    // The kernel releases whole pages, of 4096 bytes at least.
    let length = length.checked_next_multiple_of(4096).unwrap_or(length);
    let state = threads::enter();
    if state.is_null() {
        return false;
    }
    // SAFETY: `enter` returned this thread's state, which stays busy until `leave`.
    unsafe {
        match MODE {
            EXACT => record::free_range::<EXACT>(state, address, length),
            SAMPLED => record::free_range::<SAMPLED>(state, address, length),
            _ => job_events::releasing_range(state, address, length),
        }
        threads::leave(state);
    }
    true
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
    let state = threads::enter();
    if !state.is_null() {
        // SAFETY: `enter` returned this thread's state, which stays busy until `leave`.
        unsafe {
            match MODE {
                EXACT => record::unfree::<EXACT>(state),
                SAMPLED => record::unfree::<SAMPLED>(state),
                _ => job_events::not_released(state, address, is_block),
            }
            threads::leave(state);
        }
    }
}
