//! The base class of `heaptide.jobs.Job`: begins and ends a job without calling Python code.
//!
//! Python code runs only if modules were imported since the last job, if the job begins for another thread, if job records
//! are written, or if the settings hide keys and labels. A failure is reported by `heaptide.containment`, and the program
//! continues.

use std::time::{SystemTime, UNIX_EPOCH};

use heaptide_agent::jobs::marks::{self, Description};
use heaptide_agent::record::threads::OwnPython;
use heaptide_capture::Outcome;
use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyAny, PyBytes, PyDict, PyString, PyTuple, PyType};

use crate::job_async_steps::AsyncJobSteps;
use crate::job_calls::JobCall;
use crate::job_marks::{Mark, Marks, bytes_of, capture_path};
use crate::job_steps::JobSteps;
use crate::running_jobs::{self, Running};
use crate::text::Text;

/// `heaptide.jobs.Job`, the class of new jobs.
static JOB_CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The attributes of a job. `heaptide.jobs.Job` documents them.
#[pyclass(subclass)]
pub struct JobBase {
    #[pyo3(get, set)]
    name: Py<PyAny>,
    #[pyo3(get, set)]
    key: Option<Py<PyAny>>,
    labels: Py<PyDict>,
    /// This job was made from another one and shares the dict of its labels. The program gets a copy.
    are_labels_shared: bool,
    #[pyo3(get, set)]
    number: u32,
    #[pyo3(get, set)]
    started: Option<f64>,
    #[pyo3(get, set)]
    seconds: Option<f64>,
    #[pyo3(get, set)]
    error: Option<Py<PyAny>>,
    #[pyo3(get, set)]
    resident_before: Option<u64>,
    #[pyo3(get, set)]
    resident_after: Option<u64>,
    #[pyo3(get, set)]
    resident_peak: Option<u64>,
    #[pyo3(get, set)]
    capture: Option<Py<PyAny>>,
    /// The operating system's number of the thread in which it began; 0 if unknown.
    #[pyo3(get, set)]
    thread: u32,
    outcome: Outcome,
    /// `None` unless the job is running.
    mark: Option<Mark>,
}

/// Seconds since 1970, as `time.time()` returns them.
pub fn seconds_now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

fn as_text(value: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    if value.is_exact_instance_of::<PyString>() {
        return Ok(value.unbind());
    }
    Ok(value.str()?.into_any().unbind())
}

fn as_labels(labels: Bound<'_, PyDict>) -> PyResult<Py<PyDict>> {
    for (label, value) in labels.iter() {
        if !value.is_exact_instance_of::<PyString>() {
            labels.set_item(label, value.str()?)?;
        }
    }
    Ok(labels.unbind())
}

/// Reports a failure of Heaptide. Exceptions that belong to the program, such as KeyboardInterrupt, are raised.
pub fn contained(job: &Bound<'_, JobBase>, result: PyResult<()>) -> PyResult<()> {
    match result {
        Err(error) if error.is_instance_of::<PyException>(job.py()) => {
            let _own = OwnPython::begin();
            let error = error.into_value(job.py());
            job.call_method1("_report_failure", (error,)).map(drop)
        }
        result => result,
    }
}

impl JobBase {
    /// Begins the job in the calling thread, or in the one with this ident.
    pub fn begin_in(
        slf: &Bound<'_, JobBase>,
        thread: Option<usize>,
        is_current: bool,
    ) -> PyResult<()> {
        let py = slf.py();
        if slf.borrow().mark.is_some() {
            let name = slf.borrow().name.clone_ref(py);
            return Err(PyRuntimeError::new_err(format!(
                "job {name} has begun already; make a new job for each unit of work"
            )));
        }
        let marks = JobBase::prepared(slf)?;
        let started = seconds_now();
        let (mark, is_recorded) = Mark::begin(py);
        let number = mark.number;
        running_jobs::add(number, Running::Job(slf.clone().unbind()));
        let mut job = slf.borrow_mut();
        if job.number != 0 {
            job.forget_last_run();
        }
        job.adopt(mark, started);
        drop(job);
        if is_recorded || thread.is_some() || !marks.are_contexts_read {
            JobBase::begin_slowly(slf, marks, thread, is_recorded)?;
        }
        marks.write_record(slf, intern!(py, "begin"))?;
        if is_current && thread.is_none_or(|thread| thread == marks::own_thread()) {
            // From here on the hooks assign memory to the job.
            let token = slf.borrow().token(py);
            let reset = token.map(|token| marks.enter(token.bind(py))).transpose()?;
            if let Some(mark) = &mut slf.borrow_mut().mark {
                mark.reset = reset;
            }
        }
        Ok(())
    }

