//! The rules of `heaptide_files` for Python: private folders and files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use heaptide_files::{Existing, NewFile};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Makes sure that only this user can use the folder; creates it if necessary.
#[pyfunction]
pub fn private_folder(path: PathBuf) -> PyResult<()> {
    heaptide_files::private_folder(&path).map_err(to_python)
}

/// Raises an exception if other users could replace files of this user in the folder. A missing folder passes.
#[pyfunction]
pub fn check_folder(path: PathBuf) -> PyResult<()> {
    heaptide_files::check_folder(&path).map_err(to_python)
}

/// Writes a whole file that only this user can read, and replaces an existing one. Follows no link.
#[pyfunction]
pub fn write_file(py: Python<'_>, path: PathBuf, content: &[u8]) -> PyResult<()> {
    py.detach(|| write(&path, content)).map_err(to_python)
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = NewFile::create(path, Existing::Replace)?;
    new.file().write_all(content)?;
    new.publish().map(drop)
}

fn to_python(error: io::Error) -> PyErr {
    match error.raw_os_error() {
        // Python chooses the exception class and its message by the error number.
        Some(_) => error.into(),
        None => PyOSError::new_err((EACCES, error.to_string())),
    }
}

/// The operating system's number for "permission denied", which Python turns into `PermissionError`.
const EACCES: i32 = 13;
