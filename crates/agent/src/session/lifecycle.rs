//! Starts and stops a recording, and pauses the keeper while the process forks.
//!
//! **Stopping.** A thread marks itself busy before it reads the order word. `stop` clears the word, runs a barrier on all
//! threads, and then waits for the busy ones. A thread that reads the word later finds zero. So after the wait no thread
//! writes, and the memory can be freed.
//!
//! Runs on: the thread that starts or stops (with the GIL). Allocates: bypassing the hooks. Locks: `LIFECYCLE`. During fork:
//! see [`super::fork`].

use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use heaptide_capture::identity::Facts;
use heaptide_capture::{Entry, Mode};

use super::{
    N_READERS, N_SESSIONS, ORDER, SESSION, Session, TICK_SHIFT, TOKEN_BITS, WantedMode, abandon,
    current,
};
use crate::cpython::Symbols;
use crate::cpython::interpreter;
use crate::file::checkpoint::Checkpoints;
use crate::file::store::Store;
use crate::file::{keeper, new_file};
use crate::host::locks::ForkMutex;
use crate::host::signals::TemporaryMask;
use crate::host::{bus_error, ledger, own_memory, own_thread, resident, sys};
use crate::record::threads::{self, RECORDING};
use crate::record::{self, clock, codes, sampler};
use crate::session::config::Config;
use crate::session::error::StartError;
use crate::session::fork;
use crate::{hooks, jobs, native};

/// `Some` while a recording runs. [`start`] holds the lock to its end; [`stop`] only takes the value.
pub(crate) static LIFECYCLE: ForkMutex<Option<Running>> = ForkMutex::new(None);

/// The part of a session that only start and stop need.
pub(crate) struct Running {
    keeper: Keeper,
    pub(super) symbols: Symbols,
}

enum Keeper {
    Running(own_thread::Handle),
    /// Stopped for the time of a fork. Holds the sums so far, if the capture is bounded.
    Paused(Option<Box<Checkpoints>>),
}

/// The result of a session that was stopped.
pub struct Stopped {
    pub path: PathBuf,
    /// The capture is incomplete; the reason was printed on standard error.
    pub abandoned: bool,
}

/// Starts recording. Returns a warning if only the Python stacks cannot be recorded.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn start(config: Config) -> Result<Option<String>, StartError> {
    let id = config.session.unwrap_or_else(new_file::new_session_id);
    // SAFETY: the caller holds the GIL.
    unsafe { start_as(config, id, std::os::unix::process::parent_id()) }
}

/// Continues the parent's session in a forked child, in a new file. Does nothing if the session does not follow forks.
/// `facts` are the run and the labels of the child.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn start_in_child(facts: Facts) -> Result<Option<String>, StartError> {
    let Some((mut config, id, parent)) = fork::take_inheritance() else {
        return Ok(None);
    };
    let mut path = config.path.into_os_string();
    path.push(format!(".{}", std::process::id()));
    config.path = path.into();
    config.overwrite = true;
    config.program.facts = facts;
    // SAFETY: the caller holds the GIL.
    unsafe { start_as(config, id, parent) }
}

/// Finds the interpreter's functions and its layout. Returns a warning if only the layout is unknown.
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

/// # Safety
/// The calling thread holds the GIL.
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
    let has_memory = own_memory::prepare_reserve() && sampler::prepare(config.mode.sample_bytes);
    if !has_memory {
        return Err(StartError::NoMemory);
    }
    hooks::prepare()?;

    let shift = clock::tick_shift();
    TICK_SHIFT.store(shift, Ordering::Relaxed);
    let header = new_file::header_of(&config, id, parent, shift);
    let header = header.to_bytes();
    let file = new_file::create(&config, &header)?;
    let _mask = TemporaryMask::without_bus_error();
    bus_error::install();
    let store = Store::new(file, &config.path, header.len()).map_err(|error| {
        bus_error::uninstall();
        StartError::Write(config.path.clone(), error)
    })?;
    let number = N_SESSIONS.fetch_add(1, Ordering::Relaxed) + 1;
    let session: &'static Session = Box::leak(Box::new(Session {
        number,
        store,
        id,
        registry: Mutex::default(),
        n_streams: AtomicU32::new(1),
        lost: Default::default(),
        abandoned: AtomicBool::new(false),
        has_jobs: AtomicBool::new(false),
        wanted_mode: WantedMode::new(config.mode),
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
    jobs::marks::prepare_session(session);
    let checkpoints = session
        .config
        .mode
        .aggregate
        .then(|| Box::new(Checkpoints::new(session)));
    let keeper = match keeper::start(session, checkpoints) {
        Ok(keeper) => Keeper::Running(keeper),
        Err(error) => {
            SESSION.store(null_mut(), Ordering::Release);
            bus_error::uninstall();
            return Err(StartError::NoKeeper(error));
        }
    };
    ORDER.word.store(1 << TOKEN_BITS, Ordering::SeqCst);
    // SAFETY: the caller holds the GIL.
    unsafe {
        if interpreter::layout().is_some() {
            codes::hook_deallocator(&symbols);
        }
        hooks::install(&symbols, &session.config.mode);
    }
    *running = Some(Running { keeper, symbols });
    Ok(warning)
}

