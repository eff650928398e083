//! The awaitable of one step of a decorated asynchronous generator function. `__anext__`, `asend`, `athrow` and
//! `aclose` return it.
//!
//! It drives the awaitable of the body. The job is current from the first request until the step has ended, also while the
//! body waits. Where possible, a step leaves a raised exception in the interpreter's error indicator: creating an
//! exception object for it would be a tenth of the cost of a job's mark.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use pyo3::exceptions::{PyGeneratorExit, PyStopIteration, PyTypeError};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyTuple};

use crate::job_async_steps::{AsyncJobSteps, State};
use crate::job_calls::{Entry, JobCall};
use crate::job_steps::failure_of;

pub enum Request {
    Next,
    Send(Py<PyAny>),
    Throw(Py<PyTuple>),
    Close,
}

#[pyclass]
pub struct AsyncJobStep {
    /// `None` while this object waits to be used again.
    steps: Option<Py<AsyncJobSteps>>,
    request: Request,
    /// The awaitable of the body, once the step has begun.
    inner: Option<Py<PyAny>>,
    /// The step runs as part of the job.
    is_marked: bool,
    /// Restores the context in which the step began.
    reset: Option<Py<PyAny>>,
}

/// How the body answered.
enum Answer<'py> {
    /// It waits, and passes this object to the event loop.
    Waits(Bound<'py, PyAny>),
    /// It produced a value: `StopIteration` is set, with this value.
    Produced,
    /// It returned: `StopAsyncIteration` is set.
    Returned,
}

impl AsyncJobStep {
    pub fn new(steps: &Bound<'_, AsyncJobSteps>, request: Request) -> PyResult<Py<AsyncJobStep>> {
        let step = AsyncJobStep {
            steps: Some(steps.clone().unbind()),
            request,
            inner: None,
            is_marked: false,
            reset: None,
        };
        Py::new(steps.py(), step)
    }

    /// Makes this object a request for the next value.
    pub fn reuse(&mut self, steps: &Bound<'_, AsyncJobSteps>) {
        self.steps = Some(steps.clone().unbind());
    }

    /// Begins the step. Returns the awaitable of the body.
    fn begin<'py>(
        slf: &Bound<'py, AsyncJobStep>,
        steps: &Bound<'py, AsyncJobSteps>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let this = slf.borrow();
        let mut owner = steps.borrow_mut();
        let is_first = owner.state == State::New;
        let is_marked = match &this.request {
            // A generator that has not begun accepts no value.
            Request::Send(value) if is_first => value.is_none(py),
            Request::Throw(_) | Request::Close if is_first => false,
            _ => is_first || owner.state == State::Paused,
        };
        if is_marked {
            owner.state = State::Stepping;
        } else if is_first && !matches!(this.request, Request::Send(_)) {
            owner.state = State::Ended;
        }
        let generator = owner.generator_if_made(py);
        drop(owner);
        // A step that could not begin must not keep later ones from running as part of the job.
        let restore = |state| move |_: &PyErr| steps.borrow_mut().state = state;
        if is_marked && is_first {
            AsyncJobSteps::begin(steps).inspect_err(restore(State::New))?;
        }
        let entry = is_marked.then(|| steps.borrow().call.entry(py));
        let reset = entry.map(Entry::enter).transpose();
        let reset = reset.inspect_err(restore(State::Paused))?.flatten();
        let body = generator.map_or_else(|| AsyncJobSteps::generator(steps), Ok);
        let inner = body.and_then(|body| match &this.request {
            Request::Next => call_slot(&body, ffi::Py_am_anext)?.ok_or_else(|| PyErr::fetch(py)),
            Request::Send(value) => body.call_method1(intern!(py, "asend"), (value,)),
            Request::Throw(args) => body.call_method1(intern!(py, "athrow"), args.bind(py).clone()),
            Request::Close => body.call_method0(intern!(py, "aclose")),
        });
        drop(this);
        let mut this = slf.borrow_mut();
        this.reset = reset;
        this.is_marked = is_marked;
        if let Ok(inner) = &inner {
            this.inner = Some(inner.clone().unbind());
        }
        inner
    }

    /// Begins or continues the step. Returns `None` if it has ended and an exception is set.
    fn resume<'py>(
        slf: &Bound<'py, AsyncJobStep>,
        resume: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<Answer<'py>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = slf.py();
        let this = slf.borrow();
        let Some(steps) = this.steps.as_ref().map(|steps| steps.bind(py).clone()) else {
            return Err(already_awaited());
        };
        let inner = this.inner.as_ref().map(|inner| inner.bind(py).clone());
        drop(this);
        let inner = inner.map_or_else(|| AsyncJobStep::begin(slf, &steps), Ok);
        let answer = inner.and_then(|inner| resume(&inner));
        if let Ok(Answer::Waits(awaited)) = answer {
            return Ok(Some(awaited));
        }
        let (mut error_type, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
        // SAFETY: the GIL is held. No exception may be set while the step ends; `PyErr_Restore` takes the references back.
        unsafe { ffi::PyErr_Fetch(&mut error_type, &mut value, &mut traceback) };
        let ended = AsyncJobStep::end(slf, &steps, &answer);
        // SAFETY: as above.
        unsafe { ffi::PyErr_Restore(error_type, value, traceback) };
        ended?;
        answer.map(|_| None)
    }

    /// Leaves the job if the step runs as part of it, and ends the job if this was its last step.
    fn end(
        slf: &Bound<'_, AsyncJobStep>,
        steps: &Bound<'_, AsyncJobSteps>,
        answer: &PyResult<Answer<'_>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        if !this.is_marked {
            return Ok(());
        }
        this.is_marked = false;
        let reset = this.reset.take();
        let is_last = matches!(this.request, Request::Close)
            || match answer {
                Ok(answer) => matches!(answer, Answer::Returned),
                Err(error) => !error.is_instance_of::<PyStopIteration>(py),
            };
        // A request for the next value can be used again.
        let is_spare = !is_last && matches!(this.request, Request::Next);
        let idle = is_spare.then(|| {
            let (inner, steps) = (this.inner.take(), this.steps.take());
            (
                inner.map(|it| it.into_bound(py)),
                steps.map(|it| it.into_bound(py)),
            )
        });
        drop(this);
        JobCall::leave(py, reset)?;
        let mut owner = steps.borrow_mut();
        owner.state = if is_last { State::Ended } else { State::Paused };
        let number = owner.call.number();
        let spare = is_spare.then(|| slf.clone().unbind());
        let old = spare.map(|spare| owner.spare.replace(spare));
        drop(owner);
        drop((idle, old));
        if is_last {
            let error = answer.as_ref().err();
            return JobCall::end(py, number, error.and_then(|error| failure_of(py, error)));
        }
        Ok(())
    }
}

