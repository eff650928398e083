//! One recording from start to stop, and the few words that every event looks at.
//!
//! ```text
//!            start                        stop
//!   idle ────────────► recording ────────────────────► idle
//!                          │ the file fails                ▲
//!                          └────────► abandoned ───────────┘
//! ```
//! Recording is on while the order word is not zero. It lies in a page that the kernel wipes in a forked child, so a
//! child stops recording by itself, however it was forked.
//!
//! **Stopping.** A thread marks itself busy before it looks at the order word; `stop` clears the word, puts a barrier
//! on all threads, and then waits for those that are busy. Whoever looks later sees zero. So after the wait nobody
//! writes, and the memory can go.
//!
//! Runs on: the thread that starts or stops (with the GIL), any thread (the rest). Allocates: past the hooks. Locks:
//! `LIFECYCLE`. During fork: see `fork.rs`.

use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use heaptide_capture::heap::RecordingPosition;
use heaptide_capture::{Entry, Lost};

use crate::checkpoint::Checkpoints;
use crate::clock::ClockPoint;
use crate::config::Config;
use crate::cpython::Symbols;
use crate::error::StartError;
use crate::locks::{ForkMutex, lock};
use crate::registry::RegistryStream;
use crate::store::Store;
use crate::threads::{self, RECORDING, ThreadState};
use crate::{
    clock, codes, fork, hooks, jobs, keeper, ledger, native, new_file, own_memory, own_thread,
    python, record, resident, sampler, sys,
};

/// Low bits of the order word: the thread that recorded last. The rest is its number in the order.
pub const TOKEN_BITS: u32 = 16;
pub const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;

/// A page of its own on every page size Linux has, because it is wiped as a whole in a child.
#[repr(C, align(65536))]
pub struct OrderPage {
    pub word: AtomicU64,
}

/// The word that every event looks at; 0 while nothing is recorded.
pub static ORDER: OrderPage = OrderPage {
    word: AtomicU64::new(0),
};
static TICK_SHIFT: AtomicU32 = AtomicU32::new(20);
static SESSION: AtomicPtr<Session> = AtomicPtr::new(null_mut());
static N_SESSIONS: AtomicU32 = AtomicU32::new(0);
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

pub struct Session {
    pub number: u32,
    pub store: Store,
    pub interval_ms: u32,
    pub config: Config,
    id: [u8; 16],
    registry: Mutex<RegistryStream>,
    n_streams: AtomicU32,
    /// By `Lost as usize`: counted since the last note in the file.
    lost: [AtomicU64; Lost::ALL.len() + 1],
    abandoned: AtomicBool,
}

/// What a session leaves when it stops.
pub struct Stopped {
    pub path: PathBuf,
    /// The capture is not complete, and the reason was said on standard error.
    pub abandoned: bool,
}

#[inline(always)]
pub fn is_active() -> bool {
    ORDER.word.load(Ordering::Relaxed) != 0
}

#[inline(always)]
pub fn tick_shift() -> u32 {
    TICK_SHIFT.load(Ordering::Relaxed)
}

/// The session, while it records and while it is being stopped.
#[inline]
pub fn current() -> Option<&'static Session> {
    // SAFETY: the pointer is null or a leaked box, freed by `stop` only after every recording thread was waited for.
    unsafe { SESSION.load(Ordering::Acquire).as_ref() }
}

/// Writes an entry into the registry of the present session.
pub fn note(entry: &Entry) {
    if let Some(session) = current() {
        session.note(entry);
    }
}

#[cold]
pub fn count_lost(reason: Lost, count: u64) {
    if let Some(session) = current() {
        session.lost[reason as usize].fetch_add(count, Ordering::Relaxed);
    }
}

#[cold]
#[inline(never)]
pub fn count_reentry() {
    if is_active() {
        count_lost(Lost::Reentered, 1);
    }
}

/// Gives up recording: the program goes on, the file keeps what it has, and one line says why.
pub fn abandon(reason: &str) {
    ORDER.word.store(0, Ordering::SeqCst);
    if let Some(session) = current() {
        if !session.abandoned.swap(true, Ordering::AcqRel) {
            sys::complain(&format!(
                "{reason}; the program goes on without being recorded"
            ));
        }
    }
}

/// Where the present session writes; `None` while nothing is recorded.
pub fn active_path() -> Option<PathBuf> {
    is_active()
        .then(|| current().map(|session| session.config.path.clone()))
        .flatten()
}

