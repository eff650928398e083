//! Accounts of jobs: which job allocated which live block, and where.
//!
//! While jobs are traced, every live block that was allocated since stands in one table with its
//! size, the job it was allocated for ([`context`]) and, if there is one, the stack ([`sites`]). A job's account says at any
//! moment how many bytes of its own are alive, and how many bytes that earlier jobs had left it released: what it left behind
//! is the difference, so a job that replaces a cache's entry by one of equal size leaves nothing.
//!
//! ```text
//! hook → which job? → allocation: table[address] = (size, job, stack), account.kept += size
//!                   → release:    owner's account.kept −= size; if the owner is over: own account.released += size
//! ```
//! The hooks are compiled for this kind of work separately (`hooks::HookMode::Jobs`), so recording alone pays nothing for it. If a
//! recording runs as well, these hooks write for both (`hooks::job_events`); either may begin and end first.
//!
//! Runs on: any thread. Allocates: past the hooks. Locks: `ACCOUNTS`, for each event; held across a fork. During
//! fork: a child goes on with a copy.

pub mod accounts;
pub mod objects;
pub mod rest;
pub mod sites;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use heaptide_capture::Allocator;

use crate::cpython::Symbols;
use crate::cpython::{context, interpreter};
use crate::hooks;
use crate::host::locks::ForkMutex;
use crate::host::own_memory;
use crate::record::codes;
use crate::record::threads::{self, ThreadState, Unrecorded};
use crate::session::error::StartError;
use crate::session::fork;
use crate::session::{self, LIFECYCLE};

pub use accounts::{Accounts, Block};

/// No job.
pub const NOBODY: u32 = 0;

/// Everything that is known of jobs, while they are traced.
pub static ACCOUNTS: ForkMutex<Option<Box<Accounts>>> = ForkMutex::new(None);
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// The context variable whose values are the tokens of jobs.
static VARIABLE: AtomicUsize = AtomicUsize::new(0);
/// Moves when a job begins or ends: then every thread looks anew whose it is.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// What a thread remembers between two events. Zero bytes are a valid beginning.
#[repr(C)]
pub struct ThreadMemory {
    context: usize,
    variables: usize,
    job: u32,
    generation: u32,
    /// Where contexts cannot be read: the job that began on this thread.
    thread_job: u32,
    /// How many allocators of Python's the thread is inside of whose own doings are not looked at.
    n_away: u32,
    /// Whether what the thread released last is in a capture.
    is_noted: u32,
    /// What the thread released last, for a release that then did not happen, and for a block that is made longer.
    released: Released,
}

/// In words for which zero bytes are valid.
#[repr(C)]
#[derive(Clone, Copy)]
struct Released {
    address: usize,
    size: usize,
    job: u32,
    site: u32,
    number: u32,
    /// Nothing, a block that was not in the table, or one that was.
    what: u32,
    allocator: u32,
}

const NOTHING: u32 = 0;
const UNKNOWN_BLOCK: u32 = 1;
const KNOWN_BLOCK: u32 = 2;

impl Released {
    const NOTHING: Released = Released {
        address: 0,
        size: 0,
        job: 0,
        site: 0,
        number: 0,
        what: NOTHING,
        allocator: 0,
    };

    fn new(address: usize, block: Option<Block>) -> Released {
        match block {
            None => Released {
                address,
                what: UNKNOWN_BLOCK,
                ..Released::NOTHING
            },
            Some(block) => Released {
                address,
                size: block.size,
                job: block.job,
                site: block.site,
                number: block.number,
                what: KNOWN_BLOCK,
                allocator: block.allocator as u32,
            },
        }
    }

    fn known_block(&self) -> Option<Block> {
        (self.what == KNOWN_BLOCK).then_some(Block {
            size: self.size,
            job: self.job,
            site: self.site,
            number: self.number,
            allocator: Allocator::from_number(self.allocator as u8)?,
        })
    }
}

#[inline(always)]
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Whether the accounts are kept, and look at what this thread does.
///
/// # Safety
/// `state` comes from `threads::enter` on this thread.
#[inline]
pub unsafe fn looks(state: *mut ThreadState) -> bool {
    // SAFETY: a busy state is used by its thread alone.
    is_active() && unsafe { (*state).jobs.n_away } == 0
}

/// Keeps in mind whether the release that is about to happen was written into a capture.
///
/// # Safety
/// As [`looks`].
pub unsafe fn remember_noted(state: *mut ThreadState, is_noted: bool) {
    // SAFETY: as in `looks`.
    unsafe { (*state).jobs.is_noted = u32::from(is_noted) };
}

/// # Safety
/// As [`looks`].
pub unsafe fn is_noted(state: *mut ThreadState) -> bool {
    // SAFETY: as in `looks`.
    unsafe { (*state).jobs.is_noted != 0 }
}

