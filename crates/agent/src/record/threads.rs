//! What the agent keeps for each thread: its place in the file, its tables, its remembered stack.
//!
//! The thread's word (`tls.rs`) is a pointer to a [`ThreadState`], or one of three small numbers. States are never
//! freed, only used again: a thread that ends gives its state back, and a stale pointer can never dangle.
//!
//! ```text
//! word = 0 ── first event ──► state ── last round of thread-exit destructors ──► EXITED
//! word = OURS from the start: the keeper's own thread, which is never recorded
//! ```
//! Destructors of other libraries may allocate after ours ran, so ours asks to be called again until libc stops asking;
//! what comes later still is recorded through one shared state, whose `busy` field serves as its lock.
//!
//! Runs on: any thread. Allocates: whole pages from the kernel. Locks: `POOL` when a thread begins or ends. During
//! fork: `POOL` is held across it; in the child all states but the caller's return to the pool.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use heaptide_capture::Tables;

use crate::file::slot::Slot;
use crate::host::locks::ForkMutex;
use crate::host::own_memory;
use crate::host::sys;
use crate::jobs::ThreadMemory;
use crate::native::walk::NativeStack;
use crate::record::sampler::Sampler;
use crate::record::stack::Stack;
use crate::record::tls;
use crate::{jobs, session};

/// The thread is beyond its destructors.
const EXITED: usize = 1;
/// The thread is the agent's own.
const OURS: usize = 2;
const FIRST_POINTER: usize = 16;

/// Nobody records in this thread at the moment.
pub const IDLE: u32 = 0;
/// An event of the thread is being recorded; another one can only come from a signal handler.
pub const RECORDING: u32 = 1;
/// The thread is inside an allocator that is itself being recorded; what it asks of libc is part of that.
pub const NESTED: u32 = 2;

/// In the order word a thread is named by 16 bits.
const MAX_STATES: usize = 0xffff;
/// No thread has this token: the state has not joined the session yet.
pub const NO_TOKEN: u64 = u64::MAX;
/// libc runs thread-exit destructors in at most this many rounds.
const DESTRUCTOR_ROUNDS: u32 = 4;

/// Zero bytes are a valid, unused state.
#[repr(C)]
pub struct ThreadState {
    pub busy: AtomicU32,
    /// Events in the chunk being filled.
    pub n_events: u32,
    /// What the order word's low bits must be for this thread to go on writing; `NO_TOKEN` before it joined.
    pub token: u64,
    /// Where the next record goes; null before the first chunk.
    pub position: *mut u8,
    /// Beyond this a new chunk is needed before an event begins.
    pub limit: *mut u8,
    pub slot: Option<Slot>,
    /// The native stack, in a session that has them; null otherwise.
    pub native: *mut NativeStack,
    pub tables: Tables,
    pub sampler: Sampler,
    /// The session that `stream` belongs to; 0 is none.
    pub session: u32,
    pub stream: u32,
    /// Chunks begun in this session.
    pub n_chunks: u32,
    /// Place in `STATES`, and from 1 the thread's name in the order word.
    pub index: u32,
    os_id: u32,
    exit_rounds: u32,
    next_free: *mut ThreadState,
    pub jobs: ThreadMemory,
    /// Kept for the next session.
    pub native_memory: *mut NativeStack,
    pub stack: Stack,
}

/// Held while the pool below changes.
pub static POOL: ForkMutex<()> = ForkMutex::new(());
static FREE: AtomicPtr<ThreadState> = AtomicPtr::new(null_mut());
static N_STATES: AtomicUsize = AtomicUsize::new(0);
static STATES: [AtomicPtr<ThreadState>; MAX_STATES] =
    [const { AtomicPtr::new(null_mut()) }; MAX_STATES];
/// Shared by threads that are beyond their destructors.
static ORPHANS: AtomicPtr<ThreadState> = AtomicPtr::new(null_mut());
/// The pthread key whose destructor ends a thread, plus 1; 0 before it exists.
static EXIT_KEY: AtomicU32 = AtomicU32::new(0);

