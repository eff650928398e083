//! The state of each thread: its position in the file, its tables, its remembered stack.
//!
//! The thread's word ([`tls`]) is a pointer to a [`ThreadState`], or one of four small numbers. States are never freed, only
//! reused: a thread that ends returns its state to the pool, so a stale pointer never dangles.
//!
//! ```text
//! word = 0 ── first event ──► state ── last round of thread-exit destructors ──► EXITED
//! word = 0 ── Unrecorded ──► PAUSED ── its end ──► 0
//! word = OWN from the start: one of Heaptide's own threads ── first OwnPython in a recording ──► state
//! ```
//! [`guards`] exclude events of Heaptide's own code.
//!
//! Destructors of other libraries may allocate after Heaptide's destructor has run. Heaptide's destructor therefore
//! requests another call in every round that the C library allows. Later events are recorded through one shared state,
//! whose `busy` field is its lock.
//!
//! Runs on: any thread. Allocates: whole pages from the kernel. Locks: `POOL` when a thread begins or ends. During
//! fork: `POOL` is held across it; in the child all states but the caller's return to the pool.

mod guards;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use heaptide_capture::Tables;

use crate::file::slot::Slot;
use crate::host::locks::ForkMutex;
use crate::host::own_memory;
use crate::host::sys;
use crate::jobs::chain::Chain;
use crate::jobs::events::ThreadMemory;
use crate::native::walk::NativeStack;
use crate::record::job_marks::ThreadJob;
use crate::record::own_blocks::OwnBlocks;
use crate::record::sampler::Sampler;
use crate::record::stack::Stack;
use crate::record::tls;
use crate::{jobs, session};

pub(crate) use guards::Nested;
pub use guards::{OwnPython, Unrecorded};

/// The thread's destructors have run.
const EXITED: usize = 1;
/// The thread is one of Heaptide's own.
const OWN: usize = 2;
/// The thread has no state, and its events are excluded for now.
const PAUSED: usize = 3;
const FIRST_POINTER: usize = 16;

/// The thread is not recording an event.
pub(crate) const IDLE: u32 = 0;
/// The thread is recording an event. Only a signal handler can cause another one now.
pub(crate) const RECORDING: u32 = 1;
/// The thread is inside an allocator whose blocks are recorded; its calls to the C library are part of the same allocation.
/// Also while Rust code of Heaptide works on the thread.
pub(crate) const NESTED: u32 = 2;
/// Python code of Heaptide runs on the thread: only releases of the program's blocks are recorded.
const OWN_PYTHON: u32 = 3;
/// The thread is one of Heaptide's own, and no Python code runs on it.
const AT_REST: u32 = 4;

/// The order word names a thread with 16 bits.
const MAX_STATES: usize = 0xffff;
/// Fills an entry of [`ThreadState::tokens`] that has no token. It never equals bits of the order word, so hooks take
/// the slow path.
pub(crate) const NO_TOKEN: u64 = u64::MAX;
/// The C library runs thread-exit destructors in at most this many rounds.
const DESTRUCTOR_ROUNDS: u32 = 4;

/// Zero bytes are a valid, unused state.
#[repr(C)]
pub(crate) struct ThreadState {
    pub busy: AtomicU32,
    /// Events in the chunk being filled.
    pub n_events: u32,
    /// The low bits of the order word while this thread is the one that recorded last. One entry for each class of hooks,
    /// `EXACT` and `SAMPLED`: only the class of the mode that the thread has adopted has the token, the other `NO_TOKEN`. Both
    /// are `NO_TOKEN` before the thread joins a session.
    pub tokens: [u64; 2],
    /// The address of the next record; null before the first chunk.
    pub position: *mut u8,
    /// From this position on, a new chunk is needed before an event begins.
    pub limit: *mut u8,
    pub slot: Option<Slot>,
    /// The native stack, in a session that records native frames; null otherwise.
    pub native: *mut NativeStack,
    /// The job of the last record in the chunk.
    pub job: ThreadJob,
    pub tables: Tables,
    pub sampler: Sampler,
    /// Number of the mode that this thread has adopted.
    pub mode: u32,
    /// The session that `stream` belongs to; 0 is none.
    pub session: u32,
    pub stream: u32,
    /// Chunks begun in this session.
    pub n_chunks: u32,
    /// Index in `STATES`. The thread's token in the order word is this plus 1.
    pub index: u32,
    /// The operating system's ID of the thread.
    pub os_id: u32,
    exit_rounds: u32,
    /// The program has blocked SIGBUS in this thread; see [`crate::host::signals`].
    pub blocks_bus_error: AtomicBool,
    next_free: *mut ThreadState,
    pub jobs: ThreadMemory,
    /// The memory that `native` points to, kept for later sessions that record native frames.
    pub native_memory: *mut NativeStack,
    pub own_blocks: OwnBlocks,
    pub stack: Stack,
    /// The stack as of the thread's last event in a traced job.
    pub chain: Chain,
}

