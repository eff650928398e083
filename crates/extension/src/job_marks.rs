//! State that all job marks share (a mark is the begin or the end of a job): the context variable of the current job,
//! the running jobs, and functions of `heaptide.jobs`.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use heaptide_agent::jobs::marks;
use heaptide_agent::record::threads::OwnPython;
use heaptide_agent::session;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyAny, PyBytes, PyDict, PyString};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::job_base::JobBase;
use crate::text::{FsText, Text, pairs};

/// The key of a job, and its labels.
type KeyAndLabels = (Option<String>, Vec<(String, String)>);

/// The Python objects that a mark needs.
pub struct Marks {
    /// `set` and `reset` of the context variable whose values are the tokens of jobs.
    set: Py<PyAny>,
    reset: Py<PyAny>,
    /// `sys.modules`.
    modules: Py<PyDict>,
    /// Whether hooks find jobs by the context; if not, they find them by the thread.
    pub are_contexts_read: bool,
    /// Returns a key and labels with secret values hidden; `None` if nothing is secret.
    redacted: Option<Py<PyAny>>,
    /// Returns whether job records are written.
    wants_records: Py<PyAny>,
}

static MARKS: PyOnceLock<Marks> = PyOnceLock::new();
/// The running jobs by number. A Python dict would make a mark a tenth slower. The lock is held only with the GIL and
/// while no Python code runs, so no thread waits for it.
static RUNNING: Mutex<FxHashMap<u32, Py<JobBase>>> =
    Mutex::new(FxHashMap::with_hasher(FxBuildHasher));
/// Whether the settings name no folder for job records. Then [`Marks::write_record`] need not call Python.
static ARE_RECORDS_UNWANTED: AtomicBool = AtomicBool::new(false);
/// The length of `sys.modules` when Python last searched it. If it differs, Python must search again.
static N_MODULES: AtomicUsize = AtomicUsize::new(0);
/// The number of a session and the path of its capture.
static CAPTURE: Mutex<Option<(u32, Py<PyAny>)>> = Mutex::new(None);

/// Prepares the process for job marks. Later calls have no effect.
#[pyfunction]
#[pyo3(signature = (variable, token, *, modules, are_contexts_read, redacted, wants_records))]
#[allow(
    clippy::too_many_arguments,
    reason = "each with its name at the only caller"
)]
pub fn prepare_job_marks(
    py: Python<'_>,
    variable: &Bound<'_, PyAny>,
    token: &Bound<'_, PyBytes>,
    modules: Py<PyDict>,
    are_contexts_read: bool,
    redacted: Option<Py<PyAny>>,
    wants_records: Py<PyAny>,
) -> PyResult<()> {
    if MARKS.get(py).is_some() {
        return Ok(());
    }
    let (set, reset) = (variable.getattr("set")?, variable.getattr("reset")?);
    // The variable must outlive all hooks; a process has only one.
    let address = variable.clone().into_ptr() as usize;
    // SAFETY: the reference above is never released.
    unsafe { marks::prepare(address, token.as_ptr() as usize, bytes_of(token)) };
    MARKS.get_or_init(py, || Marks {
        set: set.unbind(),
        reset: reset.unbind(),
        modules,
        are_contexts_read,
        redacted,
        wants_records,
    });
    Ok(())
}

/// Stores how many modules Python has searched for modules that start threads.
#[pyfunction]
pub fn note_searched_modules(n_modules: usize) {
    N_MODULES.store(n_modules, Ordering::Relaxed);
}

/// Stores whether the settings of this process name no folder for job records. A forked child reads them again.
#[pyfunction]
pub fn note_unwanted_job_records(are_unwanted: bool) {
    ARE_RECORDS_UNWANTED.store(are_unwanted, Ordering::Relaxed);
}

/// Returns the running job with this number.
#[pyfunction]
pub fn running_job(py: Python<'_>, number: u32) -> Option<Py<JobBase>> {
    running().get(&number).map(|job| job.clone_ref(py))
}

fn running() -> MutexGuard<'static, FxHashMap<u32, Py<JobBase>>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Announces the running jobs in a recording that has just started, in the order in which they began.
pub fn announce_all(py: Python<'_>) {
    let Some(marks) = Marks::get(py) else { return };
    let all = running();
    let mut jobs: Vec<(u32, Py<JobBase>)> = all
        .iter()
        .map(|(&number, job)| (number, job.clone_ref(py)))
        .collect();
    drop(all);
    jobs.sort_unstable_by_key(|&(number, _)| number);
    for (_, job) in jobs {
        // A job that cannot be announced is recorded without its description.
        drop(JobBase::announce(job.bind(py), marks));
    }
}