/// Begins recording an event of this thread: its state, marked busy; or null if nothing is to be recorded.
#[inline(always)]
pub fn enter() -> *mut ThreadState {
    let word = tls::get();
    if word < FIRST_POINTER {
        return enter_slowly(word);
    }
    let state = word as *mut ThreadState;
    // SAFETY: states are never unmapped, and this one belongs to this thread.
    let busy = unsafe { &(*state).busy };
    match busy.load(Ordering::Relaxed) {
        IDLE => {
            busy.store(RECORDING, Ordering::Relaxed);
            // Keeps the compiler from moving the look at the order word before the mark; `session::stop` makes
            // the processor keep it with a barrier on all threads.
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
            state
        }
        NESTED => null_mut(),
        _ => {
            session::count_reentry();
            null_mut()
        }
    }
}

/// Ends what [`enter`] began.
///
/// # Safety
/// `state` comes from `enter` on this thread and is not used afterwards.
#[inline(always)]
pub unsafe fn leave(state: *mut ThreadState) {
    // SAFETY: as the caller says.
    unsafe { &(*state).busy }.store(IDLE, Ordering::Release);
}

#[cold]
#[inline(never)]
fn enter_slowly(word: usize) -> *mut ThreadState {
    if word == OURS || !(session::is_active() || jobs::is_active()) {
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
                // SAFETY: no preconditions.
                unsafe { libc::sched_yield() };
            }
        }
        return state;
    }
    let state = take_state();
    if state.is_null() {
        session::count_lost(heaptide_capture::Lost::NoThreadState, 1);
        return state;
    }
    // Marked and in place before libc is asked for anything: `pthread_setspecific` may allocate.
    tls::set(state as usize);
    let key = EXIT_KEY.load(Ordering::Acquire);
    if key != 0 {
        // SAFETY: the key exists from the first session on and is never deleted.
        unsafe { libc::pthread_setspecific((key - 1) as libc::pthread_key_t, state.cast()) };
    }
    state
}

/// A state from the pool, busy, named, not in any session.
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
        // SAFETY: fresh zeroed memory of the right size and page alignment, not shared yet.
        unsafe { (*state).index = index as u32 };
        STATES[index].store(state, Ordering::Release);
        N_STATES.store(index + 1, Ordering::Release);
    } else {
        // SAFETY: a state in the free list belongs to the pool, whose lock we hold.
        FREE.store(unsafe { (*state).next_free }, Ordering::Relaxed);
    }
    // SAFETY: the state is ours now.
    unsafe {
        (*state).busy.store(RECORDING, Ordering::Relaxed);
        // Session and slot stay as they are: if the last owner ended while a stop was under way, the stop needs them.
        (*state).token = NO_TOKEN;
        (*state).exit_rounds = 0;
        (*state).os_id = sys::thread_id();
    }
    state
}

/// What a state really occupies: the deep end of its stack is untouched in most threads.
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
    // SAFETY: just taken, known to nobody else.
    unsafe { (*state).busy.store(IDLE, Ordering::Relaxed) };
    match ORPHANS.compare_exchange(null_mut(), state, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => state,
        Err(winner) => {
            give_back(state);
            winner
        }
    }
}

fn give_back(state: *mut ThreadState) {
    let _guard = POOL.lock();
    // SAFETY: the caller owns the state and lets go of it here.
    unsafe {
        (*state).next_free = FREE.load(Ordering::Relaxed);
        (*state).busy.store(IDLE, Ordering::Release);
    }
    FREE.store(state, Ordering::Relaxed);
}

/// Called by libc when a thread ends.
extern "C" fn on_thread_exit(state: *mut libc::c_void) {
    let _errno = sys::KeepErrno::now();
    let state: *mut ThreadState = state.cast();
    // SAFETY: the value of the key is the state of the thread that ends, which is this one.
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
    give_back(state);
}

