//! Objects that a heapy set holds until it is first used. A heap walk finds no reference to them here, because the type
//! has no traverse function. A Python list of them would appear as their referrer in other sets.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

/// Holds objects, invisible to heap walks.
#[pyclass(frozen, module = "heaptide._native")]
pub struct HiddenObjects(Mutex<Vec<Py<PyAny>>>);

#[pymethods]
impl HiddenObjects {
    #[new]
    fn new(objects: Vec<Py<PyAny>>) -> HiddenObjects {
        HiddenObjects(Mutex::new(objects))
    }

    /// Returns the objects, and holds them no longer.
    fn take(&self) -> Vec<Py<PyAny>> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *held)
    }
}