    /// Returns the state of job marks, after the preparation that the process needs for them.
    pub fn prepared(slf: &Bound<'_, JobBase>) -> PyResult<&'static Marks> {
        let py = slf.py();
        if let Some(marks) = Marks::up_to_date(py) {
            return Ok(marks);
        }
        let _own = OwnPython::begin();
        slf.call_method0(intern!(py, "_prepare"))?;
        Marks::get(py)
            .ok_or_else(|| PyRuntimeError::new_err("the process could not be prepared for jobs"))
    }

    /// Returns a new job with the same name, key and labels.
    pub fn another<'py>(slf: &Bound<'py, JobBase>) -> PyResult<Bound<'py, JobBase>> {
        let py = slf.py();
        let job = slf.borrow();
        let (name, key) = (
            job.name.clone_ref(py),
            job.key.as_ref().map(|key| key.clone_ref(py)),
        );
        let labels = job.labels.clone_ref(py);
        drop(job);
        let class = JOB_CLASS.import(py, "heaptide.jobs.job", "Job")?;
        let other = class.call1((name, key))?.cast_into::<JobBase>()?;
        let mut job = other.borrow_mut();
        job.labels = labels;
        job.are_labels_shared = true;
        drop(job);
        Ok(other)
    }

    /// Makes this object describe the job that `mark` began.
    pub fn adopt(&mut self, mark: Mark, started: f64) {
        self.number = mark.number;
        self.started = Some(started);
        self.mark = Some(mark);
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// The running job's token. `None` if the job does not run.
    pub fn token(&self, py: Python<'_>) -> Option<Py<PyBytes>> {
        self.mark.as_ref().map(|mark| mark.token.clone_ref(py))
    }

    /// Begins the job, calls a function, and ends the job.
    fn run_whole<'py>(
        slf: &Bound<'py, JobBase>,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        contained(slf, JobBase::begin_in(slf, None, true))?;
        let result = function.call(args, kwargs);
        let error = result.as_ref().err();
        let error = error.map(|error| error.get_type(slf.py()).into_any());
        JobBase::end_contained(slf, error)?;
        result
    }

    fn forget_last_run(&mut self) {
        self.seconds = None;
        self.outcome = Outcome::Running;
        self.error = None;
        self.resident_before = None;
        self.resident_after = None;
        self.resident_peak = None;
        self.capture = None;
        self.thread = 0;
    }

    /// The part of [`JobBase::begin_in`] that is needed only if the job is recorded, or if hooks find it by its thread.
    #[cold]
    fn begin_slowly(
        slf: &Bound<'_, JobBase>,
        marks: &Marks,
        thread: Option<usize>,
        is_recorded: bool,
    ) -> PyResult<()> {
        let here = marks::own_thread();
        let job_thread = thread.unwrap_or(here);
        let is_elsewhere = job_thread != here;
        let os_id = match is_elsewhere {
            true => {
                let _own = OwnPython::begin();
                slf.call_method1("_native_id", (job_thread,))?.extract()?
            }
            false => marks::own_thread_id(),
        };
        let mut job = slf.borrow_mut();
        job.thread = os_id;
        let number = job.number;
        drop(job);
        // Hooks find the job by the context. If contexts cannot be read, or if the job runs in another thread, they find it by
        // the thread.
        let is_assigned = if is_elsewhere || !marks.are_contexts_read {
            marks::assign(number, job_thread)
        } else {
            true
        };
        if is_recorded {
            JobBase::announce(slf, marks)?;
            slf.borrow_mut().resident_before = marks::resident_bytes();
        }
        if !is_assigned {
            return Err(PyRuntimeError::new_err(
                "too many threads have jobs that other threads began for them",
            ));
        }
        Ok(())
    }

    /// Describes the running job in the current recording.
    pub fn announce(slf: &Bound<'_, JobBase>, marks: &Marks) -> PyResult<()> {
        let py = slf.py();
        let _own = OwnPython::begin();
        let job = slf.borrow();
        let Some(mark) = &job.mark else {
            return Ok(());
        };
        let (token, outer) = (mark.token.clone_ref(py), mark.outer);
        let (name, labels) = (job.name.clone_ref(py), job.labels.clone_ref(py));
        let key = job.key.as_ref().map(|key| key.bind(py).clone());
        let (number, thread) = (job.number, job.thread);
        let started = job.started.unwrap_or(0.0);
        drop(job);
        slf.borrow_mut().capture = capture_path(py);
        let name: Text = name.extract(py)?;
        let (key, labels) = marks.shown(py, key, labels.into_bound(py))?;
        let description = Description {
            number,
            name: &name.0,
            key: key.as_deref(),
            labels: &labels,
            outer,
            thread,
            began_unix_ns: (started * 1e9) as u64,
        };
        // SAFETY: `Mark::begin` made the token, and only the context variable and this job refer to it; `token` keeps
        // it alive.
        unsafe { marks::announce(&description, bytes_of(token.bind(py))) };
        Ok(())
    }

    /// Like [`JobBase::end_with`], and reports a failure of Heaptide instead of returning it.
    pub fn end_contained(
        slf: &Bound<'_, JobBase>,
        error: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        contained(slf, JobBase::end_with(slf, None, error))
    }

    /// Ends the job. By default its outcome is ok, or failed if there is an error.
    fn end_with(
        slf: &Bound<'_, JobBase>,
        outcome: Option<Outcome>,
        error: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let mut job = slf.borrow_mut();
        let (Some(mark), Some(marks)) = (job.mark.take(), Marks::get(py)) else {
            return Ok(());
        };
        let (number, started) = (job.number, job.started.unwrap_or(0.0));
        drop(job);
        let (outcome, error) = mark.end(py, marks, outcome, error)?;
        running_jobs::remove(number);
        let mut job = slf.borrow_mut();
        job.seconds = Some((seconds_now() - started).max(0.0));
        job.outcome = outcome;
        if let Some(error) = error {
            job.error = Some(error.unbind());
        }
        if job.capture.is_some() {
            job.resident_after = marks::resident_bytes();
        }
        drop(job);
        marks.write_record(slf, intern!(py, "end"))
    }
}

