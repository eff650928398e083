//! A change of the mode, thread by thread.
//!
//! The session names the wanted mode. A thread adopts it at its next recorded event: it hands its chunk over and begins one
//! whose head contains the number of the mode. Readers weigh each block by the mode in which its allocation was recorded.
//!
//! Hooks are compiled for one mode, and import slots change one after the other while other threads run. Some callers keep
//! the address of an old hook forever. So a thread may call a hook of another mode than the one it has adopted. A hook
//! compares the order word with the token of its class, exact or sampled. A thread has only the token of the class it has
//! adopted, so a hook of the other class finds a mismatch and enters the slow path. Hooks of sampled sessions test the
//! thread's countdown first; in exact mode it is always negative. So the fast paths need no code for changes.
//!
//! An allocation that was sampled before its thread adopted the wanted mode is recorded in the old mode, because its weight
//! depends on the probability with which it was chosen.
//!
//! Runs on: the thread whose event it is. Allocates: one mapping for the thread's native stack, if the mode needs it. Locks:
//! the store's, when the chunk is handed over.

use heaptide_capture::{Allocator, Frame, Lost};

use super::{alloc, hand_over, sampler};
use crate::hooks::{EXACT, SAMPLED};
use crate::native;
use crate::record::threads::{NO_TOKEN, ThreadState};
use crate::session::{self, ModeEntry, Session};

/// Gives the thread's token to the hooks of the mode that the thread has adopted.
pub(super) fn set_token(state: &mut ThreadState, token: u64) {
    state.tokens = [NO_TOKEN; 2];
    let class = if state.sampler.is_sampling() {
        SAMPLED
    } else {
        EXACT
    };
    state.tokens[usize::from(class)] = token;
}

/// Sets the fields of a thread's state that depend on the mode. The thread must not have a chunk.
pub(super) fn set_mode(state: &mut ThreadState, now: &ModeEntry) {
    state.mode = now.number;
    state.sampler.set_mean(now.mode.sample_bytes);
    state.native = std::ptr::null_mut();
    if now.mode.native {
        if state.native_memory.is_null() {
            state.native_memory = native::new_stack();
        }
        state.native = state.native_memory;
        // SAFETY: null, or memory that only this busy state refers to and that is never unmapped.
        match unsafe { state.native.as_mut() } {
            Some(native) => native.join_session(),
            None => session::count_lost(Lost::CutNativeStack, 1),
        }
    }
}

/// Adopts the wanted mode if the thread has another one. The thread must have joined the session.
#[cold]
pub(crate) fn adopt(state: &mut ThreadState, session: &Session) {
    let now = session.current_mode();
    if state.mode == now.number {
        return;
    }
    hand_over(state, session);
    set_mode(state, now);
    let token = u64::from(state.index) + 1;
    set_token(state, token);
}

/// Records an allocation that the sampler took. Not inlined, because it is rare.
///
/// # Safety
/// As for [`alloc`].
#[cold]
#[inline(never)]
pub(super) unsafe fn alloc_sampled(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    below: Option<Frame>,
) {
    let session = session::current().filter(|session| {
        // SAFETY: the caller entered the state, which its thread alone uses.
        session::is_active() && unsafe { (*state).session } == session.number
    });
    // SAFETY: as above; no reference to the state outlives a call that takes the pointer.
    unsafe {
        if (*state).sampler.is_exact() {
            // In exact mode the countdown is always negative, so the sampler has not decided about this allocation.
            match session {
                Some(session) => adopt(&mut *state, session),
                None => (*state).sampler.forget(),
            }
            if (*state).sampler.is_exact() || !sampler::is_sampling() {
                return alloc::<EXACT>(state, allocator, size, address, below);
            }
            if !(*state).sampler.takes(size) {
                return;
            }
        }
        if sampler::follow(address) {
            alloc::<SAMPLED>(state, allocator, size, address, below);
        } else {
            session::count_lost(Lost::SampleTableFull, 1);
        }
        if let Some(session) = session {
            adopt(&mut *state, session);
        }
    }
}

/// Handles an allocation in a hook of exact mode although its thread has adopted a sampled mode.
///
/// # Safety
/// As for [`alloc`].
#[cold]
#[inline(never)]
pub(super) unsafe fn alloc_by_old_hook(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    below: Option<Frame>,
) {
    // SAFETY: the caller promises what `alloc_if_sampled` requires.
    unsafe { super::alloc_if_sampled(state, allocator, size, address, below) };
}
