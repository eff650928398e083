//! Guards that exclude events of Heaptide's own code on a thread.
//!
//! [`Unrecorded`] excludes all events. It is for Rust code, which may hold locks that an event needs and releases no block
//! of the program. [`OwnPython`] is for Python code, during which a garbage collection or a cache of the interpreter may
//! release blocks of the program. It excludes allocations, and releases of the blocks they returned
//! ([`own_blocks`](crate::record::own_blocks)). [`Nested`] is for the program's allocators.

use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use super::{
    AT_REST, FIRST_POINTER, IDLE, NESTED, OWN, OWN_PYTHON, PAUSED, ThreadState, existing_state,
    first_state, is_needed, own_state,
};
use crate::record::tls;

/// Restores, when dropped, which events of this thread are recorded.
enum Pause {
    Nothing,
    /// The word of the thread ([`tls`]) before the guard.
    Word(usize),
    /// The state of the thread, and its `busy` before the guard.
    State(*mut ThreadState, u32),
}

impl Pause {
    fn of_word(before: usize) -> Pause {
        tls::set(PAUSED);
        Pause::Word(before)
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        match *self {
            Pause::Nothing => {}
            Pause::Word(before) => tls::set(before),
            Pause::State(state, before) => {
                // SAFETY: `begin` stored this thread's state, and a raw pointer keeps the guard on its thread.
                unsafe { &(*state).busy }.store(before, Ordering::Relaxed);
            }
        }
    }
}

/// Stops recording in this thread until the guard is dropped, while Rust code of Heaptide works on it.
#[expect(dead_code, reason = "held for the effect of dropping it")]
pub struct Unrecorded(Pause);

impl Unrecorded {
    pub fn begin() -> Self {
        let word = tls::get();
        Unrecorded(match word {
            0 | OWN => Pause::of_word(word),
            _ if word < FIRST_POINTER => Pause::Nothing,
            _ => {
                let state = word as *mut ThreadState;
                // SAFETY: the word points to this thread's state, and states are never unmapped.
                let before = unsafe { &(*state).busy }.swap(NESTED, Ordering::Relaxed);
                Pause::State(state, before)
            }
        })
    }
}

/// Records only releases of the program's blocks in this thread until the guard is dropped, while Python code of Heaptide
/// runs on it. Inside of [`Unrecorded`], whose holder may have locks that an event needs, nothing is recorded. Nothing is
/// recorded either if no recording is active at the beginning: a recording that starts later does not know the blocks
/// allocated so far.
#[expect(dead_code, reason = "held for the effect of dropping it")]
pub struct OwnPython(Pause);

impl OwnPython {
    pub fn begin() -> Self {
        let word = tls::get();
        OwnPython(match word {
            0 | OWN if is_needed() => {
                let state = first_state();
                if !state.is_null() {
                    let rest = if word == OWN { AT_REST } else { IDLE };
                    // SAFETY: `first_state` returned this thread's state, and states are never unmapped.
                    unsafe { &(*state).busy }.store(rest, Ordering::Relaxed);
                }
                OwnPython::begin_with(state)
            }
            0 => Pause::of_word(word),
            _ => OwnPython::begin_with(existing_state()),
        })
    }

    fn begin_with(state: *mut ThreadState) -> Pause {
        if state.is_null() {
            return Pause::Nothing;
        }
        // SAFETY: the state is this thread's own, and states are never unmapped.
        let busy = unsafe { &(*state).busy };
        let before = busy.load(Ordering::Relaxed);
        if !matches!(before, IDLE | AT_REST) {
            return Pause::Nothing;
        }
        // SAFETY: as above; no event of this thread is in progress, and no other thread uses this field.
        unsafe { (*state).own_blocks.begin() };
        let during = if is_needed() { OWN_PYTHON } else { NESTED };
        busy.store(during, Ordering::Relaxed);
        Pause::State(state, before)
    }
}

/// Excludes the hooked calls that an allocator makes itself, because the call to that allocator is recorded. Holds the
/// thread's state; null if the thread's events were excluded already; or [`IN_OWN_PYTHON`].
pub(crate) struct Nested(*mut ThreadState);

/// The thread runs Python code of Heaptide. Not the address of a state, so that other events pay nothing for this case.
const IN_OWN_PYTHON: *mut ThreadState = std::ptr::without_provenance_mut(1);

impl Nested {
    #[inline(always)]
    pub fn begin() -> Self {
        let state = own_state();
        if state.is_null() {
            return Nested(state);
        }
        // SAFETY: `own_state` returned this thread's state, and states are never unmapped.
        let busy = unsafe { &(*state).busy };
        let now = busy.load(Ordering::Relaxed);
        if now != IDLE {
            return Nested(Nested::begin_in(now));
        }
        busy.store(NESTED, Ordering::Relaxed);
        Nested(state)
    }

    #[cold]
    #[inline(never)]
    fn begin_in(now: u32) -> *mut ThreadState {
        if now != OWN_PYTHON {
            return null_mut();
        }
        Nested::set_busy(NESTED);
        IN_OWN_PYTHON
    }

    fn set_busy(value: u32) {
        let state = existing_state();
        if !state.is_null() {
            // SAFETY: the state is this thread's own, and states are never unmapped.
            unsafe { &(*state).busy }.store(value, Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_in_own_python(state: *mut ThreadState) {
        if state == IN_OWN_PYTHON {
            Nested::set_busy(OWN_PYTHON);
        }
    }
}

impl Drop for Nested {
    #[inline(always)]
    fn drop(&mut self) {
        if (self.0 as usize) < FIRST_POINTER {
            return Nested::end_in_own_python(self.0);
        }
        // SAFETY: `begin` stored this thread's state, and a raw pointer keeps the guard on its thread.
        unsafe { &(*self.0).busy }.store(IDLE, Ordering::Relaxed);
    }
}