#[pymethods]
impl JobBase {
    #[new]
    #[pyo3(signature = (name, key = None, **labels))]
    fn new(
        py: Python<'_>,
        name: Bound<'_, PyAny>,
        key: Option<Bound<'_, PyAny>>,
        labels: Option<Bound<'_, PyDict>>,
    ) -> PyResult<JobBase> {
        Ok(JobBase {
            name: as_text(name)?,
            key: key.map(as_text).transpose()?,
            labels: as_labels(labels.unwrap_or_else(|| PyDict::new(py)))?,
            are_labels_shared: false,
            number: 0,
            started: None,
            seconds: None,
            error: None,
            resident_before: None,
            resident_after: None,
            resident_peak: None,
            capture: None,
            thread: 0,
            outcome: Outcome::Running,
            mark: None,
        })
    }

    #[getter]
    fn labels(&mut self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        if self.are_labels_shared {
            self.labels = self.labels.bind(py).copy()?.unbind();
            self.are_labels_shared = false;
        }
        Ok(self.labels.clone_ref(py))
    }

    #[setter]
    fn set_labels(&mut self, labels: Py<PyDict>) {
        self.labels = labels;
        self.are_labels_shared = false;
    }

    #[getter]
    fn outcome(&self) -> &'static str {
        self.outcome.name()
    }

    #[setter]
    fn set_outcome(&mut self, name: &str) -> PyResult<()> {
        self.outcome = outcome_of(name)?;
        Ok(())
    }

    /// Whether the job has begun and not ended.
    #[getter]
    fn is_running(&self) -> bool {
        self.mark.is_some()
    }

    /// Begin the job here, or in another thread.
    ///
    /// thread   the ident of the thread that works for the job (``threading.get_ident()`` there). Without it, the
    ///          job begins in the calling thread, greenlet or task. Other threads work for it inside `run`.
    #[pyo3(signature = (thread = None))]
    fn begin<'py>(
        slf: &Bound<'py, JobBase>,
        thread: Option<usize>,
    ) -> PyResult<Bound<'py, JobBase>> {
        contained(slf, JobBase::begin_in(slf, thread, true))?;
        Ok(slf.clone())
    }

    /// End the job. May be called from any thread. By default its outcome is ok, or failed if there is an error.
    #[pyo3(signature = (outcome = None, error = None))]
    fn end(
        slf: &Bound<'_, JobBase>,
        outcome: Option<&str>,
        error: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let outcome = outcome.map(outcome_of).transpose()?;
        contained(slf, JobBase::end_with(slf, outcome, error))
    }

    fn __enter__<'py>(slf: &Bound<'py, JobBase>) -> PyResult<Bound<'py, JobBase>> {
        JobBase::begin(slf, None)
    }

    fn __exit__(
        slf: &Bound<'_, JobBase>,
        error_type: Option<Bound<'_, PyAny>>,
        _error: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        JobBase::end_contained(slf, error_type)
    }

    /// Call a function as part of the job, in any thread. If the job has not begun, the call is the whole job.
    #[pyo3(signature = (function, /, *args, **kwargs))]
    fn run<'py>(
        slf: &Bound<'py, JobBase>,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let token = slf.borrow().token(py);
        let (Some(token), Some(marks)) = (token, Marks::get(py)) else {
            return JobBase::run_whole(slf, function, args, kwargs);
        };
        let reset = marks.enter(token.bind(py))?;
        let result = function.call(args, kwargs);
        marks.leave(py, reset)?;
        result
    }

    /// Call a function as a new job like this one. Decorated functions do this.
    fn run_another<'py>(
        slf: &Bound<'py, JobBase>,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut call = JobCall::new(slf);
        call.begin(slf.py(), true)?;
        let kwargs = Some(kwargs).filter(|kwargs| !kwargs.is_empty());
        let result = function.call(args, kwargs);
        let error = result.as_ref().err();
        let error = error.map(|error| error.get_type(slf.py()).into_any());
        JobCall::end(slf.py(), call.number(), error)?;
        result
    }

    /// Return a context manager that is a new job like this one.
    fn call(slf: &Bound<'_, JobBase>) -> JobCall {
        JobCall::new(slf)
    }

    /// Begin a new job like this one. Return an iterator over the generator that the function returns, as part of the job.
    fn steps(
        slf: &Bound<'_, JobBase>,
        function: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> PyResult<JobSteps> {
        let mut call = JobCall::new(slf);
        call.begin(slf.py(), false)?;
        Ok(JobSteps::new(call, function, args, kwargs))
    }

    /// Return an asynchronous generator whose first step begins a new job like this one.
    fn async_steps(
        slf: &Bound<'_, JobBase>,
        function: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> AsyncJobSteps {
        AsyncJobSteps::new(JobCall::new(slf), function, args, kwargs)
    }
}

fn outcome_of(name: &str) -> PyResult<Outcome> {
    Outcome::from_name(name).ok_or_else(|| {
        let mut names: Vec<&str> = Outcome::ALL.into_iter().map(Outcome::name).collect();
        // The first outcome is that of a job that has not ended; name it last.
        names.rotate_left(1);
        let names = names.join(", ");
        PyValueError::new_err(format!("outcome must be one of {names}, not '{name}'"))
    })
}
