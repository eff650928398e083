//! One recording from start to stop, and the words that every event reads.
//!
//! ```text
//!            start                        stop
//!   idle ────────────► recording ────────────────────► idle
//!                          │ the file fails                ▲
//!                          └────────► abandoned ───────────┘
//! ```
//! Recording is on while the order word is not zero. The kernel wipes the page of that word in a forked child, so a child
//! stops recording, even if no fork handler ran.
//!
//! [`lifecycle`] starts and stops a recording.
//!
//! Runs on: any thread. Allocates: bypassing the hooks. Locks: the registry's. During fork: see [`fork`].

pub mod config;
pub mod error;
pub mod fork;
mod lifecycle;
mod mode;

use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use heaptide_capture::heap::RecordingPosition;
use heaptide_capture::{Entry, Lost};

pub(crate) use self::lifecycle::{LIFECYCLE, forget_after_fork, wait_for_recording_threads};
pub use self::lifecycle::{
    pause_keeper, prepare_interpreter, resume_keeper, start, start_in_child, stop,
};
pub(crate) use self::mode::{ModeEntry, WantedMode};
pub use self::mode::{active_mode, change_mode};
use crate::file::checkpoint::Checkpoints;
use crate::file::keeper;
use crate::file::registry::RegistryStream;
use crate::file::store::Store;
use crate::host::locks::lock;
use crate::host::{ledger, own_memory, sys};
use crate::record::clock::ClockPoint;
use crate::record::threads::{self, ThreadState};
use crate::record::{self, clock};
use crate::session::config::Config;

/// Number of low bits of the order word, which name the thread that recorded last. The other bits are a sequence number.
pub(crate) const TOKEN_BITS: u32 = 16;
pub(crate) const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;

/// Fills whole pages for every page size of Linux, because the kernel wipes whole pages in a child.
#[repr(C, align(65536))]
pub(crate) struct OrderPage {
    pub word: AtomicU64,
    /// After a recording failed: the counter of dropped events, in memory shared with its file. Null otherwise, and in a
    /// forked child, which must not count there.
    dropped: AtomicPtr<AtomicU64>,
}

/// The word that every event reads; 0 while nothing is recorded.
pub(crate) static ORDER: OrderPage = OrderPage {
    word: AtomicU64::new(0),
    dropped: AtomicPtr::new(null_mut()),
};
static TICK_SHIFT: AtomicU32 = AtomicU32::new(20);
static SESSION: AtomicPtr<Session> = AtomicPtr::new(null_mut());
static N_SESSIONS: AtomicU32 = AtomicU32::new(0);
/// Threads inside of [`read_active`].
static N_READERS: AtomicU32 = AtomicU32::new(0);

pub struct Session {
    pub number: u32,
    pub store: Store,
    /// The options at the start. `wanted_mode` has the current mode.
    pub config: Config,
    pub(crate) wanted_mode: WantedMode,
    id: [u8; 16],
    registry: Mutex<RegistryStream>,
    n_streams: AtomicU32,
    /// Losses since they were last written to the file, by `Lost as usize`.
    lost: [AtomicU64; Lost::ALL.len() + 1],
    abandoned: AtomicBool,
    /// Whether the file's version allows job marks.
    has_jobs: AtomicBool,
}

#[inline(always)]
pub(crate) fn is_active() -> bool {
    ORDER.word.load(Ordering::Relaxed) != 0
}

#[inline(always)]
pub(crate) fn tick_shift() -> u32 {
    TICK_SHIFT.load(Ordering::Relaxed)
}

/// The session, while it records and while it is being stopped. Only for threads that hold the GIL or record an event, for
/// the keeper, and inside of [`read_active`].
#[inline]
pub(crate) fn current() -> Option<&'static Session> {
    // SAFETY: the pointer is null or a leaked box. `stop`, which holds the GIL, frees the box only after the keeper has ended
    // and after it has waited for every recording thread and for every reader.
    unsafe { SESSION.load(Ordering::Acquire).as_ref() }
}

