//! The command line, handed through.

use pyo3::prelude::*;

#[pyfunction]
pub fn main(_arguments: Vec<String>) -> i32 {
    0
}