/// Held while the pool below changes.
pub(crate) static POOL: ForkMutex<()> = ForkMutex::new(());
static FREE: AtomicPtr<ThreadState> = AtomicPtr::new(null_mut());
static N_STATES: AtomicUsize = AtomicUsize::new(0);
static STATES: [AtomicPtr<ThreadState>; MAX_STATES] =
    [const { AtomicPtr::new(null_mut()) }; MAX_STATES];
/// The state that threads share after their destructors have run.
static ORPHANS: AtomicPtr<ThreadState> = AtomicPtr::new(null_mut());
/// The pthread key whose destructor ends a thread, plus 1; 0 before it exists.
static EXIT_KEY: AtomicU32 = AtomicU32::new(0);

/// Whether an event must be recorded.
pub(crate) enum Entered {
    /// Yes. The state is busy until [`leave`].
    Recording(*mut ThreadState),
    /// Only if it releases a block of the program: see [`while_recording`].
    OwnPython(*mut ThreadState),
    No,
}

/// Begins an event: marks this thread's state busy and returns it. Returns null if the event must not be recorded. Also
/// returns null while Python code of Heaptide runs; for releases, which are recorded then, see [`enter_any`].
#[inline(always)]
pub(crate) fn enter() -> *mut ThreadState {
    match enter_any() {
        Entered::Recording(state) => state,
        Entered::OwnPython(_) | Entered::No => null_mut(),
    }
}

/// Begins an event, as [`enter`] does, and distinguishes events during Heaptide's own work.
#[inline(always)]
pub(crate) fn enter_any() -> Entered {
    let word = tls::get();
    if word < FIRST_POINTER {
        let state = enter_slowly(word);
        return match state.is_null() {
            true => Entered::No,
            false => Entered::Recording(state),
        };
    }
    let state = word as *mut ThreadState;
    // SAFETY: a word that is not a small number points to this thread's state, and states are never unmapped.
    let busy = unsafe { &(*state).busy };
    // Two comparisons, because the compiler would turn a `match` into a jump table, which costs more.
    let now = busy.load(Ordering::Relaxed);
    if now == IDLE {
        busy.store(RECORDING, Ordering::Relaxed);
        // Keeps the compiler from moving the load of the order word before this store. `session::stop` makes the
        // processor keep the order with a barrier on all threads.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        return Entered::Recording(state);
    }
    if now == NESTED {
        return Entered::No;
    }
    if is_own_python(now) {
        return Entered::OwnPython(state);
    }
    Entered::No
}

/// Whether Python code of Heaptide runs on a thread, given its `busy`. Counts an event that interrupted another one.
#[cold]
#[inline(never)]
fn is_own_python(now: u32) -> bool {
    if now == RECORDING {
        session::count_reentry();
    }
    now == OWN_PYTHON
}

/// Calls `work` with the state of a thread on which Python code of Heaptide runs, marked busy.
///
/// # Safety
/// `state` comes from [`Entered::OwnPython`] on this thread.
pub(crate) unsafe fn while_recording<R>(
    state: *mut ThreadState,
    work: impl FnOnce(*mut ThreadState) -> R,
) -> R {
    // SAFETY: states are never unmapped.
    let busy = unsafe { &(*state).busy };
    busy.store(RECORDING, Ordering::Relaxed);
    // As in `enter_any`.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    let result = work(state);
    busy.store(OWN_PYTHON, Ordering::Release);
    result
}

