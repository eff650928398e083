//! The object that a decorated asynchronous generator function returns. It has the methods of an asynchronous generator
//! and passes requests on to the body, the generator of the program. Each step of the body runs as part of the job.
//!
//! A Python function around the body would cost more than all other work that marks a job. The awaitables of the steps
//! are in `job_async_step`. Steps that do not belong to the job, such as those after its end, are passed on unchanged.
//! So this object behaves as the body does in each Python version.

use pyo3::exceptions::{PyAttributeError, PyStopAsyncIteration};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyTuple};

use crate::job_async_step::{AsyncJobStep, Request};
use crate::job_calls::JobCall;
use crate::job_steps::Body;

#[derive(Clone, Copy, PartialEq)]
pub enum State {
    /// The job has not begun.
    New,
    /// The job has begun, and no step runs.
    Paused,
    Stepping,
    /// The job has ended, or was closed before it began.
    Ended,
}

#[pyclass(weakref)]
pub struct AsyncJobSteps {
    pub call: JobCall,
    /// `None` if the function could not be called, and after a garbage collection.
    body: Option<Body>,
    pub state: State,
    /// A step that has ended; the next `__anext__` may reuse it.
    pub spare: Option<Py<AsyncJobStep>>,
    /// The finalizer of the event loop has received this object and does not receive it again.
    is_finalized: bool,
}

impl AsyncJobSteps {
    pub fn new(
        call: JobCall,
        function: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> AsyncJobSteps {
        AsyncJobSteps {
            call,
            body: Some(Body::function(function, args, kwargs)),
            state: State::New,
            spare: None,
            is_finalized: false,
        }
    }

    /// Returns the generator of the program. The first call makes it.
    pub fn generator<'py>(slf: &Bound<'py, AsyncJobSteps>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Some(generator) = slf.borrow().generator_if_made(py) {
            return Ok(generator);
        }
        let Some(body) = slf.borrow_mut().body.take() else {
            return Err(PyStopAsyncIteration::new_err(()));
        };
        let generator = body.generator(py)?;
        slf.borrow_mut().body = Some(Body::Generator(generator.clone().unbind()));
        Ok(generator)
    }

    pub fn generator_if_made<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match &self.body {
            Some(Body::Generator(generator)) => Some(generator.bind(py).clone()),
            _ => None,
        }
    }

    /// Begins the job without making it current. Each step makes the job current while the step runs.
    pub fn begin(slf: &Bound<'_, AsyncJobSteps>) -> PyResult<()> {
        let py = slf.py();
        let mut call = slf.borrow().call.another(py);
        call.begin(py, false)?;
        std::mem::replace(&mut slf.borrow_mut().call, call).discard(py);
        Ok(())
    }

    /// Closes the body of an object that the program no longer refers to, and ends the job. As for generators of Python, the
    /// event loop closes it if the loop has set a finalizer.
    fn finalize(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(body) = self.body.take() else {
            return JobCall::end(py, self.call.number(), None);
        };
        if !self.is_finalized {
            let hooks = py.import("sys")?.call_method0("get_asyncgen_hooks")?;
            let finalizer = hooks.getattr("finalizer")?;
            if !finalizer.is_none() {
                let successor = AsyncJobSteps {
                    call: self.call.same(py),
                    body: Some(body),
                    state: self.state,
                    spare: None,
                    is_finalized: true,
                };
                return finalizer.call1((successor,)).map(drop);
            }
        }
        let reset = self.call.enter(py)?;
        drop(body);
        JobCall::leave(py, reset)?;
        JobCall::end(py, self.call.number(), None)
    }
}

impl Drop for AsyncJobSteps {
    fn drop(&mut self) {
        if matches!(self.state, State::New | State::Ended) {
            return;
        }
        Python::try_attach(|py| {
            let pending = PyErr::take(py);
            if let Err(error) = self.finalize(py) {
                error.write_unraisable(py, None);
            }
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }
}

#[pymethods]
impl AsyncJobSteps {
    fn __aiter__(slf: Bound<'_, AsyncJobSteps>) -> Bound<'_, AsyncJobSteps> {
        slf
    }

    fn __anext__(slf: &Bound<'_, AsyncJobSteps>) -> PyResult<Py<AsyncJobStep>> {
        let spare = slf.borrow_mut().spare.take();
        if let Some(spare) = spare {
            // SAFETY: the GIL is held, and the object is alive.
            if unsafe { ffi::Py_REFCNT(spare.as_ptr()) } == 1 {
                spare.borrow_mut(slf.py()).reuse(slf);
                return Ok(spare);
            }
        }
        AsyncJobStep::new(slf, Request::Next)
    }

    fn asend(slf: &Bound<'_, AsyncJobSteps>, value: Py<PyAny>) -> PyResult<Py<AsyncJobStep>> {
        AsyncJobStep::new(slf, Request::Send(value))
    }

    /// `args` is an exception, or its type, value and traceback.
    #[pyo3(signature = (*args))]
    fn athrow(slf: &Bound<'_, AsyncJobSteps>, args: Py<PyTuple>) -> PyResult<Py<AsyncJobStep>> {
        AsyncJobStep::new(slf, Request::Throw(args))
    }

    fn aclose(slf: &Bound<'_, AsyncJobSteps>) -> PyResult<Py<AsyncJobStep>> {
        AsyncJobStep::new(slf, Request::Close)
    }

    /// `isinstance` and `inspect.isasyncgen` take this object for the generator that the undecorated function returns.
    #[getter]
    fn __class__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("types")?.getattr("AsyncGeneratorType")
    }

    /// The attributes of generators: `ag_frame`, `ag_running`, `__qualname__` and others.
    fn __getattr__<'py>(
        slf: &Bound<'py, AsyncJobSteps>,
        name: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        if name.starts_with("ag_") || matches!(name, "__name__" | "__qualname__") {
            return AsyncJobSteps::generator(slf)?.getattr(name);
        }
        Err(PyAttributeError::new_err(format!(
            "'async_generator' object has no attribute '{name}'"
        )))
    }

    fn __repr__(slf: &Bound<'_, AsyncJobSteps>) -> PyResult<String> {
        Ok(AsyncJobSteps::generator(slf)?.repr()?.to_string())
    }

    // The body may refer to the generator that runs it.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.call.visit(&visit)?;
        visit.call(&self.spare)?;
        self.body.as_ref().map_or(Ok(()), |body| body.visit(&visit))
    }

    fn __clear__(&mut self) {
        self.spare = None;
        self.body = None;
    }
}
