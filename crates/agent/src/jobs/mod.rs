//! Accounts of jobs: the job that allocated each live block, and the allocation site.
//!
//! While jobs are traced, a table contains every live block that was allocated since tracing started. Its entry has the
//! size, the job (`cpython::context`) and the stack, if there is one ([`sites`]). A job's account has the bytes that it
//! allocated and that are alive, and the bytes of earlier jobs that it freed. The job's rest is the difference, so a job
//! that replaces a cache entry by one of equal size leaves nothing.
//!
//! ```text
//! hook → which job? → allocation: table[address] = (size, job, stack), account.kept += size
//!                   → release:    owner's account.kept −= size; if the owner is settled: own account.released += size
//! ```
//! If several jobs extend a block, each is charged for the bytes that it added ([`charges`]). The hooks are compiled
//! separately for jobs (`hooks::HookMode::Jobs`), so they do not slow down a recording without jobs. If a recording is
//! running, these hooks serve both (`hooks::job_events`). Tracing and recording may start and stop in any order. Hooks call
//! [`events`]; this file starts and stops the tracing.
//!
//! Runs on: any thread. Allocates: bypassing the hooks. Locks: `ACCOUNTS`, for each event; held across a fork. During
//! fork: a child continues with a copy.

pub(crate) mod accounts;
mod blocks;
pub(crate) mod chain;
mod charges;
pub(crate) mod events;
pub mod marks;
pub mod objects;
mod open;
pub mod rest;
pub(crate) mod sites;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

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

pub use accounts::Accounts;

/// No job.
pub(crate) const NO_JOB: u32 = 0;

/// The accounts, while jobs are traced.
pub(crate) static ACCOUNTS: ForkMutex<Option<Box<Accounts>>> = ForkMutex::new(None);
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// The context variable whose values are the tokens of jobs.
static VARIABLE: AtomicUsize = AtomicUsize::new(0);
/// Changes when a job begins or ends: then every thread determines its job again.
static GENERATION: AtomicU32 = AtomicU32::new(1);

#[inline(always)]
pub(crate) fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Excludes the calling thread's events from the accounts until it is dropped.
pub(crate) struct Excluded(*mut ThreadState);

impl Excluded {
    pub fn begin() -> Excluded {
        let state = threads::own_state();
        if !state.is_null() {
            // SAFETY: the state is this thread's own, and no other thread uses this field.
            unsafe { (*state).jobs.n_excluded += 1 };
        }
        Excluded(state)
    }
}

impl Drop for Excluded {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: as in `begin`; a thread keeps its state until it ends.
            unsafe { (*self.0).jobs.n_excluded -= 1 };
        }
    }
}

/// Starts tracing jobs. The value of the context variable `variable` is the token of the current job. Returns a warning if
/// Python stacks cannot be read.
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

/// Stops tracing jobs and drops the accounts.
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
    // A thread in the middle of an event finds no accounts when it gets the lock.
    *ACCOUNTS.lock() = None;
    VARIABLE.store(0, Ordering::Release);
    codes::clear(&codes::JOB_CODES);
}

/// Excludes the events of the forking thread while it holds the lock.
struct Forking(UnsafeCell<Option<Unrecorded>>);

// SAFETY: only the thread that holds `ACCOUNTS` across a fork uses it.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

/// Takes the lock for the time of a fork. Until [`after_fork`], handlers of other libraries may allocate and free on this
/// thread. Their events are excluded, because they would wait for the lock forever.
pub fn before_fork() {
    let unrecorded = is_active().then(Unrecorded::begin);
    ACCOUNTS.acquire();
    // SAFETY: this thread holds the lock.
    unsafe { *FORKING.0.get() = unrecorded };
}

/// Releases the lock, in the parent and in the child.
pub(crate) fn after_fork() {
    // SAFETY: this thread has held the lock since `before_fork`.
    let unrecorded = unsafe { (*FORKING.0.get()).take() };
    ACCOUNTS.release();
    drop(unrecorded);
}

/// Calls `work` with the accounts, without recording its allocations. Returns `None` if jobs are not traced.
pub fn with<R>(work: impl FnOnce(&mut Accounts) -> R) -> Option<R> {
    let _unrecorded = Unrecorded::begin();
    ACCOUNTS.lock().as_mut().map(|accounts| work(accounts))
}

/// Begins a job, whose token is the value of the context variable where it runs. `group` is the number of its name, or 0.
/// Returns the job's number.
pub fn begin(token: usize, group: u32) -> Option<u32> {
    let job = with(|accounts| accounts.begin(token, group))?;
    if !context::is_trusted() {
        set_thread_job(job);
    }
    GENERATION.fetch_add(1, Ordering::AcqRel);
    Some(job)
}

/// Begins a job that runs in another thread, whose `pthread_self` this is. Returns its number.
pub fn begin_in_thread(thread: usize, group: u32) -> Option<u32> {
    let job = with(|accounts| accounts.begin_in_thread(thread, group))?;
    GENERATION.fetch_add(1, Ordering::AcqRel);
    Some(job)
}

/// Ends a job: later allocations do not belong to it. `outer` is the enclosing job.
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
