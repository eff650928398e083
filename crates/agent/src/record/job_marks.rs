//! The job of an allocation: read from the interpreter's context, written to the chunk when it changes.
//!
//! `heaptide.job` sets a context variable to a *token*, a `bytes` object whose first eight bytes are the job's number and the
//! number of its name. A hook reads them through `cpython::context`, without the GIL. When the job ends, its token becomes
//! zero, so that threads and tasks that outlive the job belong to no job.
//!
//! A chunk begins without a job. Before an allocation whose job differs from the last job in the chunk, the thread writes a
//! job mark. The job is determined again only if the thread entered another context, if a variable of the context was
//! set, or if any job began or ended ([`GENERATION`]).
//!
//! Runs on: the thread whose event it is. Allocates: never. Locks: never.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heaptide_capture::event::MAX_RECORD_BYTES;

use super::{Room, ThreadState};
use crate::cpython::{context, interpreter};

/// Changes when a job begins or ends; 0 if this process has never begun one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// The context variable whose values are tokens, and the offset of the bytes in a token. 0 before the first job.
static VARIABLE: AtomicUsize = AtomicUsize::new(0);
static TOKEN_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// The largest number of threads that can have assigned jobs at the same time.
const MAX_ASSIGNED: usize = 1024;
/// Jobs that another thread assigned to a thread: the thread's `pthread_self`, and the two numbers of the job.
static ASSIGNED: [Assigned; MAX_ASSIGNED] = [const {
    Assigned {
        thread: AtomicUsize::new(0),
        job: AtomicU64::new(0),
    }
}; MAX_ASSIGNED];
/// Number of entries that were ever used; a search ends there.
static N_ASSIGNED: AtomicUsize = AtomicUsize::new(0);

struct Assigned {
    thread: AtomicUsize,
    job: AtomicU64,
}

/// A job's number and the number of its name. Job 0 means no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct JobNumbers {
    pub job: u32,
    pub name: u32,
}

impl JobNumbers {
    /// As the first eight bytes of a token.
    pub fn to_word(self) -> u64 {
        u64::from(self.job) | u64::from(self.name) << 32
    }

    fn from_word(word: u64) -> JobNumbers {
        JobNumbers {
            job: word as u32,
            name: (word >> 32) as u32,
        }
    }
}

/// The part of a thread's state that belongs to job marks. Zero bytes are a valid initial value.
#[repr(C)]
pub(crate) struct ThreadJob {
    /// The context and its map of variables for which the job was determined, and `GENERATION` at that time.
    context: usize,
    variables: usize,
    generation: u32,
    /// The job of the last mark in the current chunk; 0 at its beginning.
    written: u32,
}

impl ThreadJob {
    /// Forgets what the last chunk contained.
    pub fn begin_chunk(&mut self) {
        self.written = 0;
        self.generation = 0;
    }
}

/// Sets the variable and the layout of its values. `token` is any `bytes` object, and `bytes` the address of its bytes.
pub(crate) fn prepare(variable: usize, token: usize, bytes: usize) {
    TOKEN_OFFSET.store(bytes.wrapping_sub(token), Ordering::Release);
    VARIABLE.store(variable, Ordering::Release);
}

/// Makes every thread determine its job again.
pub(crate) fn next_generation() {
    // After four billion changes the counter would be 0, which means that there are no jobs.
    if GENERATION.fetch_add(1, Ordering::AcqRel) == u32::MAX {
        GENERATION.fetch_add(1, Ordering::AcqRel);
    }
}

/// Whether this process has ever begun a job.
#[inline(always)]
pub(super) fn are_used() -> bool {
    GENERATION.load(Ordering::Relaxed) != 0
}

/// Writes a job mark if the thread's job differs from the last one in its chunk. `is_shared` is true for memory that
/// the allocator of an interpreter or a library maps for later use: it belongs to no job.
///
/// The state's position must be below its limit, so that there is room for several records.
#[inline(always)]
pub(super) fn sync(state: &mut ThreadState, is_shared: bool) {
    let thread_state = if interpreter::layout().is_some() {
        interpreter::thread_state()
    } else {
        0
    };
    // SAFETY: the thread state is the calling thread's own, or 0.
    let (context, variables) = unsafe { context::entered(thread_state) };
    let generation = GENERATION.load(Ordering::Acquire);
    let known = &state.job;
    if generation == known.generation
        && context == known.context
        && variables == known.variables
        && !is_shared
    {
        return;
    }
    update(state, context, variables, generation, is_shared);
}

#[cold]
#[inline(never)]
fn update(
    state: &mut ThreadState,
    context: usize,
    variables: usize,
    generation: u32,
    is_shared: bool,
) {
    let numbers = if is_shared {
        JobNumbers::default()
    } else {
        // SAFETY: `sync` has just read the map from the context that this thread has entered.
        unsafe { current(variables) }
    };
    state.job.context = context;
    state.job.variables = variables;
    // The job of this thread's next allocation must be determined again.
    state.job.generation = if is_shared { 0 } else { generation };
    if numbers.job == state.job.written {
        return;
    }
    state.job.written = numbers.job;
    // SAFETY: the position is below the limit, or at most one time record after it. The limit lies `EVENT_ROOM` before the
    // slot's end.
    let mut room = unsafe {
        Room::new(
            &mut state.tables,
            state.position,
            state.position.add(MAX_RECORD_BYTES),
        )
    };
    room.tables
        .write_job(&mut room.out, numbers.job, numbers.name);
    let n_bytes = room.out.len();
    // SAFETY: the writer stays within its room, which lies in the slot.
    state.position = unsafe { state.position.add(n_bytes) };
}

