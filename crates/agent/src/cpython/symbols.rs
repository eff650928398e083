//! The interpreter's symbols that recording uses.
//!
//! The executable or libpython exports them. Heaptide resolves them at run time, so the wheel is linked to neither. A
//! missing symbol is an error with its name.

use super::unsupported::Unsupported;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};

/// An object, thread state or frame of the interpreter.
pub type Opaque = *mut c_void;

/// A function that the interpreter calls later, on its main thread and with the GIL held.
pub type PendingCall = extern "C" fn(*mut c_void) -> c_int;

/// `PyMemAllocatorEx`: the functions of one memory domain, unchanged since 3.5.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemAllocator {
    pub ctx: *mut c_void,
    pub malloc: Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>,
    pub calloc: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    pub realloc: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void>,
    pub free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
}

/// Addresses of data, and functions with their C types. Functions need the GIL unless noted.
#[derive(Clone, Copy)]
pub struct Symbols {
    /// `Py_GetVersion`; needs no GIL.
    pub get_version: unsafe extern "C" fn() -> *const c_char,
    /// `_PyRuntime`, an address.
    pub runtime: usize,
    /// `PyType_Type`, an address.
    pub type_type: usize,
    /// `PyCode_Type`, an address.
    pub code_type: usize,
    /// `PyUnicode_Type`, an address.
    pub unicode_type: usize,
    /// `PyGILState_GetThisThreadState`; needs no GIL and may return null.
    pub this_thread_state: unsafe extern "C" fn() -> Opaque,
    /// The address of `PyThreadState_GetUnchecked` (up to 3.12: `_PyThreadState_UncheckedGet`), or 0 if it is missing.
    /// The function needs no GIL and may return null.
    pub attached_thread_state: usize,
    /// `PyThreadState_Get`.
    pub current_thread_state: unsafe extern "C" fn() -> Opaque,
    /// `PyMem_GetAllocator`.
    pub get_allocator: unsafe extern "C" fn(c_int, *mut MemAllocator),
    /// `PyMem_SetAllocator`.
    pub set_allocator: unsafe extern "C" fn(c_int, *mut MemAllocator),
    /// `PyEval_GetFrame`: borrowed, may be null.
    pub eval_frame: unsafe extern "C" fn() -> Opaque,
    /// `PyFrame_GetCode`: a new reference, never null.
    pub frame_code: unsafe extern "C" fn(Opaque) -> Opaque,
    /// `PyFrame_GetBack`: a new reference or null.
    pub frame_back: unsafe extern "C" fn(Opaque) -> Opaque,
    /// `PyObject_GetAttrString`: a new reference, or null with an error set.
    pub get_attribute: unsafe extern "C" fn(Opaque, *const c_char) -> Opaque,
    /// `PyUnicode_AsUTF8AndSize`: owned by the string, or null with an error set.
    pub unicode_utf8: unsafe extern "C" fn(Opaque, *mut isize) -> *const c_char,
    /// `PyBytes_AsString`: owned by the object, or null with an error set.
    pub bytes_data: unsafe extern "C" fn(Opaque) -> *mut c_char,
    /// `PyBytes_Size`: -1 with an error set.
    pub bytes_size: unsafe extern "C" fn(Opaque) -> isize,
    /// `PyLong_AsLong`: also -1 for an error.
    pub long_value: unsafe extern "C" fn(Opaque) -> c_long,
    /// `PyErr_Occurred`: borrowed, null without an error.
    pub error_occurred: unsafe extern "C" fn() -> Opaque,
    /// `PyErr_Clear`.
    pub error_clear: unsafe extern "C" fn(),
    /// `Py_AddPendingCall`; needs no GIL. -1 if the queue is full.
    pub add_pending_call: unsafe extern "C" fn(PendingCall, *mut c_void) -> c_int,
    /// `Py_DecRef`.
    pub dec_ref: unsafe extern "C" fn(Opaque),
    /// `PyContextVar_Set`: returns a new reference to a token for `PyContextVar_Reset`, or null with an error set.
    pub context_set: unsafe extern "C" fn(Opaque, Opaque) -> Opaque,
    /// `PyContextVar_Reset`: returns 0, or -1 with an error set.
    pub context_reset: unsafe extern "C" fn(Opaque, Opaque) -> c_int,
}

/// Converts the address of a symbol to a function of the field's type.
macro_rules! function {
    ($name:literal) => {{
        let address = address($name)?;
        // SAFETY: the symbol is a function of CPython's documented C API, and the field has its documented type,
        // which is the same in all supported versions.
        unsafe { std::mem::transmute::<*mut c_void, _>(address) }
    }};
}

impl Symbols {
    /// Looks up all symbols; needs no GIL.
    #[allow(
        clippy::missing_transmute_annotations,
        reason = "the type of the field is the annotation"
    )]
    pub fn resolve() -> Result<Self, Unsupported> {
        Ok(Self {
            get_version: function!(c"Py_GetVersion"),
            runtime: address(c"_PyRuntime")? as usize,
            type_type: address(c"PyType_Type")? as usize,
            code_type: address(c"PyCode_Type")? as usize,
            unicode_type: address(c"PyUnicode_Type")? as usize,
            this_thread_state: function!(c"PyGILState_GetThisThreadState"),
            attached_thread_state: address(c"PyThreadState_GetUnchecked")
                .or_else(|_| address(c"_PyThreadState_UncheckedGet"))
                .map_or(0, |found| found as usize),
            current_thread_state: function!(c"PyThreadState_Get"),
            get_allocator: function!(c"PyMem_GetAllocator"),
            set_allocator: function!(c"PyMem_SetAllocator"),
            eval_frame: function!(c"PyEval_GetFrame"),
            frame_code: function!(c"PyFrame_GetCode"),
            frame_back: function!(c"PyFrame_GetBack"),
            get_attribute: function!(c"PyObject_GetAttrString"),
            unicode_utf8: function!(c"PyUnicode_AsUTF8AndSize"),
            bytes_data: function!(c"PyBytes_AsString"),
            bytes_size: function!(c"PyBytes_Size"),
            long_value: function!(c"PyLong_AsLong"),
            error_occurred: function!(c"PyErr_Occurred"),
            error_clear: function!(c"PyErr_Clear"),
            add_pending_call: function!(c"Py_AddPendingCall"),
            dec_ref: function!(c"Py_DecRef"),
            context_set: function!(c"PyContextVar_Set"),
            context_reset: function!(c"PyContextVar_Reset"),
        })
    }
}

pub(super) fn address(name: &'static CStr) -> Result<*mut c_void, Unsupported> {
    // SAFETY: the name is a C string, and `dlsym` has no other precondition.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        return Err(Unsupported::MissingSymbol {
            name: name.to_str().unwrap_or("a symbol"),
        });
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_symbol_is_named() {
        assert_eq!(
            address(c"Py_NoSuchThing"),
            Err(Unsupported::MissingSymbol {
                name: "Py_NoSuchThing"
            })
        );
        assert!(address(c"malloc").is_ok());
    }
}
