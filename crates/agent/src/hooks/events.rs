//! What a hook says of its call: a block was handed out, is about to be released, or was not released after all.
//!
//! Each goes where the hook's kind wants it: into the capture, past the sampler, or to the accounts of jobs as well. The
//! kind is a constant, so a hook has in it only what its kind does.

use heaptide_capture::{Allocator, Frame, Lost};

use super::{EXACT, JOBS, SAMPLED, traced};
use crate::record::{self, sampler, threads};
use crate::session;

/// A block was handed out.
#[inline(always)]
pub fn allocated<const KIND: u8>(allocator: Allocator, size: usize, address: usize) {
    allocated_below::<KIND>(allocator, size, address, None);
}

/// The same, with one more frame below the innermost.
#[inline(always)]
pub fn allocated_below<const KIND: u8>(
    allocator: Allocator,
    size: usize,
    address: usize,
    frame: Option<Frame>,
) {
    let state = threads::enter();
    if state.is_null() {
        return;
    }
    // SAFETY: `state` is this thread's, marked busy until `leave`.
    unsafe {
        if KIND == JOBS {
            traced::allocated(state, allocator, size, address, frame);
        } else {
            note_allocated::<KIND>(state, allocator, size, address, frame);
        }
        threads::leave(state);
    }
}

/// Writes a block into the capture, if the sampler takes it.
///
/// # Safety
/// `state` comes from `threads::enter` on this thread.
#[inline(always)]
pub unsafe fn note_allocated<const KIND: u8>(
    state: *mut threads::ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    frame: Option<Frame>,
) {
    // SAFETY: as the caller says.
    unsafe {
        if KIND == EXACT {
            record::alloc(state, allocator, size, address, frame);
        } else if (*state).sampler.takes(size) {
            note_sampled(state, allocator, size, address, frame);
        }
    }
}

/// Out of the way of all those that are not sampled.
///
/// # Safety
/// As [`note_allocated`].
#[cold]
#[inline(never)]
unsafe fn note_sampled(
    state: *mut threads::ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    frame: Option<Frame>,
) {
    if sampler::follow(address) {
        // SAFETY: as the caller says.
        unsafe { record::alloc(state, allocator, size, address, frame) };
    } else {
        session::count_lost(Lost::SampleTableFull, 1);
    }
}

/// A block is about to be released. Returns whether that was recorded.
#[inline(always)]
pub fn releasing<const KIND: u8>(address: usize) -> bool {
    releasing_of::<KIND, false>(address)
}

/// The same; `PYTHONS`: a block of Python's own allocators.
#[inline(always)]
pub fn releasing_of<const KIND: u8, const PYTHONS: bool>(address: usize) -> bool {
    if KIND == SAMPLED {
        return sampler::may_follow(address) && releasing_sampled(address);
    }
    noting_release::<KIND, PYTHONS>(address)
}

/// A block is about to be made longer or shorter; at address 0 there is none, and a new one will be made. Returns whether
/// the old one's release was recorded.
#[inline(always)]
pub fn resizing<const KIND: u8, const PYTHONS: bool>(old: usize) -> bool {
    if old != 0 {
        return releasing_of::<KIND, PYTHONS>(old);
    }
    if KIND == JOBS {
        traced::releasing_nothing();
    }
    false
}

/// Out of the way of all those that were not sampled.
#[cold]
#[inline(never)]
fn releasing_sampled(address: usize) -> bool {
    sampler::unfollow(address) && noting_release::<SAMPLED, false>(address)
}

#[inline(always)]
fn noting_release<const KIND: u8, const PYTHONS: bool>(address: usize) -> bool {
    let state = threads::enter();
    if state.is_null() {
        return false;
    }
    // SAFETY: as in `allocated`.
    unsafe {
        if KIND == JOBS {
            traced::releasing(state, address, PYTHONS);
        } else {
            record::free(state, address);
        }
        threads::leave(state);
    }
    true
}

/// The pages of an address range are about to be released.
#[inline(always)]
pub fn releasing_range<const KIND: u8>(address: usize, length: usize) -> bool {
    // The kernel releases whole pages, of 4096 bytes at least.
    let length = length.checked_next_multiple_of(4096).unwrap_or(length);
    let state = threads::enter();
    if state.is_null() {
        return false;
    }
    // SAFETY: as in `allocated`.
    unsafe {
        if KIND == JOBS {
            traced::releasing_range(state, address, length);
        } else {
            record::free_range(state, address, length);
        }
        threads::leave(state);
    }
    true
}

/// The release that was recorded last did not happen.
#[cold]
pub fn not_released<const KIND: u8>(address: usize) {
    if KIND == SAMPLED {
        sampler::follow(address);
    }
    take_back::<KIND>(address, true);
}

/// The same of a range, which no sampler follows.
#[cold]
pub fn not_released_range<const KIND: u8>(address: usize) {
    take_back::<KIND>(address, false);
}

fn take_back<const KIND: u8>(address: usize, follows: bool) {
    let state = threads::enter();
    if !state.is_null() {
        // SAFETY: as in `allocated`.
        unsafe {
            if KIND == JOBS {
                traced::not_released(state, address, follows);
            } else {
                record::unfree(state);
            }
            threads::leave(state);
        }
    }
}
