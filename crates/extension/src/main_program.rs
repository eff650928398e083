//! Runs a program as the interpreter does: with no frames below it on the stack.

use heaptide_agent::cpython::{self, interpreter};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

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