/// Calls a function with one argument. Unlike `call1`, it makes no tuple.
pub fn call_with<'py>(
    function: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the GIL is held, both objects are alive during the call, and NULL ends the arguments. The result is a new
    // reference, or NULL with an exception.
    unsafe {
        let result = ffi::PyObject_CallFunctionObjArgs(
            function.as_ptr(),
            argument.as_ptr(),
            null_mut::<ffi::PyObject>(),
        );
        Bound::from_owned_ptr_or_err(function.py(), result)
    }
}

/// The address of the object's bytes.
pub fn bytes_of(token: &Bound<'_, PyBytes>) -> usize {
    // SAFETY: the GIL is held, and the object is of this type.
    unsafe { ffi::PyBytes_AsString(token.as_ptr()) as usize }
}

impl Marks {
    /// Returns `None` before the first job.
    pub fn get(py: Python<'_>) -> Option<&'static Marks> {
        MARKS.get(py)
    }

    /// Like [`Marks::get`]. `None` also if there are modules that Python has not searched yet.
    pub fn up_to_date(py: Python<'_>) -> Option<&'static Marks> {
        let n_modules = N_MODULES.load(Ordering::Relaxed);
        Marks::get(py).filter(|marks| marks.modules.bind(py).len() == n_modules)
    }

    pub fn add_running(&self, number: u32, job: &Bound<'_, JobBase>) {
        let before = running().insert(number, job.clone().unbind());
        // Dropped after the lock is released: dropping a job may run Python code.
        drop(before);
    }

    pub fn remove_running(&self, number: u32) {
        let job = running().remove(&number);
        drop(job);
    }

    /// Makes the job of a token current in the context of the caller. Returns the value that [`Marks::leave`] needs.
    pub fn enter(&self, py: Python<'_>, token: &Py<PyBytes>) -> PyResult<Py<PyAny>> {
        call_with(self.set.bind(py), token.bind(py)).map(Bound::unbind)
    }

    /// Undoes [`Marks::enter`].
    pub fn leave(&self, py: Python<'_>, reset: Py<PyAny>) -> PyResult<()> {
        match call_with(self.reset.bind(py), reset.bind(py)) {
            // The job began in another context, for example in a signal handler of a framework.
            Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(()),
            result => result.map(drop),
        }
    }

    /// Writes a job record if records are wanted: `event` is begin or end. Names are interned. Otherwise the
    /// interpreter's attribute cache would keep a new string each time and free the previous one, which would look like
    /// a free of the program.
    pub fn write_record(
        &self,
        job: &Bound<'_, JobBase>,
        event: &Bound<'_, PyString>,
    ) -> PyResult<()> {
        if ARE_RECORDS_UNWANTED.load(Ordering::Relaxed) {
            return Ok(());
        }
        let _own = OwnPython::begin();
        if self.wants_records.call0(job.py())?.is_truthy(job.py())? {
            job.call_method1(intern!(job.py(), "_record"), (event,))?;
        }
        Ok(())
    }

    /// Returns a key and labels with secret values hidden.
    pub fn shown(
        &self,
        py: Python<'_>,
        key: Option<Bound<'_, PyAny>>,
        labels: Bound<'_, PyDict>,
    ) -> PyResult<KeyAndLabels> {
        let (key, labels): (Option<Text>, Vec<(Text, Text)>) = match &self.redacted {
            Some(function) => function.call1(py, (key, labels.items()))?.extract(py)?,
            None => {
                let key = key.map(|key| key.extract()).transpose()?;
                let labels = labels.iter();
                let labels = labels.map(|(label, value)| Ok((label.extract()?, value.extract()?)));
                (key, labels.collect::<PyResult<_>>()?)
            }
        };
        Ok((key.map(|key| key.0), pairs(labels)))
    }
}

/// Returns the path of the capture that is being written. Jobs of one recording share the string.
pub fn capture_path(py: Python<'_>) -> Option<Py<PyAny>> {
    let number = session::active_number()?;
    if let Ok(Some((known, path))) = CAPTURE.try_lock().as_deref() {
        if *known == number {
            return Some(path.clone_ref(py));
        }
    }
    let path = FsText::from(session::active_path()?).into_pyobject(py);
    let path = path.ok()?.unbind();
    if let Ok(mut capture) = CAPTURE.try_lock() {
        let before = capture.replace((number, path.clone_ref(py)));
        drop(capture);
        drop(before);
    }
    Some(path)
}
