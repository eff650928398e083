//! Types and functions of the interpreter that a walk needs, found by their symbols.

use std::ffi::{CStr, c_int, c_void};

use crate::cpython::Unsupported;
use crate::cpython::references::{Object, Type};

/// `visitproc`.
pub type Visit = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
/// `traverseproc`.
pub type Traverse = unsafe extern "C" fn(*mut c_void, Visit, *mut c_void) -> c_int;

/// Types and functions of the interpreter.
#[derive(Clone, Copy)]
pub struct Known {
    pub list: Type,
    pub tuple: Type,
    pub dict: Type,
    pub long: Type,
    pub unicode: Type,
    pub set: Type,
    pub frozen_set: Type,
    pub function: Type,
    pub cell: Type,
    pub generator: Type,
    pub coroutine: Type,
    pub async_generator: Type,
    pub frame: Type,
    pub byte_array: Type,
    pub traceback: Type,
    pub type_type: Type,
    pub code: Type,
    pub weak: [Type; 3],
    pub none: Object,
    pub(super) dict_next:
        unsafe extern "C" fn(*mut c_void, *mut isize, *mut *mut c_void, *mut *mut c_void) -> c_int,
    pub(super) module_dict: unsafe extern "C" fn() -> *mut c_void,
    pub(super) interpreter: unsafe extern "C" fn() -> *mut c_void,
    pub(super) thread_head: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    pub(super) thread_next: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    /// `PyType_GetDict`, 3.12 and later: a new reference.
    pub(super) type_dict: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    /// `PyUnstable_GC_VisitObjects`, 3.12 and later.
    pub(super) visit_objects: Option<unsafe extern "C" fn(Visit, *mut c_void)>,
    pub(super) dec_ref: unsafe extern "C" fn(*mut c_void),
}

/// Converts the address of a symbol to a function of the field's type.
macro_rules! function {
    ($name:literal) => {{
        let address = symbol($name)?;
        // SAFETY: the symbol is a function of CPython's C API, and the field has its documented type.
        unsafe { std::mem::transmute::<*mut c_void, _>(address) }
    }};
}

macro_rules! optional_function {
    ($name:literal) => {
        symbol($name).ok().map(|address| {
            // SAFETY: as in `function`: the symbol is a function of the C API, and the field has its type.
            unsafe { std::mem::transmute::<*mut c_void, _>(address) }
        })
    };
}

impl Known {
    #[allow(
        clippy::missing_transmute_annotations,
        reason = "the type of the field is the annotation"
    )]
    pub fn resolve() -> Result<Known, Unsupported> {
        Ok(Known {
            list: type_at(c"PyList_Type")?,
            tuple: type_at(c"PyTuple_Type")?,
            dict: type_at(c"PyDict_Type")?,
            long: type_at(c"PyLong_Type")?,
            unicode: type_at(c"PyUnicode_Type")?,
            set: type_at(c"PySet_Type")?,
            frozen_set: type_at(c"PyFrozenSet_Type")?,
            function: type_at(c"PyFunction_Type")?,
            cell: type_at(c"PyCell_Type")?,
            generator: type_at(c"PyGen_Type")?,
            coroutine: type_at(c"PyCoro_Type")?,
            async_generator: type_at(c"PyAsyncGen_Type")?,
            frame: type_at(c"PyFrame_Type")?,
            byte_array: type_at(c"PyByteArray_Type")?,
            traceback: type_at(c"PyTraceBack_Type")?,
            type_type: type_at(c"PyType_Type")?,
            code: type_at(c"PyCode_Type")?,
            weak: [
                type_at(c"_PyWeakref_RefType")?,
                type_at(c"_PyWeakref_ProxyType")?,
                type_at(c"_PyWeakref_CallableProxyType")?,
            ],
            none: object_at(c"_Py_NoneStruct")?,
            dict_next: function!(c"PyDict_Next"),
            module_dict: function!(c"PyImport_GetModuleDict"),
            interpreter: function!(c"PyInterpreterState_Get"),
            thread_head: function!(c"PyInterpreterState_ThreadHead"),
            thread_next: function!(c"PyThreadState_Next"),
            type_dict: optional_function!(c"PyType_GetDict"),
            visit_objects: optional_function!(c"PyUnstable_GC_VisitObjects"),
            dec_ref: function!(c"Py_DecRef"),
        })
    }
}

fn symbol(name: &'static CStr) -> Result<*mut c_void, Unsupported> {
    // SAFETY: the name is a C string, and `dlsym` has no other precondition.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        return Err(missing(name));
    }
    Ok(address)
}

fn missing(name: &'static CStr) -> Unsupported {
    Unsupported::MissingSymbol {
        name: name.to_str().unwrap_or("a symbol"),
    }
}

fn object_at(name: &'static CStr) -> Result<Object, Unsupported> {
    // SAFETY: the symbols asked for are static objects of the interpreter, which are never freed.
    unsafe { Object::at(symbol(name)? as usize) }.ok_or(missing(name))
}

fn type_at(name: &'static CStr) -> Result<Type, Unsupported> {
    // SAFETY: the symbols asked for are static types.
    object_at(name).map(|object| unsafe { Type::from_object(object) })
}
