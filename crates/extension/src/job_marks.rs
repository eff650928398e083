//! The marks of running jobs, and the state that all of them share: the context variable of the current job, and functions
//! of `heaptide.jobs`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use heaptide_agent::cpython::Symbols;
use heaptide_agent::jobs::marks;
use heaptide_agent::record::threads::OwnPython;
use heaptide_agent::session;
use heaptide_capture::Outcome;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyAny, PyBytes, PyDict, PyString, PyType};

use crate::job_base::JobBase;
use crate::text::{FsText, Text, pairs};

/// The key of a job, and its labels.
type KeyAndLabels = (Option<String>, Vec<(String, String)>);

/// The Python objects that a mark needs.
pub struct Marks {
    /// The context variable whose values are the tokens of jobs.
    variable: Py<PyAny>,
    symbols: Symbols,
    /// `sys.modules`.
    modules: Py<PyDict>,
    /// Whether hooks find jobs by the context; if not, they find them by the thread.
    pub are_contexts_read: bool,
    /// A function that returns a key and labels with secret values hidden; `None` if nothing is secret.
    redacted: Option<Py<PyAny>>,
    /// A function that returns whether job records are written.
    wants_records: Py<PyAny>,
}

static MARKS: PyOnceLock<Marks> = PyOnceLock::new();
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
    reason = "the only caller passes each argument by name"
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
    let symbols = Symbols::resolve().map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    // The variable must outlive all hooks; a process has only one.
    let address = variable.clone().into_ptr() as usize;
    // SAFETY: the reference above is never released.
    unsafe { marks::prepare(address, token.as_ptr() as usize, bytes_of(token)) };
    MARKS.get_or_init(py, || Marks {
        variable: variable.clone().unbind(),
        symbols,
        modules,
        are_contexts_read,
        redacted,
        wants_records,
    });
    Ok(())
}

/// Stores the length of `sys.modules` at Python's last search for modules that start threads.
#[pyfunction]
pub fn note_searched_modules(n_modules: usize) {
    N_MODULES.store(n_modules, Ordering::Relaxed);
}

/// Stores whether the settings of this process name no folder for job records. A forked child reads them again.
#[pyfunction]
pub fn note_unwanted_job_records(are_unwanted: bool) {
    ARE_RECORDS_UNWANTED.store(are_unwanted, Ordering::Relaxed);
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

    /// Whether the settings name no folder for job records.
    pub fn are_records_unwanted() -> bool {
        ARE_RECORDS_UNWANTED.load(Ordering::Relaxed)
    }

    /// Makes the job of a token current in the context of the caller. Returns the value that [`Marks::leave`] needs.
    pub fn enter(&self, token: &Bound<'_, PyBytes>) -> PyResult<Py<PyAny>> {
        // SAFETY: the GIL is held, and both objects are alive. The result is a new reference, or NULL with an exception.
        unsafe {
            let reset =
                (self.symbols.context_set)(self.variable.as_ptr().cast(), token.as_ptr().cast());
            Bound::from_owned_ptr_or_err(token.py(), reset.cast()).map(Bound::unbind)
        }
    }

    /// Undoes [`Marks::enter`].
    pub fn leave(&self, py: Python<'_>, reset: Py<PyAny>) -> PyResult<()> {
        let reset = reset.into_bound(py);
        // SAFETY: the GIL is held, both objects are alive, and `enter` got `reset` from this variable.
        let code = unsafe {
            (self.symbols.context_reset)(self.variable.as_ptr().cast(), reset.as_ptr().cast())
        };
        if code == 0 {
            return Ok(());
        }
        match PyErr::fetch(py) {
            // The job began in another context, for example in a signal handler of a framework.
            error if error.is_instance_of::<PyValueError>(py) => Ok(()),
            error => Err(error),
        }
    }

    /// Writes a job record if records are wanted: `event` is begin or end. The method's name is interned. Otherwise the
    /// interpreter's attribute cache would keep a new string each time and free the previous one, which would appear as
    /// a free of the program.
    pub fn write_record(
        &self,
        job: &Bound<'_, JobBase>,
        event: &Bound<'_, PyString>,
    ) -> PyResult<()> {
        if Marks::are_records_unwanted() {
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

/// The mark of a running job.
pub struct Mark {
    pub number: u32,
    /// The number of the enclosing job; 0 if there is none.
    pub outer: u32,
    /// The value of the context variable by which hooks find the job.
    pub token: Py<PyBytes>,
    /// The value that [`Marks::leave`] needs; `None` if the job is not current.
    pub reset: Option<Py<PyAny>>,
}

impl Mark {
    /// Begins a job that is not current yet. Also returns whether a recording is active.
    pub fn begin(py: Python<'_>) -> (Mark, bool) {
        let begun = marks::begin();
        let mark = Mark {
            number: begun.number,
            outer: begun.outer,
            // Eight bytes, so that the object is unique: the interpreter shares bytes objects of up to one byte.
            token: PyBytes::new(py, &u64::from(begun.number).to_le_bytes()).unbind(),
            reset: None,
        };
        (mark, begun.is_recorded)
    }

    /// Ends the job. By default its outcome is ok, or failed if there is an error. Returns the outcome and the name of the
    /// error.
    pub fn end<'py>(
        self,
        py: Python<'py>,
        marks: &Marks,
        outcome: Option<Outcome>,
        error: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Outcome, Option<Bound<'py, PyAny>>)> {
        let error = error.as_ref().map(name_of_error).transpose()?;
        let outcome = outcome.unwrap_or(match &error {
            Some(_) => Outcome::Failed,
            None => Outcome::Ok,
        });
        let text: Option<Text> = error.as_ref().map(|error| error.extract()).transpose()?;
        let text = text.as_ref().map_or("", |text| &text.0);
        // SAFETY: `Mark::begin` made the token, and only the context variable and its job refer to it; `self` keeps it
        // alive.
        unsafe { marks::end(self.number, bytes_of(self.token.bind(py)), outcome, text) };
        if let Some(reset) = self.reset {
            marks.leave(py, reset)?;
        }
        Ok((outcome, error))
    }
}

/// The name of an exception's type; a string is a name already.
fn name_of_error<'py>(error: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if error.is_instance_of::<PyString>() {
        return Ok(error.clone());
    }
    match error.cast::<PyType>() {
        Ok(error) => Ok(error.qualname()?.into_any()),
        Err(_) => Ok(error.get_type().qualname()?.into_any()),
    }
}
