//! Marks of `heaptide.job` in captures: numbers of jobs, and their entries in the registry.
//!
//! Every job gets a number and a token, even without a recording: a recording may start while the job runs. The extension
//! keeps a list of running jobs and announces them when a recording starts. Without a recording nothing else happens here,
//! and no system call is made. Events find their job in `record::job_marks`.
//!
//! Runs on: the thread that begins or ends a job (with the GIL), or starts a recording. Allocates: bypassing the hooks. Locks:
//! `MARKS`, held across a fork. During fork: a child continues with a copy, because the job that forked it continues there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use heaptide_capture::registry::labels_to_bytes;
use heaptide_capture::{Entry, JobBegan, JobEnded, Outcome};

use crate::host::locks::ForkMutex;
use crate::host::resident::Resident;
use crate::host::sys;
use crate::record::job_marks::{self, JobNumbers};
use crate::record::threads::{self, Unrecorded};
use crate::record::{self, clock};
use crate::session::{self, Session};

/// Further distinct names have the name number 0 in event records.
const MAX_NAMES: usize = 10_000;

static N_JOBS: AtomicU32 = AtomicU32::new(0);
static N_RUNNING: AtomicU32 = AtomicU32::new(0);
/// Held while names or assigned threads change.
pub(crate) static MARKS: ForkMutex<Marks> = ForkMutex::new(Marks {
    names: BTreeMap::new(),
    resident: None,
});

pub(crate) struct Marks {
    names: BTreeMap<Box<str>, u32>,
    /// The number of a session, and its open file with the resident size. Opening the file for each job would cost more
    /// than the rest of the mark.
    resident: Option<(u32, Resident)>,
}

/// A job that has begun.
pub struct Begun {
    pub number: u32,
    /// The number of the enclosing job; 0 if there is none.
    pub outer: u32,
    /// Whether a recording is active, in which the job must be announced.
    pub is_recorded: bool,
}

/// The description of a job.
pub struct Description<'a> {
    pub number: u32,
    pub name: &'a str,
    pub key: Option<&'a str>,
    pub labels: &'a [(String, String)],
    pub outer: u32,
    /// The operating system's ID of the thread in which it began; 0 if unknown.
    pub thread: u32,
    /// Nanoseconds since 1970.
    pub began_unix_ns: u64,
}

/// Sets the context variable whose values are tokens. `token` is any `bytes` object, `bytes` the address of its bytes.
///
/// # Safety
/// The variable is never freed.
pub unsafe fn prepare(variable: usize, token: usize, bytes: usize) {
    job_marks::prepare(variable, token, bytes);
}

/// The ID of the calling thread, as `pthread_self` and `threading.get_ident` return it.
pub fn own_thread() -> usize {
    // SAFETY: `pthread_self` has no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// The operating system's ID of the calling thread.
pub fn own_thread_id() -> u32 {
    sys::thread_id()
}

/// The resident size of the process; `None` if nothing is recorded. Only for threads of the program: it may open a
/// file, which Heaptide's own threads must not do (see `host::own_file`).
pub fn resident_bytes() -> Option<u64> {
    let _unrecorded = Unrecorded::begin();
    let number = session::active_number()?;
    let mut marks = MARKS.lock();
    let known = marks.resident.as_ref();
    let known = known.filter(|(session, _)| *session == number);
    if let Some(bytes) = known.and_then(|(_, resident)| resident.bytes()) {
        return Some(bytes);
    }
    // The first job of this session, or the program has closed the file.
    let resident = Resident::open();
    let bytes = resident.bytes();
    marks.resident = Some((number, resident));
    bytes
}

/// Begins a job.
pub fn begin() -> Begun {
    let number = N_JOBS.fetch_add(1, Ordering::Relaxed) + 1;
    N_RUNNING.fetch_add(1, Ordering::Relaxed);
    let outer = job_marks::current_here().job;
    job_marks::next_generation();
    Begun {
        number,
        outer,
        is_recorded: session::is_active(),
    }
}

/// Describes a running job in the registry of the current recording, and adds the number of its name to its token.
///
/// # Safety
/// As for [`end`].
pub unsafe fn announce(job: &Description, token: usize) {
    let _unrecorded = Unrecorded::begin();
    let mut marks = MARKS.lock();
    let name = match marks.names.get(job.name) {
        Some(&known) => known,
        None if marks.names.len() >= MAX_NAMES => 0,
        None => {
            let added = marks.names.len() as u32 + 1;
            marks.names.insert(job.name.into(), added);
            added
        }
    };
    let Some(session) = session::current().filter(|_| session::is_active()) else {
        return;
    };
    session.mark_version_with_jobs();
    let labels = job.labels.iter();
    let labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
    session.note(&Entry::JobBegan(JobBegan {
        number: job.number,
        name_number: name,
        parent: job.outer,
        thread: job.thread,
        time: clock::ticks() >> session::tick_shift(),
        unix_ns: job.began_unix_ns,
        name: job.name.as_bytes(),
        key: job.key.map(str::as_bytes),
        labels: &labels_to_bytes(labels),
    }));
    let numbers = JobNumbers {
        job: job.number,
        name,
    };
    // SAFETY: passed on from the caller.
    unsafe { job_marks::rename(token, numbers) };
    job_marks::rename_assigned(numbers);
    job_marks::next_generation();
}

/// Assigns a running job to a thread, by its `pthread_self`. Returns `false` if too many threads have assigned jobs.
pub fn assign(number: u32, thread: usize) -> bool {
    let _unrecorded = Unrecorded::begin();
    let _marks = MARKS.lock();
    let numbers = JobNumbers {
        job: number,
        name: 0,
    };
    let is_assigned = job_marks::assign(thread, numbers);
    job_marks::next_generation();
    is_assigned
}

/// Ends a job. Later events do not belong to it.
///
/// # Safety
/// `token` is the address of the bytes of the job's token; see [`job_marks::forget`].
pub unsafe fn end(number: u32, token: usize, outcome: Outcome, error: &str) {
    // SAFETY: passed on from the caller.
    unsafe { job_marks::forget(token) };
    N_RUNNING.fetch_sub(1, Ordering::Relaxed);
    job_marks::next_generation();
    if job_marks::has_assigned() {
        let _unrecorded = Unrecorded::begin();
        let _marks = MARKS.lock();
        job_marks::unassign(number);
    }
    if !session::is_active() {
        return;
    }
    let state = threads::enter();
    if !state.is_null() {
        // SAFETY: `enter` returned this thread's state, which stays busy until `leave`.
        unsafe {
            record::job_end(state, number);
            threads::leave(state);
        }
    }
    let _unrecorded = Unrecorded::begin();
    session::note(&Entry::JobEnded(JobEnded {
        number,
        time: clock::ticks() >> session::tick_shift(),
        unix_ns: clock::unix_ns(),
        outcome,
        error: error.as_bytes(),
    }));
}

/// Prepares a new session for the marks of running jobs, whose first events may precede their announcement.
pub(crate) fn prepare_session(session: &Session) {
    if N_RUNNING.load(Ordering::Relaxed) > 0 {
        session.mark_version_with_jobs();
    }
}

/// Closes the file that the marks of a session have used.
pub(crate) fn end_session() {
    MARKS.lock().resident = None;
}
