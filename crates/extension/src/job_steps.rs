//! Work for a running job: a block of code, and a generator, every step of whose body runs as part of the job.
//!
//! A decorated generator function delegates to this iterator with `yield from`, so it remains a generator function, and
//! values, exceptions and `close` reach the body. The job is current only while the body runs, not while its consumer does.

use pyo3::exceptions::{PyGeneratorExit, PyStopIteration};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::iterator::PySendResult;
use pyo3::types::{PyAny, PyBytes, PyDict, PyIterator, PyTuple};

use crate::job_base::JobBase;
use crate::job_marks::Marks;

#[pyclass]
pub struct JobSteps {
    job: Py<JobBase>,
    /// `None` while a step runs, and once the job has ended.
    body: Option<Body>,
}

enum Body {
    /// The first step calls the function, because its arguments and its generator belong to the job.
    Function(Py<PyAny>, Py<PyTuple>, Py<PyDict>),
    Generator(Py<PyAny>),
}

impl JobSteps {
    pub fn new(
        job: &Bound<'_, JobBase>,
        function: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> JobSteps {
        let (function, args) = (function.clone().unbind(), args.clone().unbind());
        JobSteps {
            job: job.clone().unbind(),
            body: Some(Body::Function(function, args, kwargs.clone().unbind())),
        }
    }

    /// Runs one step as part of the job, and ends the job with the generator. `None` is the end without a result.
    fn advance<'py>(
        slf: &Bound<'py, JobSteps>,
        step: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<PySendResult<'py>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = slf.py();
        let mut steps = slf.borrow_mut();
        let Some(body) = steps.body.take() else {
            return Ok(None);
        };
        let job = steps.job.bind(py).clone();
        drop(steps);
        let mut entered = JobBase::entered(&job);
        entered.enter(py)?;
        let generator = match body {
            Body::Generator(generator) => Ok(generator.into_bound(py)),
            Body::Function(function, args, kwargs) => {
                let kwargs = Some(kwargs.bind(py)).filter(|kwargs| !kwargs.is_empty());
                function.bind(py).call(args.bind(py), kwargs)
            }
        };
        let result = generator.and_then(|generator| {
            let result = step(&generator)?;
            if let PySendResult::Next(_) = result {
                slf.borrow_mut().body = Some(Body::Generator(generator.unbind()));
            }
            Ok(result)
        });
        entered.leave(py)?;
        let error = match result {
            Ok(PySendResult::Next(produced)) => return Ok(Some(produced)),
            Ok(PySendResult::Return(result)) if result.is_none() => None,
            Ok(PySendResult::Return(result)) => Some(PyStopIteration::new_err((result.unbind(),))),
            Err(error) => Some(error),
        };
        let failure = error.as_ref().filter(|error| !is_end(py, error));
        let failure = failure.map(|error| error.get_type(py).into_any());
        JobBase::end_contained(&job, failure)?;
        error.map_or(Ok(None), Err)
    }
}

#[pymethods]
impl JobSteps {
    fn __iter__(slf: Bound<'_, JobSteps>) -> Bound<'_, JobSteps> {
        slf
    }

    fn __next__<'py>(slf: &Bound<'py, JobSteps>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let none = slf.py().None().into_bound(slf.py());
        JobSteps::advance(slf, |generator| send(generator, &none))
    }

    fn send<'py>(
        slf: &Bound<'py, JobSteps>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let produced = JobSteps::advance(slf, |generator| send(generator, value))?;
        produced.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// `args` is an exception, or its type, value and traceback.
    #[pyo3(signature = (*args))]
    fn throw<'py>(
        slf: &Bound<'py, JobSteps>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let produced = JobSteps::advance(slf, |generator| {
            let produced = generator.call_method1(intern!(generator.py(), "throw"), args)?;
            Ok(PySendResult::Next(produced))
        })?;
        produced.ok_or_else(|| PyStopIteration::new_err(()))
    }

    fn close(slf: &Bound<'_, JobSteps>) -> PyResult<()> {
        JobSteps::advance(slf, |generator| {
            generator.call_method0(intern!(generator.py(), "close"))?;
            Ok(PySendResult::Return(
                generator.py().None().into_bound(generator.py()),
            ))
        })?;
        Ok(())
    }

    // The body may refer to the generator that runs it.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.job)?;
        match &self.body {
            Some(Body::Generator(generator)) => visit.call(generator),
            Some(Body::Function(function, args, kwargs)) => {
                visit.call(function)?;
                visit.call(args)?;
                visit.call(kwargs)
            }
            None => Ok(()),
        }
    }

    fn __clear__(&mut self) {
        self.body = None;
    }
}

/// Whether a generator ended as planned: it returned, or its consumer closed it.
fn is_end(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyStopIteration>(py) || error.is_instance_of::<PyGeneratorExit>(py)
}

/// Resumes a generator without making an exception of its end.
fn send<'py>(
    generator: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<PySendResult<'py>> {
    // `call` returned what a generator function returns; anything else raises TypeError here.
    generator.cast::<PyIterator>()?.send(value)
}

/// Makes a job current until the end of the `with` block.
#[pyclass]
pub struct EnteredJob {
    token: Option<Py<PyBytes>>,
    reset: Option<Py<PyAny>>,
}

#[pymethods]
impl EnteredJob {
    #[pyo3(name = "__enter__")]
    pub fn enter(&mut self, py: Python<'_>) -> PyResult<()> {
        if let (Some(token), Some(marks)) = (&self.token, Marks::get(py)) {
            self.reset = Some(marks.enter(py, token)?);
        }
        Ok(())
    }

    fn __exit__(
        &mut self,
        py: Python<'_>,
        _error_type: Bound<'_, PyAny>,
        _error: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.leave(py)
    }
}

impl EnteredJob {
    pub fn new(token: Option<Py<PyBytes>>) -> EnteredJob {
        EnteredJob { token, reset: None }
    }

    pub fn leave(&mut self, py: Python<'_>) -> PyResult<()> {
        match (self.reset.take(), Marks::get(py)) {
            (Some(reset), Some(marks)) => marks.leave(py, reset),
            _ => Ok(()),
        }
    }
}