/// Ends the event that [`enter`] began.
///
/// # Safety
/// `state` comes from `enter` on this thread and is not used afterwards.
#[inline(always)]
pub(crate) unsafe fn leave(state: *mut ThreadState) {
    // SAFETY: `enter` returned a state, and states are never unmapped.
    unsafe { &(*state).busy }.store(IDLE, Ordering::Release);
}

#[cold]
#[inline(never)]
fn enter_slowly(word: usize) -> *mut ThreadState {
    if matches!(word, OWN | PAUSED) || !is_needed() {
        return null_mut();
    }
    let _errno = sys::KeepErrno::now();
    if word == EXITED {
        let state = orphans();
        if !state.is_null() {
            // SAFETY: states are never unmapped.
            let busy = unsafe { &(*state).busy };
            while busy
                .compare_exchange(IDLE, RECORDING, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                // SAFETY: `sched_yield` has no preconditions.
                unsafe { libc::sched_yield() };
            }
        }
        return state;
    }
    first_state()
}

/// Whether events are wanted, or counted as dropped.
fn is_needed() -> bool {
    session::is_active() || session::is_dropping() || jobs::is_active()
}

/// Takes a state for the calling thread, busy, and keeps it until the thread ends. Null if there is no memory for one.
fn first_state() -> *mut ThreadState {
    let state = take_state();
    if state.is_null() {
        session::count_without_state();
        return state;
    }
    // The state is busy and stored before the call below, because `pthread_setspecific` may allocate.
    tls::set(state as usize);
    let key = EXIT_KEY.load(Ordering::Acquire);
    if key != 0 {
        // SAFETY: `prepare` created the key, and nothing deletes it.
        unsafe { libc::pthread_setspecific((key - 1) as libc::pthread_key_t, state.cast()) };
    }
    state
}

/// Takes a state from the pool: busy, with this thread's ID, in no session. Null if there is no memory for one.
fn take_state() -> *mut ThreadState {
    let _guard = POOL.lock();
    let mut state = FREE.load(Ordering::Relaxed);
    if state.is_null() {
        let index = N_STATES.load(Ordering::Relaxed);
        if index >= MAX_STATES {
            return null_mut();
        }
        state = sys::map_private(size_of::<ThreadState>()).cast();
        if state.is_null() {
            return null_mut();
        }
        own_memory::add(THREAD_STATE_TOUCHED);
        // SAFETY: fresh zeroed memory of the right size and page alignment, which no other thread knows yet.
        unsafe { (*state).index = index as u32 };
        STATES[index].store(state, Ordering::Release);
        N_STATES.store(index + 1, Ordering::Release);
    } else {
        // SAFETY: a state in the free list belongs to the pool, whose lock this thread holds.
        FREE.store(unsafe { (*state).next_free }, Ordering::Relaxed);
    }
    // SAFETY: the state is out of the pool, so it belongs to this thread alone.
    unsafe {
        (*state).busy.store(RECORDING, Ordering::Relaxed);
        // Session and slot stay unchanged: if the last owner ended during a stop, that stop still needs them.
        (*state).tokens = [NO_TOKEN; 2];
        (*state).exit_rounds = 0;
        (*state).blocks_bus_error.store(false, Ordering::Relaxed);
        (*state).os_id = sys::thread_id();
    }
    state
}

/// Bytes of a state that most threads use; the rest is only for deep stacks.
const THREAD_STATE_TOUCHED: usize = 24 * 1024;

fn orphans() -> *mut ThreadState {
    let state = ORPHANS.load(Ordering::Acquire);
    if !state.is_null() {
        return state;
    }
    let state = take_state();
    if state.is_null() {
        return state;
    }
    // SAFETY: `take_state` has just given this state to this thread alone.
    unsafe { (*state).busy.store(IDLE, Ordering::Relaxed) };
    match ORPHANS.compare_exchange(null_mut(), state, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => state,
        Err(winner) => {
            return_to_pool(state);
            winner
        }
    }
}

