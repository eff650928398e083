//! The identity of this process, for files that Python code writes.

use pyo3::prelude::*;

/// Returns facts that identify this process together with its ID and host name, under the keys that files use.
#[pyfunction]
pub fn process_facts() -> Vec<(String, String)> {
    heaptide_procfs::process_facts()
}