/// Returns the job of the calling thread: the job of its context, or the job that was assigned to the thread.
///
/// # Safety
/// `variables` is 0 or the map of the context that the calling thread has entered.
unsafe fn current(variables: usize) -> JobNumbers {
    let (variable, offset) = (
        VARIABLE.load(Ordering::Acquire),
        TOKEN_OFFSET.load(Ordering::Acquire),
    );
    if context::is_trusted() && variable != 0 {
        // SAFETY: passed on from the caller.
        let token = unsafe { context::value_of(variables, variable) };
        if token != 0 {
            // SAFETY: only `heaptide.jobs` sets the variable, to a `bytes` object of 8 bytes or more, whose bytes are at this
            // offset. The map keeps it alive. `forget` changes the word with an atomic store.
            let word = unsafe { AtomicU64::from_ptr((token + offset) as *mut u64) };
            let numbers = JobNumbers::from_word(word.load(Ordering::Relaxed));
            if numbers.job != 0 {
                return numbers;
            }
        }
    }
    assigned()
}

fn assigned() -> JobNumbers {
    let n_assigned = N_ASSIGNED.load(Ordering::Acquire);
    if n_assigned == 0 {
        return JobNumbers::default();
    }
    // SAFETY: `pthread_self` has no preconditions.
    let own = unsafe { libc::pthread_self() } as usize;
    // The last assignment counts.
    let mut entries = ASSIGNED[..n_assigned.min(MAX_ASSIGNED)].iter().rev();
    let entry = entries.find(|entry| entry.thread.load(Ordering::Acquire) == own);
    entry.map_or_else(JobNumbers::default, |entry| {
        JobNumbers::from_word(entry.job.load(Ordering::Relaxed))
    })
}

/// Assigns a job to a thread, by its `pthread_self`. Returns `false` if too many threads have assigned jobs. The caller
/// holds the lock of all job marks.
pub(crate) fn assign(thread: usize, numbers: JobNumbers) -> bool {
    let n_assigned = N_ASSIGNED.load(Ordering::Acquire).min(MAX_ASSIGNED);
    // The new entry follows the last used one of any thread, so that the last assignment of a thread counts.
    let used = |entry: &Assigned| entry.thread.load(Ordering::Acquire) != 0;
    let at = ASSIGNED[..n_assigned]
        .iter()
        .rposition(used)
        .map_or(0, |last| last + 1);
    let Some(entry) = ASSIGNED.get(at) else {
        return false;
    };
    entry.job.store(numbers.to_word(), Ordering::Relaxed);
    entry.thread.store(thread, Ordering::Release);
    N_ASSIGNED.store(n_assigned.max(at + 1), Ordering::Release);
    true
}

/// Whether any thread has ever had an assigned job.
pub(crate) fn has_assigned() -> bool {
    N_ASSIGNED.load(Ordering::Relaxed) != 0
}

/// Adds the number of its name to the assignments of a job. The caller holds the lock of all job marks.
pub(crate) fn rename_assigned(numbers: JobNumbers) {
    let n_assigned = N_ASSIGNED.load(Ordering::Acquire).min(MAX_ASSIGNED);
    for entry in &ASSIGNED[..n_assigned] {
        if JobNumbers::from_word(entry.job.load(Ordering::Relaxed)).job == numbers.job {
            entry.job.store(numbers.to_word(), Ordering::Relaxed);
        }
    }
}

/// Returns the job of the calling thread, which holds the GIL.
pub(crate) fn current_here() -> JobNumbers {
    if interpreter::layout().is_none() {
        return JobNumbers::default();
    }
    // SAFETY: the thread state is the calling thread's own, and the map belongs to the context that the thread has entered.
    unsafe {
        let (_, variables) = context::entered(interpreter::thread_state());
        current(variables)
    }
}

/// Undoes the assignments of a job. The caller holds the lock of all job marks.
pub(crate) fn unassign(job: u32) {
    let n_assigned = N_ASSIGNED.load(Ordering::Acquire).min(MAX_ASSIGNED);
    for entry in &ASSIGNED[..n_assigned] {
        if JobNumbers::from_word(entry.job.load(Ordering::Relaxed)).job == job {
            entry.thread.store(0, Ordering::Release);
        }
    }
}

/// Writes other numbers into a token, unless its job has ended.
///
/// # Safety
/// As for [`forget`].
pub(crate) unsafe fn rename(bytes: usize, numbers: JobNumbers) {
    // SAFETY: as in `forget`.
    let word = unsafe { AtomicU64::from_ptr(bytes as *mut u64) };
    if word.load(Ordering::Relaxed) != 0 {
        word.store(numbers.to_word(), Ordering::Relaxed);
    }
}

/// Makes a token name no job.
///
/// # Safety
/// `bytes` is the address of the content of a live `bytes` object of at least 8 bytes. The object is a token: only the
/// context variable and its job refer to it, and nothing else has read its content or its hash.
pub(crate) unsafe fn forget(bytes: usize) {
    // SAFETY: the caller's promise; the bytes of such an object are aligned to 8. All accesses to them are atomic.
    unsafe { AtomicU64::from_ptr(bytes as *mut u64) }.store(0, Ordering::Relaxed);
}