/// Stops the recording, restores everything that it changed and completes the file. `None` if no recording is running.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn stop() -> Option<Stopped> {
    let _unrecorded = threads::Unrecorded::begin();
    let running = LIFECYCLE.lock().take()?;
    let session = current()?;
    let _mask = TemporaryMask::without_bus_error();
    ORDER.word.store(0, Ordering::SeqCst);
    // SAFETY: the caller holds the GIL.
    unsafe {
        let is_traced = jobs::is_active();
        hooks::remove(&running.symbols, is_traced);
        if !is_traced {
            codes::unhook_deallocator(&running.symbols);
        }
    }
    jobs::marks::end_session();
    let mut all_quiet = wait_for_recording_threads();
    let checkpoints = match running.keeper {
        Keeper::Running(keeper) => keeper::stop(keeper),
        Keeper::Paused(checkpoints) => checkpoints,
    };
    // After the swap no thread starts to count events that a failed recording drops. Some may still be counting.
    if !ORDER.dropped.swap(null_mut(), Ordering::SeqCst).is_null() {
        all_quiet &= wait_for_recording_threads();
    }
    if all_quiet {
        threads::for_each_state(|state| {
            // SAFETY: no thread records, and the order word is 0, so none uses the fields for recording again, except
            // `sampler`, which is atomic: a hook for sampled sessions uses it before it reads that word. A thread with
            // traced jobs may still use the field `jobs`, so this code makes no reference to the whole state.
            unsafe {
                // The next session may sample at another rate, for which a distance drawn in this one would be wrong.
                (*state).sampler.forget();
                if (*state).session == session.number {
                    record::hand_over_slot(state, session);
                    (*state).session = 0;
                }
            }
        });
        session.end(checkpoints);
    }
    let stopped = Stopped {
        path: session.config.path.clone(),
        abandoned: session.abandoned.load(Ordering::Acquire),
    };
    SESSION.store(null_mut(), Ordering::SeqCst);
    codes::clear(&codes::CODES);
    native::modules::clear();
    if all_quiet && wait_for_readers() {
        // SAFETY: no thread records or reads, the keeper has stopped, and `SESSION` is null: nothing else refers to the
        // session, which `start_as` leaked from a box.
        unsafe {
            session.store.unmap();
            drop(Box::from_raw(std::ptr::from_ref(session).cast_mut()));
        }
        bus_error::uninstall();
    }
    Some(stopped)
}

/// Stops the keeper before Python forks, so that Python does not warn about threads in a program that has none itself.
pub fn pause_keeper() {
    let _unrecorded = threads::Unrecorded::begin();
    let mut lifecycle = LIFECYCLE.lock();
    let Some(running) = lifecycle.as_mut() else {
        return;
    };
    // An earlier fork may have paused the keeper; then its sums must stay.
    if matches!(running.keeper, Keeper::Paused(_)) {
        return;
    }
    if let Keeper::Running(keeper) = std::mem::replace(&mut running.keeper, Keeper::Paused(None)) {
        running.keeper = Keeper::Paused(keeper::stop(keeper));
        keeper::wait_until_gone();
    }
}

/// Starts the keeper again in the parent, after the fork.
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

/// Stops recording in a forked child. The parent's session is leaked. The child closes and unmaps the capture, because
/// a process that has a capture open or mapped counts as recorded. The parent completes the capture. Calls `inherit`
/// with the parent's configuration and session if the session follows forks.
pub(crate) fn forget_after_fork(inherit: impl FnOnce(&Config, Mode, [u8; 16])) {
    let was_active = SESSION.swap(null_mut(), Ordering::AcqRel);
    ORDER.word.store(0, Ordering::SeqCst);
    ORDER.dropped.store(null_mut(), Ordering::SeqCst);
    // The readers were other threads of the parent.
    N_READERS.store(0, Ordering::SeqCst);
    // SAFETY: the pointer is null or the child's copy of the session, which is never freed in the child.
    let Some(session) = (unsafe { was_active.as_ref() }) else {
        return;
    };
    bus_error::replace_all_mappings();
    session.store.close_after_fork();
    keeper::forget_after_fork();
    jobs::marks::end_session();
    // Forgotten and not dropped: the keeper's thread does not exist in this process.
    std::mem::forget(LIFECYCLE.lock().take());
    if session.config.mode.follow_fork && !session.abandoned.load(Ordering::Acquire) {
        inherit(&session.config, session.current_mode().mode, session.id);
    }
}

/// Longest wait for other threads, which need microseconds unless they are stopped.
const MAX_WAIT_NS: u64 = 2_000_000_000;

/// Waits until no thread reads the session; `SESSION` is null, so none starts to. Returns `false` if one does not finish.
fn wait_for_readers() -> bool {
    let deadline = clock::monotonic_ns() + MAX_WAIT_NS;
    while N_READERS.load(Ordering::SeqCst) > 0 {
        if clock::monotonic_ns() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Waits until no thread is recording an event. Returns `false` if one does not finish: then the session must not be freed.
pub(crate) fn wait_for_recording_threads() -> bool {
    if !sys::barrier_on_all_threads() {
        // Without the barrier, another thread's mark becomes visible only when its processor completes the store.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let deadline = clock::monotonic_ns() + MAX_WAIT_NS;
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
