//! One call of a decorated function. Each call is a separate job.

use heaptide_agent::session;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes};

use crate::job_base::{JobBase, contained, seconds_now};
use crate::job_marks::{Mark, Marks};
use crate::running_jobs::{self, Call, Running};

/// Asynchronous functions use it as a context manager.
#[pyclass]
pub struct JobCall {
    /// The job that decorated the function.
    like: Py<JobBase>,
    /// 0 before the call begins.
    number: u32,
    token: Option<Py<PyBytes>>,
}

pub struct Entry<'py> {
    number: u32,
    token: Option<Bound<'py, PyBytes>>,
}

impl Entry<'_> {
    /// Makes the job current. Returns the value that [`JobCall::leave`] needs; `None` if the program has ended the job.
    pub fn enter(self) -> PyResult<Option<Py<PyAny>>> {
        let Some(token) = self.token.filter(|_| running_jobs::contains(self.number)) else {
            return Ok(None);
        };
        match Marks::get(token.py()) {
            Some(marks) => marks.enter(&token).map(Some),
            None => Ok(None),
        }
    }
}

impl JobCall {
    pub fn new(like: &Bound<'_, JobBase>) -> JobCall {
        JobCall {
            like: like.clone().unbind(),
            number: 0,
            token: None,
        }
    }

    /// A call of the same function, which has not begun.
    pub fn another(&self, py: Python<'_>) -> JobCall {
        JobCall::new(self.like.bind(py))
    }

    /// The same job, for another owner.
    pub fn same(&self, py: Python<'_>) -> JobCall {
        JobCall {
            like: self.like.clone_ref(py),
            number: self.number,
            token: self.token.as_ref().map(|token| token.clone_ref(py)),
        }
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// Begins the job. If it is not current, only the code between [`JobCall::enter`] and [`JobCall::leave`] belongs to it.
    pub fn begin(&mut self, py: Python<'_>, is_current: bool) -> PyResult<()> {
        let result = self.try_begin(py, is_current);
        contained(self.like.bind(py), result)
    }

    fn try_begin(&mut self, py: Python<'_>, is_current: bool) -> PyResult<()> {
        let like = self.like.bind(py);
        let marks = JobBase::prepared(like)?;
        if session::active_number().is_some()
            || !marks.are_contexts_read
            || !Marks::are_records_unwanted()
        {
            let job = JobBase::another(like)?;
            let result = JobBase::begin_in(&job, None, is_current);
            let job = job.borrow();
            (self.number, self.token) = (job.number(), job.token(py));
            return result;
        }
        let started = seconds_now();
        let (mut mark, _) = Mark::begin(py);
        (self.number, self.token) = (mark.number, Some(mark.token.clone_ref(py)));
        mark.reset = is_current
            .then(|| marks.enter(mark.token.bind(py)))
            .transpose()?;
        let like = self.like.clone_ref(py);
        let call = Call {
            like,
            mark,
            started,
        };
        running_jobs::add(self.number, Running::Call(call));
        Ok(())
    }

    /// Ends the job with this number, unless the program has ended it.
    pub fn end(py: Python<'_>, number: u32, error: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        match (running_jobs::remove(number), Marks::get(py)) {
            (Some(Running::Job(job)), _) => JobBase::end_contained(job.bind(py), error),
            (Some(Running::Call(call)), Some(marks)) => {
                let ended = call.mark.end(py, marks, None, error);
                contained(call.like.bind(py), ended.map(drop))
            }
            _ => Ok(()),
        }
    }

    /// Returns an entry that makes the job current. The caller can end its borrow of this call before it enters.
    pub fn entry<'py>(&self, py: Python<'py>) -> Entry<'py> {
        Entry {
            number: self.number,
            token: self.token.as_ref().map(|token| token.bind(py).clone()),
        }
    }

    /// Makes the job current, as [`Entry::enter`] does.
    pub fn enter(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.entry(py).enter()
    }

    /// Drops a call. With `py`, PyO3 need not check whether the GIL is held.
    pub fn discard(self, py: Python<'_>) {
        drop(self.like.into_bound(py));
        drop(self.token.map(|token| token.into_bound(py)));
    }

    /// Undoes [`JobCall::enter`].
    pub fn leave(py: Python<'_>, reset: Option<Py<PyAny>>) -> PyResult<()> {
        match (reset, Marks::get(py)) {
            (Some(reset), Some(marks)) => marks.leave(py, reset),
            _ => Ok(()),
        }
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.like)
    }
}

#[pymethods]
impl JobCall {
    fn __enter__(&mut self, py: Python<'_>) -> PyResult<()> {
        self.begin(py, true)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        error_type: Option<Bound<'_, PyAny>>,
        _error: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        JobCall::end(py, self.number, error_type)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.visit(&visit)
    }
}
