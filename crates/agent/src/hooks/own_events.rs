//! Events while Python code of Heaptide runs on a thread.
//!
//! An allocation is Heaptide's own and is not recorded. It is remembered until the end of the *stretch* (see
//! [`crate::record::own_blocks`]), so that its release is not recorded either. Every other release is of a block that
//! the capture may contain. A garbage collection, a cache of the interpreter, or a resize of one of the program's
//! containers causes such releases. A resized block of the program stays the program's.

use heaptide_capture::{Allocator, Frame};

use super::SAMPLED;
use super::events::{self, Release};
use crate::record::own_blocks::Key;
use crate::record::threads::{ThreadState, while_recording};

/// Remembers an allocation, or records it if it replaces a resized block of the program.
///
/// # Safety
/// `state` comes from `Entered::OwnPython` on this thread.
#[cold]
#[inline(never)]
pub unsafe fn allocated<const MODE: u8>(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    arena: Option<Frame>,
) {
    // SAFETY: the state is this thread's own, and the borrow of its field ends before other code uses the state.
    unsafe {
        let is_pythons = allocator.is_pythons();
        if (*state).own_blocks.take_resizing(is_pythons) {
            while_recording(state, |state| {
                events::allocated::<MODE>(state, allocator, size, address, arena);
            });
        } else if MODE != SAMPLED {
            (*state).own_blocks.add(Key::new(address, is_pythons));
        }
    }
}

/// Records the release of a block, unless Heaptide's own code allocated it in this stretch. Returns whether it was
/// recorded. In a sampled session the sampler has already found the block among those of the program.
///
/// # Safety
/// As for [`allocated`].
#[cold]
#[inline(never)]
pub unsafe fn released<const MODE: u8>(
    state: *mut ThreadState,
    address: usize,
    is_pythons: bool,
    release: Release,
) -> bool {
    // SAFETY: as in `allocated`.
    unsafe {
        if is_own::<MODE>(state, address, is_pythons, release) {
            return false;
        }
        while_recording(state, |state| {
            events::released::<MODE>(state, address, is_pythons, release);
        });
    }
    true
}

/// Records the release of a range, unless Heaptide's own code mapped it in this stretch. Returns whether it was recorded.
///
/// # Safety
/// As for [`allocated`].
#[cold]
#[inline(never)]
pub unsafe fn released_range<const MODE: u8>(
    state: *mut ThreadState,
    address: usize,
    length: usize,
    release: Release,
) -> bool {
    // SAFETY: as in `allocated`.
    unsafe {
        if is_own::<MODE>(state, address, false, release) {
            return false;
        }
        while_recording(state, |state| {
            events::released_range::<MODE>(state, address, length);
        });
    }
    true
}

/// Undoes a release that was recorded, because the real call failed.
///
/// # Safety
/// As for [`allocated`].
#[cold]
#[inline(never)]
pub unsafe fn not_released<const MODE: u8>(
    state: *mut ThreadState,
    address: usize,
    is_block: bool,
) {
    // SAFETY: as in `allocated`.
    unsafe {
        (*state).own_blocks.forget_resizing();
        while_recording(state, |state| {
            events::not_released::<MODE>(state, address, is_block);
        });
    }
}

/// Whether Heaptide's own code allocated a block in this stretch. Forgets the block.
///
/// # Safety
/// As for [`allocated`].
unsafe fn is_own<const MODE: u8>(
    state: *mut ThreadState,
    address: usize,
    is_pythons: bool,
    release: Release,
) -> bool {
    // SAFETY: the state is this thread's own, and nothing else refers to its field.
    let blocks = unsafe { &mut (*state).own_blocks };
    let is_own = MODE != SAMPLED && blocks.remove(Key::new(address, is_pythons));
    blocks.set_resizing(is_pythons, !is_own && release == Release::Resize);
    is_own
}