/// Takes a number in the order of events that no event has: what was recorded so far has smaller ones, what will be
/// recorded greater ones. `None` while nothing is recorded.
pub fn cut() -> Option<u64> {
    let mut word = ORDER.word.load(Ordering::Acquire);
    loop {
        if word == 0 {
            return None;
        }
        let cut = (word >> TOKEN_BITS) + 1;
        // No thread has the token 0, so every thread takes a new number before its next event.
        match ORDER.word.compare_exchange_weak(
            word,
            cut << TOKEN_BITS,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => return Some(cut),
            Err(now) => word = now,
        }
    }
}

/// This moment in the capture that is being written; `None` while nothing is recorded.
pub fn position() -> Option<RecordingPosition> {
    let _unrecorded = threads::Unrecorded::begin();
    let segment = cut()?;
    let config = &current()?.config;
    Some(RecordingPosition {
        path: config.path.to_string_lossy().into_owned(),
        objects: config.objects,
        segment,
    })
}

/// What names the present session in all its captures; `None` while nothing is recorded.
pub fn active_id() -> Option<[u8; 16]> {
    is_active().then(|| current().map(Session::id)).flatten()
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
    match unsafe { python::prepare(&symbols) } {
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
    if config.native && !native::IS_SUPPORTED {
        return Err(StartError::NoNativeStacks);
    }
    // SAFETY: the caller holds the GIL.
    let (symbols, warning) = unsafe { prepare_interpreter() }?;
    if !threads::prepare() {
        return Err(StartError::NoThreadKey);
    }
    fork::prepare();
    let has_memory = own_memory::prepare_reserve()
        && (config.sample_bytes == 0 || sampler::prepare(config.sample_bytes));
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
        interval_ms: config.interval_ms,
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
    if session.config.native {
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
        if python::layout().is_some() {
            codes::watch_deaths(&symbols);
        }
        let kind = if session.config.sample_bytes > 0 {
            hooks::Kind::Sampled
        } else {
            hooks::Kind::Exact
        };
        let objects = session.config.objects;
        hooks::install(&symbols, hooks::Recorded { kind, objects });
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
    if session.config.follow_fork && !session.abandoned.load(Ordering::Acquire) {
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

/// The calling thread ends; its chunk goes into the file.
///
/// # Safety
/// `state` is the calling thread's own, marked busy.
pub unsafe fn thread_ended(state: *mut ThreadState) {
    // The mark before the look, as for an event.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    if !is_active() {
        // If a stop is under way, it hands the chunk over; the session must not be touched any more.
        return;
    }
    // SAFETY: as the caller says.
    let state = unsafe { &mut *state };
    if let Some(session) = current() {
        if state.session == session.number {
            record::hand_over(state, session);
        }
    }
    state.session = 0;
}

/// A thread's name, told by whoever knows it.
pub fn name_thread(os_id: u32, name: &str) {
    let _unrecorded = threads::Unrecorded::begin();
    if let Some(session) = current() {
        if is_active() {
            session.name_thread(os_id, name);
        }
    }
}

impl Session {
    pub fn next_stream(&self) -> u32 {
        self.n_streams.fetch_add(1, Ordering::Relaxed)
    }

    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    pub fn note(&self, entry: &Entry) {
        lock(&self.registry).write(&self.store, entry);
    }

    pub fn announce_thread(&self, stream: u32, os_id: u32) {
        let time = clock::ticks() >> tick_shift();
        lock(&self.registry).announce_thread(&self.store, stream, os_id, time);
    }

    fn name_thread(&self, os_id: u32, name: &str) {
        lock(&self.registry).name_thread(&self.store, os_id, name);
    }

    pub fn note_clock(&self) {
        let ClockPoint {
            ticks,
            monotonic_ns,
            unix_ns,
        } = clock::point();
        self.note(&Entry::Clock {
            ticks,
            monotonic_ns,
            unix_ns,
        });
    }

    pub fn note_losses(&self) {
        for reason in Lost::ALL {
            let count = self.lost[reason as usize].swap(0, Ordering::Relaxed);
            if count > 0 {
                self.note(&Entry::Lost { reason, count });
            }
        }
    }

    /// The last entries, then everything into blocks.
    fn end(&self, checkpoints: Option<Box<Checkpoints>>) {
        self.note_losses();
        self.note_clock();
        self.note(&Entry::OwnMemory {
            bytes: own_memory::bytes() as u64 + self.store.mapped_bytes(),
        });
        for (part, bytes) in ledger::at_end(self.store.mapped_bytes()) {
            self.note(&Entry::Memory { part, bytes });
        }
        self.note(&Entry::End {
            time: clock::ticks() >> tick_shift(),
        });
        lock(&self.registry).hand_over(&self.store);
        if let Some(mut checkpoints) = checkpoints {
            checkpoints.make_last(self);
        }
        self.store.finish();
    }
}