/// Once per process, before the first session.
pub fn prepare() -> bool {
    if EXIT_KEY.load(Ordering::Acquire) != 0 {
        return true;
    }
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: `key` is a valid place; the destructor stays loaded for ever, as the library is never unloaded.
    let created = unsafe { libc::pthread_key_create(&mut key, Some(on_thread_exit)) } == 0;
    if created {
        EXIT_KEY.store(key as u32 + 1, Ordering::Release);
    }
    created
}

/// Declares the calling thread to be the agent's own, never to be recorded.
pub fn claim_as_ours() {
    tls::set(OURS);
}

/// The calling thread is not recorded from now on, though it may have been: it does our work until it ends.
pub fn leave_out_for_good() {
    std::mem::forget(Unrecorded::begin());
}

/// Calls `visit` for every state there ever was.
pub fn for_each_state(mut visit: impl FnMut(*mut ThreadState)) {
    for state in &STATES[..N_STATES.load(Ordering::Acquire)] {
        visit(state.load(Ordering::Acquire));
    }
}

/// Stops recording in this thread until the guard goes: for the agent's own work on a thread of the program.
pub struct Unrecorded {
    state: *mut ThreadState,
    before: u32,
}

impl Unrecorded {
    pub fn begin() -> Self {
        let word = tls::get();
        if word < FIRST_POINTER {
            if word == 0 {
                tls::set(OURS);
            }
            return Unrecorded {
                state: null_mut(),
                before: word as u32,
            };
        }
        let state = word as *mut ThreadState;
        // SAFETY: this thread's own state.
        let before = unsafe { &(*state).busy }.swap(NESTED, Ordering::Relaxed);
        Unrecorded { state, before }
    }
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        if self.state.is_null() {
            tls::set(self.before as usize);
        } else {
            // SAFETY: this thread's own state; guards do not leave their thread.
            unsafe { &(*self.state).busy }.store(self.before, Ordering::Relaxed);
        }
    }
}

/// Marks the time a thread spends inside an allocator that is recorded as a whole. A thread that
/// has not recorded yet gets its state first.
pub struct Nested(*mut ThreadState);

/// The calling thread's own state, made if there is none yet; null if it is not to be recorded.
#[inline(always)]
pub fn own_state() -> *mut ThreadState {
    let mut word = tls::get();
    if word == 0 {
        let state = enter();
        if !state.is_null() {
            // SAFETY: just entered on this thread.
            unsafe { leave(state) };
        }
        word = tls::get();
    }
    if word < FIRST_POINTER {
        return null_mut();
    }
    word as *mut ThreadState
}

impl Nested {
    #[inline(always)]
    pub fn begin() -> Self {
        let state = own_state();
        if state.is_null() {
            return Nested(state);
        }
        // SAFETY: this thread's own state.
        let busy = unsafe { &(*state).busy };
        if busy.load(Ordering::Relaxed) != IDLE {
            return Nested(null_mut());
        }
        busy.store(NESTED, Ordering::Relaxed);
        Nested(state)
    }
}

impl Drop for Nested {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: this thread's own state, marked by `begin`.
            unsafe { &(*self.0).busy }.store(IDLE, Ordering::Relaxed);
        }
    }
}

/// In the child only the calling thread exists: the states of all others return to the pool. `POOL` is held.
pub fn after_fork_in_child() {
    let own = tls::get() as *mut ThreadState;
    FREE.store(null_mut(), Ordering::Relaxed);
    ORPHANS.store(null_mut(), Ordering::Relaxed);
    for_each_state(|state| {
        // SAFETY: the threads that owned the other states do not exist in this process.
        unsafe {
            (*state).token = NO_TOKEN;
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

/// The state's thread by the operating system's number.
///
/// # Safety
/// `state` is a state.
pub unsafe fn os_id(state: *mut ThreadState) -> u32 {
    // SAFETY: as the caller says.
    unsafe { (*state).os_id }
}
