//! The mode of a running session, and its change.
//!
//! ```text
//! note in the registry → start to record first releases (`record::releases`) → publish → cut in the order of events → hooks
//! ```
//! After the cut every thread takes a new sequence number before its next event, and finds the published mode there
//! (`record::adoption`). Unless the samples of the former mode stay valid, the first release at each address is recorded
//! from the change on, because its block may belong to the former mode. Hooks that omit releases are installed after the
//! cut. Before it, another thread could still record a block of the former mode at an address that was already released
//! once, and these hooks would omit the release of that block.
//!
//! Runs on: the thread that changes the mode (with the GIL). Allocates: bypassing the hooks. Locks: `LIFECYCLE`.

use std::ptr::null;
use std::sync::atomic::{AtomicPtr, Ordering};

use heaptide_capture::{Entry, Mode, ModeChange};

use super::{LIFECYCLE, Session, current, cut, is_active, read_active, tick_shift};
use crate::record::{adoption, clock, releases, sampler, threads};
use crate::session::error::ChangeError;
use crate::{hooks, native};

/// A mode of a session. It is never freed, because a thread may be reading it.
pub struct ModeEntry {
    /// 0 is the mode in the capture's header.
    pub number: u32,
    /// Clock units at which it was chosen.
    time: u64,
    pub mode: Mode,
    previous: *const ModeEntry,
}

/// The mode that a session wants now, with all earlier ones.
pub struct WantedMode(AtomicPtr<ModeEntry>);

impl WantedMode {
    pub fn new(mode: Mode) -> WantedMode {
        WantedMode(AtomicPtr::new(Box::into_raw(Box::new(ModeEntry {
            number: 0,
            time: 0,
            mode,
            previous: null(),
        }))))
    }

    pub fn get(&self) -> &'static ModeEntry {
        // SAFETY: `new` and `set` store only leaked boxes, and nothing frees them.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    fn set(&self, change: ModeChange) {
        let next = Box::new(ModeEntry {
            number: change.number,
            time: change.time,
            mode: change.mode,
            previous: self.get(),
        });
        self.0.store(Box::into_raw(next), Ordering::SeqCst);
    }

    /// All changes so far, by number.
    pub fn changes(&self) -> Vec<ModeChange> {
        let mut changes = Vec::new();
        let mut now = self.get();
        // SAFETY: null, or a leaked box that nothing frees.
        while let Some(previous) = unsafe { now.previous.as_ref() } {
            changes.push(ModeChange {
                number: now.number,
                time: now.time,
                mode: now.mode,
            });
            now = previous;
        }
        changes.reverse();
        changes
    }
}

/// The mode of the current session; `None` while nothing is recorded.
pub fn active_mode() -> Option<Mode> {
    read_active(|session| session.current_mode().mode)
}

/// Changes the mode of the current session: sampling distance, objects and native frames. Returns whether it was different.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn change_mode(wanted: Mode) -> Result<bool, ChangeError> {
    let unrecorded = threads::Unrecorded::begin();
    let lifecycle = LIFECYCLE.lock();
    let (Some(running), Some(session)) = (lifecycle.as_ref(), current()) else {
        return Err(ChangeError::NotRecording);
    };
    if !is_active() {
        return Err(ChangeError::NotRecording);
    }
    let now = session.current_mode();
    let mode = Mode {
        objects: wanted.objects,
        sample_bytes: wanted.sample_bytes,
        native: wanted.native,
        ..now.mode
    };
    if mode == now.mode {
        return Ok(false);
    }
    if mode.native && !native::IS_SUPPORTED {
        return Err(ChangeError::NoNativeStacks);
    }
    let keeps_samples = now.mode.sample_bytes > 0
        && mode.sample_bytes > 0
        && !sampler::needs_larger_table(mode.sample_bytes)
        && (mode.objects || !now.mode.objects);
    if mode.sample_bytes > 0 && !sampler::make_table(mode.sample_bytes) {
        return Err(ChangeError::NoMemory);
    }
    if !session.store.raise_version() {
        return Err(ChangeError::NotWritten);
    }
    if mode.native && !now.mode.native {
        native::modules::reset();
    }
    let change = ModeChange {
        number: now.number + 1,
        time: clock::ticks() >> tick_shift(),
        mode,
    };
    session.note(&Entry::ModeChange(change));
    if !keeps_samples {
        releases::begin();
        sampler::note_all_releases();
        sampler::clear();
    }
    sampler::set_mean(mode.sample_bytes);
    session.wanted_mode.set(change);
    cut();
    // SAFETY: the caller holds the GIL, and hooks were prepared when the session started.
    unsafe { hooks::change(&running.symbols, &mode) };
    adopt_here(session);
    drop(lifecycle);
    drop(unrecorded);
    Ok(true)
}

/// Lets the calling thread adopt the mode at once: the program expects it from the next allocation on.
fn adopt_here(session: &Session) {
    let state = threads::existing_state();
    if state.is_null() {
        return;
    }
    // SAFETY: the state is this thread's own. No event is in progress, and `Unrecorded` keeps signal handlers from
    // starting one.
    let state = unsafe { &mut *state };
    if state.session == session.number {
        adoption::adopt(state, session);
    } else {
        state.sampler.forget();
    }
}