fn return_to_pool(state: *mut ThreadState) {
    let _guard = POOL.lock();
    // SAFETY: both callers own the state and do not use it after this call.
    unsafe {
        (*state).next_free = FREE.load(Ordering::Relaxed);
        (*state).busy.store(IDLE, Ordering::Release);
    }
    FREE.store(state, Ordering::Relaxed);
}

/// The C library calls this when a thread ends.
extern "C" fn on_thread_exit(state: *mut libc::c_void) {
    let _errno = sys::KeepErrno::now();
    let state: *mut ThreadState = state.cast();
    // SAFETY: `first_state` stored this thread's own state under the key.
    unsafe {
        (*state).exit_rounds += 1;
        if (*state).exit_rounds < DESTRUCTOR_ROUNDS {
            let key = EXIT_KEY.load(Ordering::Relaxed);
            libc::pthread_setspecific((key - 1) as libc::pthread_key_t, state.cast());
            return;
        }
        (*state).busy.store(RECORDING, Ordering::Relaxed);
        session::thread_ended(state);
    }
    tls::set(EXITED);
    return_to_pool(state);
}

/// Creates the key whose destructor ends a thread, once per process. Returns `false` if the process has no keys left.
pub fn prepare() -> bool {
    if EXIT_KEY.load(Ordering::Acquire) != 0 {
        return true;
    }
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: `key` is a live variable, and the destructor stays loaded, because this library is never unloaded.
    let created = unsafe { libc::pthread_key_create(&mut key, Some(on_thread_exit)) } == 0;
    if created {
        EXIT_KEY.store(key as u32 + 1, Ordering::Release);
    }
    created
}

/// Declares the calling thread, which has just started, to be one of Heaptide's own: its allocations are never recorded.
pub(crate) fn claim_as_own() {
    tls::set(OWN);
}

/// Stops recording the calling thread, which works for Heaptide until it ends. Releases of the program's blocks stay
/// recorded.
pub fn leave_out_for_good() {
    if tls::get() == 0 {
        claim_as_own();
    }
    std::mem::forget(OwnPython::begin());
}

/// Calls `visit` for every state that was ever created.
pub(crate) fn for_each_state(mut visit: impl FnMut(*mut ThreadState)) {
    for state in &STATES[..N_STATES.load(Ordering::Acquire)] {
        visit(state.load(Ordering::Acquire));
    }
}

/// The calling thread's state, taken from the pool if it has none yet; null if the thread is not recorded.
#[inline(always)]
pub(crate) fn own_state() -> *mut ThreadState {
    let mut word = tls::get();
    if word == 0 {
        let state = enter();
        if !state.is_null() {
            // SAFETY: `enter` has just returned this state on this thread.
            unsafe { leave(state) };
        }
        word = tls::get();
    }
    if word < FIRST_POINTER {
        return null_mut();
    }
    word as *mut ThreadState
}

/// The calling thread's state; null if it has none.
#[inline(always)]
pub(crate) fn existing_state() -> *mut ThreadState {
    match tls::get() {
        word if word < FIRST_POINTER => null_mut(),
        word => word as *mut ThreadState,
    }
}

/// Returns the states of all other threads to the pool in a forked child, where only the calling thread exists. The caller
/// holds `POOL`.
pub(crate) fn after_fork_in_child() {
    let own = tls::get() as *mut ThreadState;
    FREE.store(null_mut(), Ordering::Relaxed);
    ORPHANS.store(null_mut(), Ordering::Relaxed);
    for_each_state(|state| {
        // SAFETY: states are never unmapped, and the threads that owned the other ones do not exist in this process.
        unsafe {
            (*state).tokens = [NO_TOKEN; 2];
            (*state).session = 0;
            (*state).slot = None;
            (*state).position = null_mut();
            (*state).limit = null_mut();
            if state == own {
                (*state).os_id = sys::thread_id();
            } else {
                (*state).busy.store(IDLE, Ordering::Relaxed);
                (*state).next_free = FREE.load(Ordering::Relaxed);
                FREE.store(state, Ordering::Relaxed);
            }
        }
    });
}