/// For so long the accounts do not look at what this thread does.
pub struct LookAway(*mut ThreadState);

impl LookAway {
    pub fn begin() -> LookAway {
        let state = threads::own_state();
        if !state.is_null() {
            // SAFETY: this thread's own state, which nobody else touches here.
            unsafe { (*state).jobs.n_away += 1 };
        }
        LookAway(state)
    }
}

impl Drop for LookAway {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: as in `begin`; the thread has kept its state meanwhile.
            unsafe { (*self.0).jobs.n_away -= 1 };
        }
    }
}

/// Begins to trace jobs; the value of `variable`, a context variable, says which. A sentence is returned if Python stacks
/// cannot be read.
///
/// # Safety
/// The calling thread holds the GIL, and the variable lives until [`stop`].
pub unsafe fn start(variable: usize) -> Result<Option<String>, StartError> {
    let _unrecorded = Unrecorded::begin();
    let _running = LIFECYCLE.lock();
    if is_active() {
        return Err(StartError::JobsAreTraced);
    }
    // SAFETY: the caller holds the GIL.
    let (symbols, warning) = unsafe { session::prepare_interpreter() }?;
    if !threads::prepare() {
        return Err(StartError::NoThreadKey);
    }
    fork::prepare();
    if !own_memory::prepare_reserve() {
        return Err(StartError::NoMemory);
    }
    hooks::prepare()?;
    codes::reset(&codes::JOB_CODES);
    *ACCOUNTS.lock() = Some(Box::default());
    VARIABLE.store(variable, Ordering::Release);
    GENERATION.fetch_add(1, Ordering::AcqRel);
    ACTIVE.store(true, Ordering::SeqCst);
    // SAFETY: the caller holds the GIL.
    unsafe {
        if interpreter::layout().is_some() {
            codes::hook_deallocator(&symbols);
        }
        hooks::install_for_jobs(&symbols);
    }
    Ok(warning)
}

/// Ends it, and forgets everything.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn stop() {
    let _unrecorded = Unrecorded::begin();
    let running = LIFECYCLE.lock();
    if !ACTIVE.swap(false, Ordering::SeqCst) {
        return;
    }
    let is_recorded = running.is_some();
    if let Ok(symbols) = Symbols::resolve() {
        // SAFETY: the caller holds the GIL.
        unsafe {
            hooks::remove(&symbols, is_recorded);
            if !is_recorded {
                codes::unhook_deallocator(&symbols);
            }
        }
    }
    // A thread that is in the middle of an event finds the table gone when it gets the lock.
    *ACCOUNTS.lock() = None;
    VARIABLE.store(0, Ordering::Release);
    codes::clear(&codes::JOB_CODES);
}

/// What keeps the forking thread's own events out while it holds the lock.
struct Forking(UnsafeCell<Option<Unrecorded>>);

// SAFETY: touched by the thread alone that holds `ACCOUNTS` across a fork.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

/// Takes the lock for the time of a fork. Handlers of other libraries may allocate and release until [`after_fork`], on this very
/// thread, and would wait for the lock for ever; so their events pass unseen.
pub fn before_fork() {
    let unrecorded = is_active().then(Unrecorded::begin);
    ACCOUNTS.acquire();
    // SAFETY: this thread holds the lock.
    unsafe { *FORKING.0.get() = unrecorded };
}

/// Lets go of it, in the parent and in the child.
pub fn after_fork() {
    // SAFETY: this thread has held the lock since `before_fork`.
    let unrecorded = unsafe { (*FORKING.0.get()).take() };
    ACCOUNTS.release();
    drop(unrecorded);
}

/// Looks at the accounts without being recorded. `None` if jobs are not traced.
pub fn with<R>(look: impl FnOnce(&mut Accounts) -> R) -> Option<R> {
    let _unrecorded = Unrecorded::begin();
    ACCOUNTS.lock().as_mut().map(|accounts| look(accounts))
}

/// A job begins, whose token is the value of the context variable where it runs. Returns the job's number.
pub fn begin(token: usize) -> Option<u32> {
    let job = with(|accounts| accounts.begin(token))?;
    if !context::is_trusted() {
        set_thread_job(job);
    }
    GENERATION.fetch_add(1, Ordering::AcqRel);
    Some(job)
}

