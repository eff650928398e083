//! Beginning and ending a recording, and standing still while the process forks.
//!
//! **Stopping.** A thread marks itself busy before it looks at the order word; `stop` clears the word, puts a barrier
//! on all threads, and then waits for those that are busy. Whoever looks later sees zero. So after the wait nobody
//! writes, and the memory can go.
//!
//! Runs on: the thread that starts or stops (with the GIL). Allocates: past the hooks. Locks: `LIFECYCLE`. During fork:
//! see `fork.rs`.

use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use heaptide_capture::Entry;

use super::{N_SESSIONS, ORDER, SESSION, Session, TICK_SHIFT, TOKEN_BITS, abandon, current};
use crate::cpython::Symbols;
use crate::cpython::interpreter;
use crate::file::checkpoint::Checkpoints;
use crate::file::store::Store;
use crate::file::{keeper, new_file};
use crate::host::locks::ForkMutex;
use crate::host::{ledger, own_memory, own_thread, resident, sys};
use crate::record::threads::{self, RECORDING};
use crate::record::{self, clock, codes, sampler};
use crate::session::config::Config;
use crate::session::error::StartError;
use crate::session::fork;
use crate::{hooks, jobs, native};

/// Held by whoever starts or stops.
pub static LIFECYCLE: ForkMutex<Option<Running>> = ForkMutex::new(None);

/// What only start and stop need.
pub struct Running {
    keeper: Keeper,
    symbols: Symbols,
}

enum Keeper {
    Running(own_thread::Handle),
    /// Ended for as long as a fork takes. What it knew of a bounded capture.
    Paused(Option<Box<Checkpoints>>),
}

/// What a session leaves when it stops.
pub struct Stopped {
    pub path: PathBuf,
    /// The capture is not complete, and the reason was said on standard error.
    pub abandoned: bool,
}

/// Begins to record. What is wrong with the Python stacks alone is returned as a warning.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn start(config: Config) -> Result<Option<String>, StartError> {
    let id = config.session.unwrap_or_else(new_file::new_session_id);
    // SAFETY: as the caller says.
    unsafe { start_as(config, id, std::os::unix::process::parent_id()) }
}

/// Goes on recording in a forked child, under the parent's session and into a file of the child's own.
///
/// # Safety
/// The calling thread holds the GIL, in a child whose parent was recording.
pub unsafe fn start_in_child() -> Result<Option<String>, StartError> {
    let Some((mut config, id, parent)) = fork::take_inheritance() else {
        return Ok(None);
    };
    let mut path = config.path.into_os_string();
    path.push(format!(".{}", std::process::id()));
    config.path = path.into();
    config.overwrite = true;
    // SAFETY: as the caller says.
    unsafe { start_as(config, id, parent) }
}

/// Finds the interpreter's functions and learns its layout. What is wrong with the layout alone is returned as a warning.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn prepare_interpreter() -> Result<(Symbols, Option<String>), StartError> {
    let symbols = Symbols::resolve().map_err(StartError::Interpreter)?;
    // SAFETY: the caller holds the GIL.
    match unsafe { interpreter::prepare(&symbols) } {
        Ok(()) => Ok((symbols, None)),
        Err(unsupported) if unsupported.forbids_recording() => {
            Err(StartError::Interpreter(unsupported))
        }
        Err(unsupported) => Ok((symbols, Some(unsupported.to_string()))),
    }
}

unsafe fn start_as(
    config: Config,
    id: [u8; 16],
    parent: u32,
) -> Result<Option<String>, StartError> {
    let _unrecorded = threads::Unrecorded::begin();
    let mut running = LIFECYCLE.lock();
    if running.is_some() {
        return Err(StartError::AlreadyRunning(
            current()
                .map(|session| session.config.path.clone())
                .unwrap_or_default(),
        ));
    }
    if config.mode.native && !native::IS_SUPPORTED {
        return Err(StartError::NoNativeStacks);
    }
    // SAFETY: the caller holds the GIL.
    let (symbols, warning) = unsafe { prepare_interpreter() }?;
    if !threads::prepare() {
        return Err(StartError::NoThreadKey);
    }
    fork::prepare();
    let has_memory = own_memory::prepare_reserve()
        && (config.mode.sample_bytes == 0 || sampler::prepare(config.mode.sample_bytes));
    if !has_memory {
        return Err(StartError::NoMemory);
    }
    hooks::prepare()?;

    let shift = clock::tick_shift();
    TICK_SHIFT.store(shift, Ordering::Relaxed);
    let header = new_file::header_of(&config, id, parent, shift);
    let file = new_file::open(&config)?;
    let store = Store::new(file, &header.to_bytes())
        .map_err(|error| StartError::Write(config.path.clone(), error))?;
    let number = N_SESSIONS.fetch_add(1, Ordering::Relaxed) + 1;
    let session: &'static Session = Box::leak(Box::new(Session {
        number,
        store,
        id,
        registry: Mutex::default(),
        n_streams: AtomicU32::new(1),
        lost: Default::default(),
        abandoned: AtomicBool::new(false),
        config,
    }));
    codes::reset(&codes::CODES);
    SESSION.store(std::ptr::from_ref(session).cast_mut(), Ordering::Release);
    session.note_clock();
    if session.config.mode.native {
        native::modules::reset();
    }
    if let Some(bytes) = resident::limit() {
        session.note(&Entry::Limit { bytes });
    }
    for (part, bytes) in ledger::at_start() {
        session.note(&Entry::Memory { part, bytes });
    }
    let checkpoints = session
        .config
        .mode
        .aggregate
        .then(|| Box::new(Checkpoints::new(session)));
    let keeper = match keeper::start(session, checkpoints) {
        Ok(keeper) => Keeper::Running(keeper),
        Err(error) => {
            SESSION.store(null_mut(), Ordering::Release);
            return Err(StartError::NoKeeper(error));
        }
    };
    ORDER.word.store(1 << TOKEN_BITS, Ordering::SeqCst);
    // SAFETY: the caller holds the GIL.
    unsafe {
        if interpreter::layout().is_some() {
            codes::watch_deaths(&symbols);
        }
        hooks::install(&symbols, &session.config.mode);
    }
    *running = Some(Running { keeper, symbols });
    Ok(warning)
}

