//! The steps of a decorated asynchronous generator function. Each step of its body runs as part of the job.
//!
//! The decorated function is a loop over this asynchronous iterator, because there is no `yield from` for asynchronous
//! generators. The loop stores in the iterator what its consumer sends or raises. The iterator is also the awaitable of each
//! step: the step ends with the `StopIteration` of the body's awaitable, which carries the value that the body produced.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use pyo3::exceptions::{PyGeneratorExit, PyStopAsyncIteration, PyStopIteration, PyTypeError};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyTuple};

use crate::job_calls::JobCall;
use crate::job_steps::{Body, JobSteps};

#[pyclass]
pub struct AsyncJobSteps {
    steps: JobSteps,
    /// What the consumer sent or raised at the last `yield`; the next step passes it on to the body.
    #[pyo3(set)]
    sent: Option<Py<PyAny>>,
    #[pyo3(set)]
    thrown: Option<Py<PyAny>>,
    /// The next step is the last one.
    is_closing: bool,
    /// The awaitable of the current step, while the body waits for something.
    step: Option<Py<PyAny>>,
    /// Restores the context in which the step began.
    reset: Option<Py<PyAny>>,
}

impl AsyncJobSteps {
    pub fn new(steps: JobSteps) -> AsyncJobSteps {
        AsyncJobSteps {
            steps,
            sent: None,
            thrown: None,
            is_closing: false,
            step: None,
            reset: None,
        }
    }

    /// Begins or continues a step, and ends the job after the last one. Returns `None` at the end of a step, as [`next`].
    fn resume<'py>(
        slf: &Bound<'py, AsyncJobSteps>,
        resume: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = slf.py();
        let step = slf.borrow_mut().step.take();
        let step = match step {
            Some(step) => Ok(step.into_bound(py)),
            None => AsyncJobSteps::begin_step(slf),
        };
        let result = step.and_then(|step| {
            let awaited = resume(&step)?;
            if awaited.is_some() {
                slf.borrow_mut().step = Some(step.unbind());
            }
            Ok(awaited)
        });
        if let Ok(Some(_)) = &result {
            return result;
        }
        let (mut kind, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
        // SAFETY: the GIL is held. No exception may be set while the job ends; `PyErr_Restore` takes the references back.
        unsafe { ffi::PyErr_Fetch(&mut kind, &mut value, &mut traceback) };
        let ended = AsyncJobSteps::end_step(slf, result.as_ref().err());
        // SAFETY: as above.
        unsafe { ffi::PyErr_Restore(kind, value, traceback) };
        ended?;
        result
    }

    /// Leaves the job, and ends it if this was its last step.
    fn end_step(slf: &Bound<'_, AsyncJobSteps>, error: Option<&PyErr>) -> PyResult<()> {
        let py = slf.py();
        let reset = slf.borrow_mut().reset.take();
        JobCall::leave(py, reset)?;
        let this = slf.borrow();
        if this.is_closing || error.is_some_and(|it| !it.is_instance_of::<PyStopIteration>(py)) {
            this.steps.end(py, error)?;
        }
        Ok(())
    }

    /// Returns the awaitable of the next step.
    fn begin_step<'py>(slf: &Bound<'py, AsyncJobSteps>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        let Some(body) = this.steps.body.take() else {
            return Err(PyStopAsyncIteration::new_err(()));
        };
        let (sent, thrown, is_closing) = (this.sent.take(), this.thrown.take(), this.is_closing);
        drop(this);
        let reset = slf.borrow().steps.call.enter(py)?;
        slf.borrow_mut().reset = reset;
        let body = body.generator(py)?;
        let step = match (sent, thrown) {
            _ if is_closing => Some(body.call_method0(intern!(py, "aclose"))?),
            (_, Some(error)) => Some(body.call_method1(intern!(py, "athrow"), (error,))?),
            (Some(value), _) => Some(body.call_method1(intern!(py, "asend"), (value,))?),
            (None, None) => call_slot(&body, ffi::Py_am_anext)?,
        };
        slf.borrow_mut().steps.body = Some(Body::Generator(body.unbind()));
        step.ok_or_else(|| PyErr::fetch(py))
    }
}

