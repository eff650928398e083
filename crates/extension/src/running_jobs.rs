//! The running jobs of the process.
//!
//! A call of a decorated function is a job without an object of class `Job`, which would be most of its cost. The object is
//! made when the program asks for the current job, or when a recording starts.

use std::mem::replace;
use std::sync::{Mutex, MutexGuard, PoisonError};

use heaptide_agent::record::threads::OwnPython;
use pyo3::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::job_base::JobBase;
use crate::job_marks::{Mark, Marks};

pub enum Running {
    Job(Py<JobBase>),
    Call(Call),
}

/// A running call of a decorated function, without a `Job` object.
pub struct Call {
    /// The job that decorated the function.
    pub like: Py<JobBase>,
    pub mark: Mark,
    pub started: f64,
}

/// The running jobs by number. A Python dict would make a mark a tenth slower. The lock is held only with the GIL and
/// while no Python code runs, so no thread waits for it.
static RUNNING: Mutex<FxHashMap<u32, Running>> = Mutex::new(FxHashMap::with_hasher(FxBuildHasher));

fn running() -> MutexGuard<'static, FxHashMap<u32, Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn add(number: u32, job: Running) {
    let before = running().insert(number, job);
    // Dropped after the lock is released: dropping a job may run Python code.
    drop(before);
}

pub fn remove(number: u32) -> Option<Running> {
    running().remove(&number)
}

pub fn contains(number: u32) -> bool {
    running().contains_key(&number)
}

/// Returns the running job with this number.
#[pyfunction]
pub fn running_job(py: Python<'_>, number: u32) -> PyResult<Option<Py<JobBase>>> {
    let like = match running().get(&number) {
        Some(Running::Call(call)) => call.like.clone_ref(py),
        Some(Running::Job(job)) => return Ok(Some(job.clone_ref(py))),
        None => return Ok(None),
    };
    let job = JobBase::another(like.bind(py))?;
    let mut all = running();
    match all.get_mut(&number) {
        Some(entry @ Running::Call(_)) => {
            let of_job = Running::Job(job.clone().unbind());
            if let Running::Call(call) = replace(entry, of_job) {
                job.borrow_mut().adopt(call.mark, call.started);
            }
            Ok(Some(job.unbind()))
        }
        // A garbage collection ran code that asked for the same job, or ended it.
        Some(Running::Job(job)) => Ok(Some(job.clone_ref(py))),
        None => Ok(None),
    }
}

/// Announces the running jobs in a recording that has just started, in the order in which they began.
pub fn announce_all(py: Python<'_>) {
    let Some(marks) = Marks::get(py) else { return };
    let mut numbers: Vec<u32> = running().keys().copied().collect();
    numbers.sort_unstable();
    for number in numbers {
        let _own = OwnPython::begin();
        // A job that cannot be announced is recorded without its description.
        if let Ok(Some(job)) = running_job(py, number) {
            drop(JobBase::announce(job.bind(py), marks));
        }
    }
}
