//! The accounts of jobs, for `heaptide.leaks.accounts`.

use heaptide_agent::cpython::interpreter;
use heaptide_agent::cpython::offsets::{self, type_flag};
use heaptide_agent::jobs::accounts::Whose;
use heaptide_agent::jobs::objects::Types;
use heaptide_agent::jobs::{self, context};
use heaptide_agent::session;
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::recording::to_python;

/// Begins to keep accounts; the value of the context variable says for which job a thread works.
#[pyfunction]
pub fn jobs_start(variable: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    // The variable must outlive the accounts, and there is one for the life of a process.
    let address = variable.clone().into_ptr() as usize;
    // SAFETY: a function called from Python runs with the GIL held; the reference above is never given back.
    unsafe { jobs::start(address) }.map_err(to_python)
}

/// Ends it, and forgets everything.
#[pyfunction]
pub fn jobs_stop() {
    // SAFETY: a function called from Python runs with the GIL held.
    unsafe { jobs::stop() };
}

/// Called inside a context: at how many places of the thread state its address was found so far, each time.
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

/// The address of the variable's value in the present context, as a hook reads it; 0 if there is none.
#[pyfunction]
pub fn context_value(variable: &Bound<'_, PyAny>) -> usize {
    if interpreter::layout().is_none() {
        return 0;
    }
    // SAFETY: the thread state is the calling thread's own, and the map that of the context it has entered.
    unsafe {
        let (_, map) = context::entered(interpreter::thread_state());
        context::value_of(map, variable.as_ptr() as usize)
    }
}

/// Says whether what `context_value` gave was right.
#[pyfunction]
pub fn trust_contexts(trusted: bool) {
    context::trust(trusted);
}

/// A job begins. Returns its number, or None if no accounts are kept.
#[pyfunction]
pub fn job_begin(token: &Bound<'_, PyAny>) -> Option<u32> {
    jobs::begin(token.as_ptr() as usize)
}

/// What is allocated from now on is not the job's.
#[pyfunction]
pub fn job_end(job: u32, outer: u32) {
    jobs::end(job, outer);
}

/// The job's account is closed; what it left stays in the sum of all.
#[pyfunction]
pub fn job_settle(job: u32) {
    jobs::with(|accounts| accounts.settle(job));
}

type Frame = (String, String, i32);
type Site = (u64, u64, Vec<Frame>);

/// What a job has left, or all jobs if none is named.
#[pyclass(frozen, get_all)]
pub struct JobRest {
    kept_bytes: u64,
    n_kept: u64,
    released_bytes: u64,
    allocated_bytes: u64,
    n_allocated: u64,
    /// Bytes, blocks, frames from the innermost outwards: function, file, line.
    sites: Vec<Site>,
    /// Number of the type in the list that was passed, bytes, objects.
    types: Vec<(u32, u64, u64)>,
    examples: Vec<Py<PyAny>>,
    n_lost: u64,
}

/// Returns the live memory of a job, or of all jobs. `types` are the addresses of types and their `tp_flags`.
/// `example_type` is the index of the type whose objects are returned as examples.
#[pyfunction]
#[pyo3(signature = (job, types, n_sites, example_type))]
pub fn job_rest(
    py: Python<'_>,
    job: Option<u32>,
    types: Vec<(usize, usize)>,
    n_sites: usize,
    example_type: Option<u32>,
) -> Option<JobRest> {
    let example_type = example_type.and_then(|number| {
        let (_, flags) = types.get(number as usize)?;
        Some((number, flags & type_flag::HAVE_GC != 0))
    });
    let info = py.version_info();
    let version = (info.major, info.minor);
    let with_headers: Vec<_> = types
        .iter()
        .map(|&(address, flags)| (address, offsets::bytes_before(version, flags)))
        .collect();
    let types = Types::new(&with_headers);
    let whose = job.map_or(Whose::AllJobs, Whose::Job);
    // SAFETY: `with` holds the lock, and a function called from Python the GIL.
    let rest =
        jobs::with(|accounts| unsafe { accounts.rest(whose, &types, n_sites, example_type) })?;
    let site = |site: jobs::SiteSum| {
        let frames = site.frames.into_iter();
        (
            site.bytes,
            site.n_blocks,
            frames
                .map(|frame| (frame.function, frame.file, frame.line))
                .collect(),
        )
    };
    // SAFETY: these were live, complete objects a moment ago, and since then the GIL was not let go.
    let object = |address: usize| unsafe {
        Bound::from_borrowed_ptr(py, address as *mut pyo3::ffi::PyObject).unbind()
    };
    Some(JobRest {
        kept_bytes: rest.kept_bytes,
        n_kept: rest.n_kept,
        released_bytes: rest.released_bytes,
        allocated_bytes: rest.allocated_bytes,
        n_allocated: rest.n_allocated,
        sites: rest.sites.into_iter().map(site).collect(),
        types: rest
            .types
            .iter()
            .map(|sum| (sum.number, sum.bytes, sum.n_objects))
            .collect(),
        examples: rest.examples.into_iter().map(object).collect(),
        n_lost: rest.n_lost,
    })
}
