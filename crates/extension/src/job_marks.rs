//! What all job marks share: the context variable of the current job, the running jobs, and functions of `heaptide.jobs`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use heaptide_agent::jobs::marks;
use heaptide_agent::session;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyAny, PyBytes, PyDict};

use crate::job_base::JobBase;
use crate::text::{FsText, Text, pairs};

/// The key of a job, and its labels.
type KeyAndLabels = (Option<String>, Vec<(String, String)>);

/// What a mark needs from Python.
pub struct Marks {
    /// `set` and `reset` of the context variable whose values are the tokens of jobs.
    set: Py<PyAny>,
    reset: Py<PyAny>,
    /// The running jobs by number.
    running: Py<PyDict>,
    /// `sys.modules`.
    modules: Py<PyDict>,
    /// Whether contexts name jobs to the hooks; if not, threads do.
    pub are_contexts_read: bool,
    /// Returns a key and labels without what must not be stored; `None` if nothing is hidden.
    redacted: Option<Py<PyAny>>,
    /// Returns whether job records are written.
    wants_records: Py<PyAny>,
}

static MARKS: PyOnceLock<Marks> = PyOnceLock::new();
/// The length of `sys.modules` when Python last searched it; another one means that it must search again.
static N_MODULES: AtomicUsize = AtomicUsize::new(0);
/// The number of a session and the path of its capture.
static CAPTURE: Mutex<Option<(u32, Py<PyAny>)>> = Mutex::new(None);

/// Prepares the process for job marks. Only the first call counts.
#[pyfunction]
#[pyo3(signature = (variable, token, *, running, modules, are_contexts_read, redacted, wants_records))]
#[allow(
    clippy::too_many_arguments,
    reason = "each with its name at the only caller"
)]
pub fn prepare_job_marks(
    py: Python<'_>,
    variable: &Bound<'_, PyAny>,
    token: &Bound<'_, PyBytes>,
    running: Py<PyDict>,
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
        running,
        modules,
        are_contexts_read,
        redacted,
        wants_records,
    });
    Ok(())
}

/// Notes how many modules Python has searched for ones that start threads.
#[pyfunction]
pub fn note_searched_modules(n_modules: usize) {
    N_MODULES.store(n_modules, Ordering::Relaxed);
}

/// Announces the running jobs in a recording that has just started.
pub fn announce_all(py: Python<'_>) {
    let Some(marks) = Marks::get(py) else { return };
    for job in marks.running.bind(py).values() {
        if let Ok(job) = job.cast::<JobBase>() {
            // A job that cannot be announced is recorded without its description.
            drop(JobBase::announce(job, marks));
        }
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

    pub fn add_running(&self, number: u32, job: &Bound<'_, JobBase>) -> PyResult<()> {
        self.running.bind(job.py()).set_item(number, job)
    }

    pub fn remove_running(&self, py: Python<'_>, number: u32) {
        // It is missing only if the program has emptied the dictionary.
        drop(self.running.bind(py).del_item(number));
    }

    /// Makes the job of a token current in the context of the caller. Returns what [`Marks::leave`] needs.
    pub fn enter(&self, py: Python<'_>, token: &Py<PyBytes>) -> PyResult<Py<PyAny>> {
        self.set.call1(py, (token,))
    }

    /// Undoes [`Marks::enter`].
    pub fn leave(&self, py: Python<'_>, reset: Py<PyAny>) -> PyResult<()> {
        match self.reset.call1(py, (reset,)) {
            // The job began in another context, as signal handlers of a framework may do.
            Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(()),
            result => result.map(drop),
        }
    }

    pub fn wants_records(&self, py: Python<'_>) -> PyResult<bool> {
        self.wants_records.call0(py)?.is_truthy(py)
    }

    /// Returns a key and labels without what must not be stored.
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
