//! Guards that exclude events of Heaptide's own code on a thread.
//!
//! [`Unrecorded`] excludes all events. It is for Rust code, which may hold locks that an event needs and releases no block of
//! the program. [`OwnPython`] is for Python code: a garbage collection or a cache of the interpreter may then release
//! blocks of the program, so releases are recorded, except those of blocks that were allocated meanwhile
//! ([`own_blocks`](crate::record::own_blocks)). [`Nested`] is for the program's allocators.

use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use super::{
    AT_REST, FIRST_POINTER, IDLE, NESTED, OWN, OWN_PYTHON, PAUSED, ThreadState, existing_state,
    first_state, is_needed, own_state,
};
use crate::record::tls;

/// Undoes a change of what is recorded in this thread.
enum Pause {
    Nothing,
    /// The thread's word before.
    Word(usize),
    /// The thread's state, and its `busy` before.
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
/// runs on it. Inside of [`Unrecorded`], whose holder may have locks that an event needs, nothing is recorded. The same is
/// true if no recording runs at the beginning: one that starts meanwhile does not know the blocks allocated so far.
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

/// Marks the time that a thread spends inside an allocator whose blocks are recorded as a whole.
pub(crate) struct Nested {
    /// Null if the thread's events were excluded already.
    state: *mut ThreadState,
    before: u32,
}

impl Nested {
    #[inline(always)]
    pub fn begin() -> Self {
        let mut state = own_state();
        let mut before = IDLE;
        if !state.is_null() {
            // SAFETY: `own_state` returned this thread's state, and states are never unmapped.
            let busy = unsafe { &(*state).busy };
            before = busy.load(Ordering::Relaxed);
            if matches!(before, IDLE | OWN_PYTHON) {
                busy.store(NESTED, Ordering::Relaxed);
            } else {
                state = null_mut();
            }
        }
        Nested { state, before }
    }
}

impl Drop for Nested {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.state.is_null() {
            // SAFETY: `begin` stored this thread's state, and a raw pointer keeps the guard on its thread.
            unsafe { &(*self.state).busy }.store(self.before, Ordering::Relaxed);
        }
    }
}
