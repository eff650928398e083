//! Counts objects by type, for objgraph's functions: those of a list, or all that the collector tracks.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use heaptide_agent::heap_walk::{self, tracked};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};

use crate::heap::proof_of;

/// Types, and how many objects each has.
type TypeCounts<'py> = Vec<(Bound<'py, PyType>, usize)>;

/// Returns the types of the objects and how many objects each has, in the order of their first objects.
#[pyfunction]
pub fn count_types<'py>(objects: &Bound<'py, PyList>) -> Vec<(Bound<'py, PyType>, usize)> {
    let mut counts: HashMap<usize, usize, BuildHasherDefault<Address>> = HashMap::default();
    let mut found: Vec<(usize, usize)> = Vec::new();
    let (mut last, mut position) = (0, 0);
    for at in 0..objects.len() {
        // SAFETY: the list is alive, and an item that another thread removes meanwhile gives null, which is skipped. The
        // item is not used after its type has been read, and nothing runs in between that could free it.
        let type_ = unsafe {
            let object = ffi::PyList_GetItem(objects.as_ptr(), at as ffi::Py_ssize_t);
            if object.is_null() {
                ffi::PyErr_Clear();
                continue;
            }
            ffi::Py_TYPE(object) as usize
        };
        // Objects of one type are often neighbours.
        if type_ != last {
            last = type_;
            position = *counts.entry(type_).or_insert_with(|| {
                found.push((type_, 0));
                found.len() - 1
            });
        }
        found[position].1 += 1;
    }
    // SAFETY: an object of the list keeps its type alive, and the list keeps the object.
    unsafe { with_types(objects.py(), found) }
}

/// Returns the types of the objects that the collector tracks, and how many objects each has. `which` is `all`, `live` for
/// those that a collection would leave, or `at_most` for quick counts that are no less than these. Returns `None` if the
/// objects cannot be counted without a collection, or without building a list of them.
#[pyfunction]
pub fn count_tracked<'py>(
    token: &Bound<'py, PyAny>,
    instance: &Bound<'py, PyTuple>,
    which: &str,
) -> PyResult<Option<TypeCounts<'py>>> {
    let proof = proof_of(token, instance)?;
    // SAFETY: a function called from Python runs with the GIL held, and its caller keeps the objects of the proof alive.
    let counts = unsafe {
        match heap_walk::prepare() {
            Ok(()) if which == "live" => tracked::count_live(proof),
            Ok(()) if which == "at_most" => tracked::count_at_most(),
            Ok(()) => tracked::count_all(),
            Err(_) => None,
        }
    };
    let found = counts.map(|counts| {
        let counts = counts.into_iter();
        counts
            .map(|(type_, count)| (type_, count as usize))
            .collect()
    });
    // SAFETY: the counted objects keep their types alive, and nothing has run that could free one.
    Ok(found.map(|found| unsafe { with_types(token.py(), found) }))
}

/// Turns addresses of types into types.
///
/// # Safety
/// Types are at these addresses, and stay alive until this function returns.
unsafe fn with_types(py: Python<'_>, found: Vec<(usize, usize)>) -> TypeCounts<'_> {
    let named = found.into_iter().filter_map(|(type_, count)| {
        // SAFETY: the caller guarantees that a live type is at each address.
        let type_ = unsafe { Bound::from_borrowed_ptr(py, type_ as *mut ffi::PyObject) };
        Some((type_.cast_into::<PyType>().ok()?, count))
    });
    named.collect()
}

/// A hash of an address: types are aligned, so their low bits are equal.
#[derive(Default)]
struct Address(u64);

impl std::hash::Hasher for Address {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 << 8) | u64::from(byte);
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