/// What is allocated from now on is not the job's any more. `outer` is the job around it.
pub fn end(job: u32, outer: u32) {
    with(|accounts| accounts.end(job));
    if !context::is_trusted() {
        set_thread_job(outer);
    }
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

fn set_thread_job(job: u32) {
    let state = threads::enter();
    if !state.is_null() {
        // SAFETY: just entered on this thread.
        unsafe {
            (*state).jobs.thread_job = job;
            threads::leave(state);
        }
    }
}

/// The job that the calling thread works for.
///
/// # Safety
/// `state` is the calling thread's own, marked busy.
#[inline]
unsafe fn current(memory: &mut ThreadMemory, thread_state: usize, accounts: &Accounts) -> u32 {
    if !context::is_trusted() {
        return memory.thread_job;
    }
    // SAFETY: `thread_state` is this thread's own or 0.
    let (context, variables) = unsafe { context::entered(thread_state) };
    let generation = GENERATION.load(Ordering::Acquire);
    if context != memory.context || variables != memory.variables || generation != memory.generation
    {
        // SAFETY: the map belongs to the context that this thread has entered.
        let token = unsafe { context::value_of(variables, VARIABLE.load(Ordering::Relaxed)) };
        memory.job = accounts.job_of(token);
        memory.context = context;
        memory.variables = variables;
        memory.generation = generation;
    }
    memory.job
}

fn thread_state() -> usize {
    if interpreter::layout().is_some() {
        interpreter::thread_state()
    } else {
        0
    }
}

/// A block was handed out.
///
/// # Safety
/// `state` comes from `threads::enter` on this thread.
#[inline(never)]
pub unsafe fn allocated(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
) {
    if allocator == Allocator::MmapFile {
        return;
    }
    let mut accounts = ACCOUNTS.lock();
    let Some(accounts) = accounts.as_mut() else {
        return;
    };
    // SAFETY: a busy state is used by its thread alone.
    let memory = unsafe { &mut (*state).jobs };
    let thread_state = thread_state();
    // SAFETY: as above.
    let mut job = unsafe { current(memory, thread_state, accounts) };
    let released = std::mem::replace(&mut memory.released, Released::NOTHING);
    let is_longer = matches!(
        allocator,
        Allocator::Realloc | Allocator::Reallocarray | Allocator::PymallocRealloc
    );
    let was_nobodys =
        released.what == UNKNOWN_BLOCK || released.what == KNOWN_BLOCK && released.job == NOBODY;
    if is_longer && was_nobodys {
        // It was there before any job: most of it is not this job's.
        job = NOBODY;
    }
    let site = match interpreter::layout() {
        // SAFETY: `thread_state` is this thread's own or 0, under a layout that was checked.
        Some(layout) if job != NOBODY => unsafe { accounts.sites.here(layout, thread_state) },
        _ => 0,
    };
    let number = accounts.next_number();
    accounts.allocated(
        address,
        Block {
            size,
            job,
            site,
            number,
            allocator,
        },
    );
}

/// A block is about to be released.
///
/// # Safety
/// As [`allocated`].
#[inline(never)]
pub unsafe fn releasing(state: *mut ThreadState, address: usize) {
    let mut accounts = ACCOUNTS.lock();
    let Some(accounts) = accounts.as_mut() else {
        return;
    };
    // SAFETY: as in `allocated`.
    let memory = unsafe { &mut (*state).jobs };
    // SAFETY: as in `allocated`.
    let job = unsafe { current(memory, thread_state(), accounts) };
    memory.released = Released::new(address, accounts.released(address, job));
}

/// What the thread released last is not what it will make longer.
///
/// # Safety
/// As [`allocated`].
pub unsafe fn forget_released(state: *mut ThreadState) {
    // SAFETY: as in `allocated`.
    unsafe { (*state).jobs.released = Released::NOTHING };
}

/// An address range is about to be released.
///
/// # Safety
/// As [`allocated`].
pub unsafe fn releasing_range(state: *mut ThreadState, address: usize, length: usize) {
    let mut accounts = ACCOUNTS.lock();
    let Some(accounts) = accounts.as_mut() else {
        return;
    };
    // SAFETY: as in `allocated`.
    let memory = unsafe { &mut (*state).jobs };
    // SAFETY: as in `allocated`.
    let job = unsafe { current(memory, thread_state(), accounts) };
    memory.released = match accounts.released_range(address, length, job) {
        Some((address, block)) => Released::new(address, Some(block)),
        None => Released::NOTHING,
    };
}

/// The release that this thread announced last did not happen.
///
/// # Safety
/// As [`allocated`].
pub unsafe fn not_released(state: *mut ThreadState) {
    let mut accounts = ACCOUNTS.lock();
    let Some(accounts) = accounts.as_mut() else {
        return;
    };
    // SAFETY: as in `allocated`.
    let memory = unsafe { &mut (*state).jobs };
    // SAFETY: as in `allocated`.
    let job = unsafe { current(memory, thread_state(), accounts) };
    let released = std::mem::replace(&mut memory.released, Released::NOTHING);
    if let Some(block) = released.known_block() {
        accounts.not_released(released.address, block, job);
    }
}
