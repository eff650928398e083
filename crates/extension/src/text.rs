//! Converts strings and paths between Python and Rust. Any string of a program is accepted, in every locale.
//!
//! A Python string may hold lone surrogates, which UTF-8 cannot encode. Python decodes bytes of a file name to them if
//! the bytes are not valid in its locale. A path that is returned to Python must become the string that Python itself
//! would make of it. PyO3's conversion decodes all valid UTF-8 as UTF-8, which gives a different string in some
//! locales.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A string for people to read. A lone surrogate becomes U+FFFD, as in names that the agent reads from memory.
pub struct Text(pub String);

impl FromPyObject<'_, '_> for Text {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Text> {
        let string = object.cast::<PyString>()?;
        if let Ok(text) = string.to_cow() {
            return Ok(Text(text.into_owned()));
        }
        let encoded = string.call_method1("encode", ("utf-16-le", "surrogatepass"))?;
        let bytes: &[u8] = encoded.extract().map_err(PyErr::from)?;
        let units: Vec<u16> = bytes
            .chunks_exact(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
            .collect();
        Ok(Text(String::from_utf16_lossy(&units)))
    }
}

/// Returns the strings of a list.
pub fn strings(texts: Vec<Text>) -> Vec<String> {
    texts.into_iter().map(|text| text.0).collect()
}

/// Returns pairs of strings, such as labels.
pub fn pairs(texts: Vec<(Text, Text)>) -> Vec<(String, String)> {
    let texts = texts.into_iter();
    texts.map(|(key, value)| (key.0, value.0)).collect()
}

/// A path or a word of a command line for Python, which decodes it like `sys.argv`.
pub struct FsText(pub OsString);

impl From<PathBuf> for FsText {
    fn from(path: PathBuf) -> FsText {
        FsText(path.into_os_string())
    }
}

impl<'py> IntoPyObject<'py> for FsText {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = self.0.as_bytes();
        let length = ffi::Py_ssize_t::try_from(bytes.len())
            .map_err(|_| PyValueError::new_err("a word is too long for Python"))?;
        // SAFETY: the GIL is held, and `bytes` has that many bytes; the function returns a new reference or raises.
        unsafe {
            let decoded = ffi::PyUnicode_DecodeFSDefaultAndSize(bytes.as_ptr().cast(), length);
            Bound::from_owned_ptr_or_err(py, decoded)
        }
    }
}

/// Returns a size as reports show it.
#[pyfunction]
pub fn size_text(n_bytes: u64) -> String {
    heaptide_report::units::size(n_bytes)
}
