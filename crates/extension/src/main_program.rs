//! Runs a program as the interpreter does: with no frames below it on the stack, and with trace functions that do not see
//! Heaptide.

use heaptide_agent::cpython::tracing::TracingPause;
use heaptide_agent::cpython::{self, interpreter};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A function of Heaptide whose calls the program's trace and profile functions do not see.
#[pyclass(frozen, weakref)]
pub struct Untraced {
    function: Py<PyAny>,
}

#[pymethods]
impl Untraced {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: a function called from Python runs with the GIL held until it returns, which drops the pause.
        let _pause = unsafe { TracingPause::begin() };
        self.function.bind(args.py()).call(args, kwargs)
    }

    // The function may refer to an object that keeps this one.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)
    }
}

/// Returns a callable that calls `function`, and hides the call from the program's trace and profile functions.
#[pyfunction]
pub fn untraced(function: Py<PyAny>) -> Untraced {
    Untraced { function }
}

/// Calls `function` with no frames below it on the stack. Returns the exception that it raised, or `None`.
#[pyfunction]
#[pyo3(signature = (function, *arguments))]
pub fn call_as_main(
    function: &Bound<'_, PyAny>,
    arguments: &Bound<'_, PyTuple>,
) -> Option<Py<PyAny>> {
    let py = function.py();
    if let Ok(symbols) = cpython::Symbols::resolve() {
        // If the layout is unknown, Heaptide's frames stay at the bottom of the stack; nothing else changes.
        // SAFETY: a function called from Python runs with the GIL held.
        let _ = unsafe { interpreter::prepare(&symbols) };
    }
    // SAFETY: as above; the guard is dropped right after the call.
    let no_callers = unsafe { interpreter::NoCallers::new() };
    let result = function.call1(arguments);
    drop(no_callers);
    result.err().map(|error| error.into_value(py).into_any())
}

/// Prints an exception as the interpreter does at the end of a program: through `sys.excepthook`.
#[pyfunction]
pub fn print_exception(exception: &Bound<'_, PyAny>) {
    let error = PyErr::from_value(exception.clone());
    error.print_and_set_sys_last_vars(exception.py());
}