/// Calls `read` with the session if it records. For any thread, also without the GIL: `stop` waits for it.
fn read_active<R>(read: impl FnOnce(&Session) -> R) -> Option<R> {
    read_current(|session| is_active().then(|| read(session)))?
}

/// Calls `read` with the session, also if it has failed and `stop` has not been called since. For any thread.
fn read_current<R>(read: impl FnOnce(&Session) -> R) -> Option<R> {
    // Sequentially consistent, like the accesses in `stop`: either this finds no session, or `stop` finds the reader.
    N_READERS.fetch_add(1, Ordering::SeqCst);
    let session = SESSION.load(Ordering::SeqCst);
    // SAFETY: null, or a session that `stop` does not free before this reader has left.
    let session = unsafe { session.as_ref() };
    let result = session.map(read);
    N_READERS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Writes an entry into the registry of the current session.
pub(crate) fn note(entry: &Entry) {
    if let Some(session) = current() {
        session.note(entry);
    }
}

/// Counts losses of the current session. Only for threads that may call [`current`].
#[cold]
pub(crate) fn count_lost(reason: Lost, count: u64) {
    if let Some(session) = current() {
        session.lost[reason as usize].fetch_add(count, Ordering::Relaxed);
    }
}

/// Counts an event of a thread that has no state. Such a thread is never busy, so it must not use [`current`].
#[cold]
pub(crate) fn count_without_state() {
    read_current(|session| {
        session.lost[Lost::NoThreadState as usize].fetch_add(1, Ordering::Relaxed)
    });
}

/// Whether a recording has failed and its program still runs.
pub(crate) fn is_dropping() -> bool {
    !ORDER.dropped.load(Ordering::Relaxed).is_null()
}

/// Counts an event that cannot be recorded because the recording has failed. The state of the calling thread is busy.
#[cold]
pub(crate) fn count_dropped() {
    // SAFETY: the address is null or that of the counter in the current session's file. `stop` makes it null and waits for
    // busy threads before it unmaps the file.
    if let Some(counter) = unsafe { ORDER.dropped.load(Ordering::Acquire).as_ref() } {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cold]
#[inline(never)]
pub(crate) fn count_reentry() {
    if is_active() {
        count_lost(Lost::Reentered, 1);
    }
}

/// Stops writing: the program continues, the file keeps its content and gets a mark, and one line on standard error reports
/// the reason.
pub(crate) fn abandon(reason: &str) {
    let session = current().filter(|session| !session.abandoned.swap(true, Ordering::AcqRel));
    let mark = session.and_then(|session| session.store.stop_mark());
    // While the recording stops, all events are in the file, and blocks may already lie where the mark was.
    if let Some(mark) = mark.filter(|_| is_active()) {
        mark.write(clock::ticks() >> tick_shift(), reason);
        // Before the word: the first event that finds no recording must be counted.
        ORDER.dropped.store(mark.n_dropped(), Ordering::Release);
    }
    ORDER.word.store(0, Ordering::SeqCst);
    if session.is_some() {
        sys::warn(&format!(
            "{reason}; the program continues without being recorded"
        ));
    }
}

/// Ends the recording after an access to the capture's memory has failed; the keeper reports it. Runs in a signal handler.
pub(crate) fn end_after_fault() {
    ORDER.word.store(0, Ordering::SeqCst);
    keeper::wake();
}

/// The path of the current capture; `None` while nothing is recorded.
pub fn active_path() -> Option<PathBuf> {
    read_active(|session| session.config.path.clone())
}

/// Whether the recording has failed and still holds its file and its hooks, because [`stop`] has not been called since.
pub fn has_failed() -> bool {
    read_current(|session| session.abandoned.load(Ordering::Acquire)).unwrap_or(false)
}

/// The number of the current session, counted from the first one of this process and of those it was forked from; `None`
/// while nothing is recorded. The caller holds the GIL.
pub fn active_number() -> Option<u32> {
    is_active()
        .then(|| current().map(|session| session.number))
        .flatten()
}

/// Takes a sequence number that no event has: earlier events have smaller ones, later events have greater ones. `None` while
/// nothing is recorded.
pub(crate) fn cut() -> Option<u64> {
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

/// The current position in the capture that is being written; `None` while nothing is recorded.
pub fn position() -> Option<RecordingPosition> {
    let _unrecorded = threads::Unrecorded::begin();
    let segment = cut()?;
    let session = current()?;
    Some(RecordingPosition {
        path: session.config.path.to_string_lossy().into_owned(),
        objects: session.current_mode().mode.objects,
        segment,
    })
}

/// The identifier of the current session, which all its captures share; `None` while nothing is recorded.
pub fn active_id() -> Option<[u8; 16]> {
    read_active(Session::id)
}

/// Hands the chunk of the calling thread over to the keeper, because the thread ends.
///
/// # Safety
/// `state` is the calling thread's own, marked busy.
pub(crate) unsafe fn thread_ended(state: *mut ThreadState) {
    // The state is marked busy before the order word is read, as for an event.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    if !is_active() {
        // If `stop` is running, it hands the chunk over, and the session must not be used here any more.
        return;
    }
    // SAFETY: the caller promises that the state belongs to this thread, and a busy state is used by its thread alone.
    let state = unsafe { &mut *state };
    if let Some(session) = current() {
        if state.session == session.number {
            record::hand_over(state, session);
        }
    }
    state.session = 0;
}

/// Records the name of a thread.
pub fn name_thread(os_id: u32, name: &str) {
    let _unrecorded = threads::Unrecorded::begin();
    if let Some(session) = current() {
        if is_active() {
            session.name_thread(os_id, name);
        }
    }
}

/// Records a label of the process that was set after the recording began.
pub fn set_label(key: &str, value: &str) {
    let _unrecorded = threads::Unrecorded::begin();
    if let Some(session) = current() {
        if is_active() {
            session.note(&Entry::Label {
                key: key.as_bytes(),
                value: value.as_bytes(),
            });
        }
    }
}

impl Session {
    pub(crate) fn next_stream(&self) -> u32 {
        self.n_streams.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn current_mode(&self) -> &'static ModeEntry {
        self.wanted_mode.get()
    }

    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// Raises the version of the file before its first job mark: a reader that does not know the mark would stop there.
    pub(crate) fn mark_version_with_jobs(&self) {
        if !self.has_jobs.swap(true, Ordering::AcqRel) {
            self.store.raise_version();
        }
    }

    pub(crate) fn note(&self, entry: &Entry) {
        lock(&self.registry).write(&self.store, entry);
    }

    pub(crate) fn announce_thread(&self, stream: u32, os_id: u32) {
        let time = clock::ticks() >> tick_shift();
        lock(&self.registry).announce_thread(&self.store, stream, os_id, time);
    }

    fn name_thread(&self, os_id: u32, name: &str) {
        lock(&self.registry).name_thread(&self.store, os_id, name);
    }

    pub(crate) fn note_clock(&self) {
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

    pub(crate) fn note_losses(&self) {
        for reason in Lost::ALL {
            let count = self.lost[reason as usize].swap(0, Ordering::Relaxed);
            if count > 0 {
                self.note(&Entry::Lost { reason, count });
            }
        }
    }

    /// Writes the last entries and completes the file.
    fn end(&self, checkpoints: Option<Box<Checkpoints>>) {
        self.note_losses();
        self.note_clock();
        self.note(&Entry::OwnMemory {
            bytes: own_memory::bytes() as u64 + self.store.mapped_bytes(),
        });
        for (part, bytes) in ledger::at_end(&self.store.mapped_ranges()) {
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