#[pymethods]
impl AsyncJobSteps {
    fn __aiter__(slf: Bound<'_, AsyncJobSteps>) -> Bound<'_, AsyncJobSteps> {
        slf
    }

    fn __anext__(slf: Bound<'_, AsyncJobSteps>) -> Bound<'_, AsyncJobSteps> {
        slf
    }

    /// Return an awaitable that closes the body and ends the job.
    fn aclose(slf: Bound<'_, AsyncJobSteps>) -> Bound<'_, AsyncJobSteps> {
        slf.borrow_mut().is_closing = true;
        slf
    }

    fn __await__(slf: Bound<'_, AsyncJobSteps>) -> Bound<'_, AsyncJobSteps> {
        slf
    }

    fn __iter__(slf: Bound<'_, AsyncJobSteps>) -> Bound<'_, AsyncJobSteps> {
        slf
    }

    fn __next__<'py>(slf: &Bound<'py, AsyncJobSteps>) -> PyResult<Option<Bound<'py, PyAny>>> {
        AsyncJobSteps::resume(slf, next)
    }

    fn send<'py>(
        slf: &Bound<'py, AsyncJobSteps>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        AsyncJobSteps::resume(slf, |step| {
            step.call_method1(intern!(step.py(), "send"), (value,))
                .map(Some)
        })
    }

    /// `args` is an exception, or its type, value and traceback.
    #[pyo3(signature = (*args))]
    fn throw<'py>(
        slf: &Bound<'py, AsyncJobSteps>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        AsyncJobSteps::resume(slf, |step| {
            step.call_method1(intern!(step.py(), "throw"), args)
                .map(Some)
        })
    }

    /// Close a step that waits. The job ends, because the decorated function is also closed.
    fn close(slf: &Bound<'_, AsyncJobSteps>) -> PyResult<()> {
        let closed = AsyncJobSteps::resume(slf, |step| {
            step.call_method0(intern!(step.py(), "close"))?;
            Err(PyGeneratorExit::new_err(()))
        });
        match closed {
            Err(error) if !error.is_instance_of::<PyGeneratorExit>(slf.py()) => Err(error),
            _ => Ok(()),
        }
    }

    // The body may refer to the generator that runs it.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.sent)?;
        visit.call(&self.thrown)?;
        visit.call(&self.step)?;
        visit.call(&self.reset)?;
        self.steps.__traverse__(visit)
    }

    fn __clear__(&mut self) {
        self.steps.body = None;
        self.step = None;
        self.sent = None;
        self.thrown = None;
    }
}

/// Resumes an iterator. Returns `None` at its end: then `StopIteration` with the result is set, and stays set.
fn next<'py>(iterator: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let produced = call_slot(iterator, ffi::Py_tp_iternext)?;
    // SAFETY: the GIL is held, and the exception type lives as long as the interpreter.
    let has_ended = || unsafe { ffi::PyErr_ExceptionMatches(ffi::PyExc_StopIteration) != 0 };
    if produced.is_some() || has_ended() {
        return Ok(produced);
    }
    Err(PyErr::take(iterator.py()).unwrap_or_else(|| PyStopIteration::new_err(())))
}

/// Calls the function of a slot that takes no arguments. Returns `None` if the function returned NULL: an exception is set,
/// except that `tp_iternext` may end without one.
fn call_slot<'py>(object: &Bound<'py, PyAny>, slot: c_int) -> PyResult<Option<Bound<'py, PyAny>>> {
    // SAFETY: the GIL is held, and the object is alive. The slots `am_anext` and `tp_iternext`, for which this module calls
    // this function, have functions of this type, which return a new reference or NULL.
    unsafe {
        let function = ffi::PyType_GetSlot(ffi::Py_TYPE(object.as_ptr()), slot);
        if function.is_null() {
            return Err(PyTypeError::new_err(
                "the decorated function did not return an asynchronous generator",
            ));
        }
        let function = transmute::<*mut c_void, ffi::unaryfunc>(function);
        let result = function(object.as_ptr());
        Ok(Bound::from_owned_ptr_or_opt(object.py(), result))
    }
}
