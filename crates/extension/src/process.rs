//! The identity of this process, for files that Python code writes.

use heaptide_agent::heap_walk;
use pyo3::prelude::*;

/// Returns facts that identify this process together with its ID and host name, under the keys that files use.
#[pyfunction]
pub fn process_facts() -> Vec<(String, String)> {
    heap_walk::process_facts()
}
