//! The steps of a decorated generator function. Each step of its body runs as part of the job.
//!
//! The decorated function delegates to this iterator with `yield from`, so it remains a generator function, and values,
//! exceptions and `close` reach the body. The job is current only while the body runs, not while its consumer does.

use pyo3::exceptions::{PyGeneratorExit, PyStopAsyncIteration, PyStopIteration};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::iterator::PySendResult;
use pyo3::types::{PyAny, PyDict, PyIterator, PyTuple};

use crate::job_calls::JobCall;

#[pyclass]
pub struct JobSteps {
    call: JobCall,
    /// `None` while a step runs, and once the job has ended.
    body: Option<Body>,
}

pub enum Body {
    /// The first step calls the function, because its arguments and its generator belong to the job.
    Function(Py<PyAny>, Py<PyTuple>, Py<PyDict>),
    Generator(Py<PyAny>),
}

impl Body {
    pub fn function(
        function: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> Body {
        let (function, args) = (function.clone().unbind(), args.clone().unbind());
        Body::Function(function, args, kwargs.clone().unbind())
    }

    pub fn generator(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Body::Generator(generator) => Ok(generator.into_bound(py)),
            Body::Function(function, args, kwargs) => {
                let kwargs = Some(kwargs.bind(py)).filter(|kwargs| !kwargs.is_empty());
                function.bind(py).call(args.bind(py), kwargs)
            }
        }
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Body::Generator(generator) => visit.call(generator),
            Body::Function(function, args, kwargs) => {
                visit.call(function)?;
                visit.call(args)?;
                visit.call(kwargs)
            }
        }
    }
}

impl JobSteps {
    pub fn new(
        call: JobCall,
        function: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> JobSteps {
        JobSteps {
            call,
            body: Some(Body::function(function, args, kwargs)),
        }
    }

    /// Runs one step as part of the job. When the generator ends, the job ends. Returns the value that the step
    /// yielded, or `None` if the generator returned no result.
    fn advance<'py>(
        slf: &Bound<'py, JobSteps>,
        step: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<PySendResult<'py>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = slf.py();
        let Some(body) = slf.borrow_mut().body.take() else {
            return Ok(None);
        };
        let reset = slf.borrow().call.enter(py)?;
        let result = body.generator(py).and_then(|generator| {
            let result = step(&generator)?;
            if let PySendResult::Next(_) = result {
                slf.borrow_mut().body = Some(Body::Generator(generator.unbind()));
            }
            Ok(result)
        });
        JobCall::leave(py, reset)?;
        let error = match result {
            Ok(PySendResult::Next(produced)) => return Ok(Some(produced)),
            Ok(PySendResult::Return(result)) if result.is_none() => None,
            Ok(PySendResult::Return(result)) => Some(PyStopIteration::new_err((result.unbind(),))),
            Err(error) => Some(error),
        };
        let failure = error.as_ref().and_then(|error| failure_of(py, error));
        let number = slf.borrow().call.number();
        JobCall::end(py, number, failure)?;
        error.map_or(Ok(None), Err)
    }
}

/// The type of the exception by which a generator failed. It has not failed if it returned, or if its consumer closed it.
pub fn failure_of<'py>(py: Python<'py>, error: &PyErr) -> Option<Bound<'py, PyAny>> {
    let has_failed = !error.is_instance_of::<PyStopIteration>(py)
        && !error.is_instance_of::<PyStopAsyncIteration>(py)
        && !error.is_instance_of::<PyGeneratorExit>(py);
    has_failed.then(|| error.get_type(py).into_any())
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
        self.call.visit(&visit)?;
        self.body.as_ref().map_or(Ok(()), |body| body.visit(&visit))
    }

    fn __clear__(&mut self) {
        self.body = None;
    }
}

/// Resumes a generator without making an exception of its end.
fn send<'py>(
    generator: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<PySendResult<'py>> {
    // The decorated function may return another object than a generator. If the object is no iterator, the cast raises
    // TypeError.
    generator.cast::<PyIterator>()?.send(value)
}