#[pymethods]
impl AsyncJobStep {
    fn __await__(slf: Bound<'_, AsyncJobStep>) -> Bound<'_, AsyncJobStep> {
        slf
    }

    fn __iter__(slf: Bound<'_, AsyncJobStep>) -> Bound<'_, AsyncJobStep> {
        slf
    }

    fn __next__<'py>(slf: &Bound<'py, AsyncJobStep>) -> PyResult<Option<Bound<'py, PyAny>>> {
        AsyncJobStep::resume(slf, next)
    }

    fn send<'py>(
        slf: &Bound<'py, AsyncJobStep>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        AsyncJobStep::resume(slf, |inner| {
            let awaited = inner.call_method1(intern!(inner.py(), "send"), (value,))?;
            Ok(Answer::Waits(awaited))
        })
    }

    /// `args` is an exception, or its type, value and traceback.
    #[pyo3(signature = (*args))]
    fn throw<'py>(
        slf: &Bound<'py, AsyncJobStep>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        AsyncJobStep::resume(slf, |inner| {
            let awaited = inner.call_method1(intern!(inner.py(), "throw"), args)?;
            Ok(Answer::Waits(awaited))
        })
    }

    /// Close a step. The job ends if the step has begun, because the body does not continue.
    fn close(slf: &Bound<'_, AsyncJobStep>) -> PyResult<()> {
        if slf.borrow().inner.is_none() {
            slf.borrow_mut().steps = None;
            return Ok(());
        }
        let closed = AsyncJobStep::resume(slf, |inner| {
            inner.call_method0(intern!(inner.py(), "close"))?;
            Err(PyGeneratorExit::new_err(()))
        });
        match closed {
            Err(error) if !error.is_instance_of::<PyGeneratorExit>(slf.py()) => Err(error),
            _ => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.steps)?;
        visit.call(&self.inner)?;
        visit.call(&self.reset)?;
        match &self.request {
            Request::Send(value) => visit.call(value),
            Request::Throw(args) => visit.call(args),
            Request::Next | Request::Close => Ok(()),
        }
    }

    fn __clear__(&mut self) {
        self.steps = None;
        self.inner = None;
        self.request = Request::Close;
    }
}

fn already_awaited() -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err("cannot reuse already awaited __anext__()/asend()")
}

/// Resumes an awaitable of the body.
fn next<'py>(awaitable: &Bound<'py, PyAny>) -> PyResult<Answer<'py>> {
    if let Some(awaited) = call_slot(awaitable, ffi::Py_tp_iternext)? {
        return Ok(Answer::Waits(awaited));
    }
    // SAFETY: the GIL is held, and the exception types live as long as the interpreter. The type is only compared.
    unsafe {
        // Types are compared for identity first, which takes a third of the instructions of a match with subclasses.
        let error = ffi::PyErr_Occurred();
        let is = |type_| error == type_ || ffi::PyErr_GivenExceptionMatches(error, type_) != 0;
        if error == ffi::PyExc_StopAsyncIteration {
            return Ok(Answer::Returned);
        }
        if is(ffi::PyExc_StopIteration) {
            return Ok(Answer::Produced);
        }
        if is(ffi::PyExc_StopAsyncIteration) {
            return Ok(Answer::Returned);
        }
    }
    Err(PyErr::take(awaitable.py()).unwrap_or_else(|| PyStopIteration::new_err(())))
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