/// Ends the recording: everything is as it was before, and the file is complete. `None` if nothing was recorded.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn stop() -> Option<Stopped> {
    let _unrecorded = threads::Unrecorded::begin();
    let running = LIFECYCLE.lock().take()?;
    let session = current()?;
    ORDER.word.store(0, Ordering::SeqCst);
    // SAFETY: the caller holds the GIL.
    unsafe {
        let is_traced = jobs::is_active();
        hooks::remove(&running.symbols, is_traced);
        if !is_traced {
            codes::stop_watching_deaths(&running.symbols);
        }
    }
    let all_quiet = wait_for_recording_threads();
    let checkpoints = match running.keeper {
        Keeper::Running(keeper) => keeper::stop(keeper),
        Keeper::Paused(checkpoints) => checkpoints,
    };
    if all_quiet {
        threads::for_each_state(|state| {
            // SAFETY: no thread records any more, and none can begin: the order word is 0.
            let state = unsafe { &mut *state };
            // The next session may sample at another rate: a distance drawn for this one would be wrong there.
            state.sampler.forget();
            if state.session == session.number {
                record::hand_over(state, session);
                state.session = 0;
            }
        });
        session.end(checkpoints);
    }
    let stopped = Stopped {
        path: session.config.path.clone(),
        abandoned: session.abandoned.load(Ordering::Acquire),
    };
    SESSION.store(null_mut(), Ordering::Release);
    codes::clear(&codes::CODES);
    native::modules::clear();
    if all_quiet {
        // SAFETY: as above; the keeper has ended, and the pointer is gone, so this is the last user.
        unsafe {
            session.store.unmap();
            drop(Box::from_raw(std::ptr::from_ref(session).cast_mut()));
        }
    }
    Some(stopped)
}

/// Ends the keeper for as long as Python forks: a program without threads of its own stays one, and is not warned.
pub fn pause_keeper() {
    let _unrecorded = threads::Unrecorded::begin();
    let mut lifecycle = LIFECYCLE.lock();
    let Some(running) = lifecycle.as_mut() else {
        return;
    };
    // One that a fork just before this has paused has left what it knew; that is kept.
    if matches!(running.keeper, Keeper::Paused(_)) {
        return;
    }
    if let Keeper::Running(keeper) = std::mem::replace(&mut running.keeper, Keeper::Paused(None)) {
        running.keeper = Keeper::Paused(keeper::stop(keeper));
        keeper::wait_until_gone();
    }
}

/// In the parent, after the fork.
pub fn resume_keeper() {
    let _unrecorded = threads::Unrecorded::begin();
    let mut lifecycle = LIFECYCLE.lock();
    let (Some(running), Some(session)) = (lifecycle.as_mut(), current()) else {
        return;
    };
    if let Keeper::Paused(checkpoints) = &mut running.keeper {
        match keeper::start(session, checkpoints.take()) {
            Ok(keeper) => running.keeper = Keeper::Running(keeper),
            Err(error) => abandon(&format!("no thread can be started ({error})")),
        }
    }
}

/// In a forked child: nothing is recorded here any more. The parent's session is leaked, file and mappings included:
/// they are shared with the parent, and closing them in order is the parent's business. `inherit` is told how the parent
/// recorded if its children are to be followed.
pub fn forget_after_fork(inherit: impl FnOnce(&Config, [u8; 16])) {
    let was_active = SESSION.swap(null_mut(), Ordering::AcqRel);
    ORDER.word.store(0, Ordering::SeqCst);
    // SAFETY: the child has a copy of the session, which nobody else in this process uses.
    let Some(session) = (unsafe { was_active.as_ref() }) else {
        return;
    };
    // Its keeper does not exist in this process.
    std::mem::forget(LIFECYCLE.lock().take());
    if session.config.mode.follow_fork && !session.abandoned.load(Ordering::Acquire) {
        inherit(&session.config, session.id);
    }
}

/// Waits until no thread is in the middle of recording. `false` if one does not come out: then its memory must stay.
pub fn wait_for_recording_threads() -> bool {
    const PATIENCE_NS: u64 = 2_000_000_000;
    if !sys::barrier_on_all_threads() {
        // Without the barrier a thread's mark may be invisible for as long as a store can linger in a processor.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let deadline = clock::monotonic_ns() + PATIENCE_NS;
    let mut all_quiet = true;
    threads::for_each_state(|state| {
        // SAFETY: states are never unmapped.
        let busy = unsafe { &(*state).busy };
        while busy.load(Ordering::Acquire) == RECORDING {
            if clock::monotonic_ns() > deadline {
                all_quiet = false;
                return;
            }
            std::thread::yield_now();
        }
    });
    all_quiet
}
