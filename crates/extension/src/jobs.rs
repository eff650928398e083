//! The accounts of jobs, for `heaptide.leaks.accounts`.

use heaptide_agent::cpython::references::Type;
use heaptide_agent::cpython::{context, interpreter};
use heaptide_agent::jobs;
use heaptide_agent::jobs::objects::Types;
use heaptide_agent::jobs::rest::{JobSelection, SiteSum};
use heaptide_agent::session;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyType};

use crate::recording::to_python;

/// Opens the accounts. The value of the context variable names the job that a thread works for.
#[pyfunction]
pub fn jobs_start(variable: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    // The variable must outlive the accounts; a process has only one.
    let address = variable.clone().into_ptr() as usize;
    // SAFETY: a function called from Python runs with the GIL held; the reference above is never released.
    unsafe { jobs::start(address) }.map_err(to_python)
}

/// Closes the accounts.
#[pyfunction]
pub fn jobs_stop() {
    // SAFETY: a function called from Python runs with the GIL held.
    unsafe { jobs::stop() };
}

/// Searches the thread state for the context that the caller runs in. Returns the number of offsets where every call so
/// far found it.
#[pyfunction]
pub fn learn_context(context: &Bound<'_, PyAny>) -> PyResult<u32> {
    // SAFETY: a function called from Python runs with the GIL held.
    unsafe { session::prepare_interpreter() }.map_err(to_python)?;
    if interpreter::layout().is_none() || interpreter::thread_state() == 0 {
        return Ok(0);
    }
    // SAFETY: the thread state is the calling thread's own, and the GIL is held.
    Ok(unsafe { context::learn(interpreter::thread_state(), context.as_ptr() as usize) })
}

/// Returns the address of the variable's value in the current context, as a hook reads it; 0 if there is none.
#[pyfunction]
pub fn context_value(variable: &Bound<'_, PyAny>) -> usize {
    if interpreter::layout().is_none() {
        return 0;
    }
    // SAFETY: the thread state is the calling thread's own, and `learn_context` was called for several contexts. The
    // map belongs to the context that the thread has entered.
    unsafe {
        let map = context::map_to_compare(interpreter::thread_state());
        context::value_of(map, variable.as_ptr() as usize)
    }
}

/// Sets whether the results of `context_value` were right.
#[pyfunction]
pub fn trust_contexts(trusted: bool) {
    context::trust(trusted);
}

/// Begins a job. It runs where the context variable has the value `token`, or in the thread with this ident. Jobs of the
/// same name have the same `group`; 0 is no group. Returns the job's number, or `None` if no accounts are open.
#[pyfunction]
#[pyo3(signature = (token, thread = None, group = 0))]
pub fn job_begin(token: &Bound<'_, PyAny>, thread: Option<usize>, group: u32) -> Option<u32> {
    match thread {
        Some(thread) => jobs::begin_in_thread(thread, group),
        None => jobs::begin(token.as_ptr() as usize, group),
    }
}

/// Returns how long a job ran, or has been running; `None` once its account is closed.
#[pyfunction]
pub fn job_seconds(job: u32) -> Option<f64> {
    jobs::with(|accounts| accounts.seconds(job)).flatten()
}

/// Ends a job: later allocations do not belong to it. `outer` is the enclosing job, or 0.
#[pyfunction]
pub fn job_end(job: u32, outer: u32) {
    jobs::end(job, outer);
}

/// Closes a job's account. The memory that the job left stays in the sum of all jobs.
#[pyfunction]
pub fn job_settle(job: u32) {
    jobs::with(|accounts| accounts.settle(job));
}

type Frame = (String, String, i32);
type Site = (u64, u64, Vec<Frame>);

/// The memory that one job, or all jobs, left.
#[pyclass(frozen, get_all)]
pub struct JobRest {
    kept_bytes: u64,
    n_kept: u64,
    released_bytes: u64,
    peak_bytes: u64,
    name_bytes: Option<u64>,
    allocated_bytes: u64,
    n_allocated: u64,
    /// Bytes, blocks, and frames (function, file, line), innermost first.
    sites: Vec<Site>,
    /// Position of the type in the caller's list, bytes, objects, objects of all jobs.
    types: Vec<(u32, u64, u64, u64)>,
    examples: Vec<Py<PyAny>>,
    n_lost: u64,
}

/// Returns the memory that a job, or all jobs, left; `None` if no accounts are open.
///
/// `example_type` is the position in `types` of the type whose objects are requested.
#[pyfunction]
#[pyo3(signature = (job, types, n_sites, example_type))]
pub fn job_rest(
    py: Python<'_>,
    job: Option<u32>,
    types: Vec<Bound<'_, PyType>>,
    n_sites: usize,
    example_type: Option<u32>,
) -> Option<JobRest> {
    let version = py.version_info();
    // SAFETY: `types` keeps all of them alive until this function returns, and each is a type.
    let addresses = types
        .iter()
        .map(|type_| unsafe { Type::at(type_.as_ptr() as usize) });
    let types = Types::new(
        &addresses.flatten().collect::<Vec<Type>>(),
        (version.major, version.minor),
    );
    let selection = job.map_or(JobSelection::AllJobs, JobSelection::Job);
    // SAFETY: `with` holds the lock, and a function called from Python runs with the GIL held.
    let rest =
        jobs::with(|accounts| unsafe { accounts.rest(selection, &types, n_sites, example_type) })?;
    let site = |site: SiteSum| {
        let frames = site.frames.into_iter();
        (
            site.bytes,
            site.n_blocks,
            frames
                .map(|frame| (frame.function, frame.file, frame.line))
                .collect(),
        )
    };
    // SAFETY: these were live, complete objects, and the GIL has been held since.
    let object = |address: usize| unsafe {
        Bound::from_borrowed_ptr(py, address as *mut pyo3::ffi::PyObject).unbind()
    };
    Some(JobRest {
        kept_bytes: rest.kept_bytes,
        n_kept: rest.n_kept,
        released_bytes: rest.released_bytes,
        peak_bytes: rest.peak_bytes,
        name_bytes: rest.name_bytes,
        allocated_bytes: rest.allocated_bytes,
        n_allocated: rest.n_allocated,
        sites: rest.sites.into_iter().map(site).collect(),
        types: rest
            .types
            .iter()
            .map(|sum| (sum.number, sum.bytes, sum.n_objects, sum.n_of_all_jobs))
            .collect(),
        examples: rest.examples.into_iter().map(object).collect(),
        n_lost: rest.n_lost,
    })
}
