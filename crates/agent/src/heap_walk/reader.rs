//! Reading live objects, and the interpreter's functions that a walk may call: those that make no object.

use std::ffi::{CStr, c_int, c_void};

use heaptide_capture::heap::Label;

use crate::cpython::Unsupported;
use crate::cpython::heap_layout::{
    DictKeys, HeapLayout, dict_keys, object, type_flag, type_object,
};
use crate::cpython::layout::Layout;
use crate::cpython::memory::Direct;
use crate::cpython::text::read_text;

/// `visitproc`.
pub type Visit = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
/// `traverseproc`.
pub type Traverse = unsafe extern "C" fn(*mut c_void, Visit, *mut c_void) -> c_int;
type ObjectVisit = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

/// Addresses of types, and functions of the interpreter.
#[derive(Clone, Copy)]
pub struct Known {
    pub list: usize,
    pub tuple: usize,
    pub dict: usize,
    pub long: usize,
    pub unicode: usize,
    pub set: usize,
    pub frozen_set: usize,
    pub function: usize,
    pub cell: usize,
    pub generator: usize,
    pub coroutine: usize,
    pub async_generator: usize,
    pub frame: usize,
    pub byte_array: usize,
    pub traceback: usize,
    pub type_type: usize,
    pub code: usize,
    pub weak: [usize; 3],
    pub none: usize,
    dict_next:
        unsafe extern "C" fn(*mut c_void, *mut isize, *mut *mut c_void, *mut *mut c_void) -> c_int,
    module_dict: unsafe extern "C" fn() -> *mut c_void,
    interpreter: unsafe extern "C" fn() -> *mut c_void,
    thread_head: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    thread_next: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    /// `PyType_GetDict`, 3.12 and later: a new reference.
    type_dict: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    /// `PyUnstable_GC_VisitObjects`, 3.12 and later.
    visit_objects: Option<unsafe extern "C" fn(ObjectVisit, *mut c_void)>,
    dec_ref: unsafe extern "C" fn(*mut c_void),
}

/// Turns the address of a symbol into a function of the type of the field it goes into.
macro_rules! function {
    ($name:literal) => {{
        let address = symbol($name)?;
        // SAFETY: the symbol is a function of CPython's C API, and the field has its documented type.
        unsafe { std::mem::transmute::<*mut c_void, _>(address as *mut c_void) }
    }};
}

macro_rules! optional_function {
    ($name:literal) => {
        symbol($name).ok().map(|address| {
            // SAFETY: as for functions that are always there.
            unsafe { std::mem::transmute::<*mut c_void, _>(address as *mut c_void) }
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
            list: symbol(c"PyList_Type")?,
            tuple: symbol(c"PyTuple_Type")?,
            dict: symbol(c"PyDict_Type")?,
            long: symbol(c"PyLong_Type")?,
            unicode: symbol(c"PyUnicode_Type")?,
            set: symbol(c"PySet_Type")?,
            frozen_set: symbol(c"PyFrozenSet_Type")?,
            function: symbol(c"PyFunction_Type")?,
            cell: symbol(c"PyCell_Type")?,
            generator: symbol(c"PyGen_Type")?,
            coroutine: symbol(c"PyCoro_Type")?,
            async_generator: symbol(c"PyAsyncGen_Type")?,
            frame: symbol(c"PyFrame_Type")?,
            byte_array: symbol(c"PyByteArray_Type")?,
            traceback: symbol(c"PyTraceBack_Type")?,
            type_type: symbol(c"PyType_Type")?,
            code: symbol(c"PyCode_Type")?,
            weak: [
                symbol(c"_PyWeakref_RefType")?,
                symbol(c"_PyWeakref_ProxyType")?,
                symbol(c"_PyWeakref_CallableProxyType")?,
            ],
            none: symbol(c"_Py_NoneStruct")?,
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

fn symbol(name: &'static CStr) -> Result<usize, Unsupported> {
    // SAFETY: the name is a C string, and looking a symbol up has no other precondition.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        return Err(Unsupported::MissingSymbol {
            name: name.to_str().unwrap_or("a symbol"),
        });
    }
    Ok(address as usize)
}

/// The heap of an interpreter that stands still.
#[derive(Clone, Copy)]
pub struct Reader {
    pub layout: Layout,
    pub heap: HeapLayout,
    pub known: Known,
    /// The `tp_traverse` of classes written in Python; 0 if it is not known.
    pub class_traverse: usize,
}

impl Reader {
    /// # Safety
    /// The calling thread holds the GIL as long as the value is used, `layout` was proved in this process, and every
    /// address that the methods are asked for is that of a live object, or of a part of one.
    pub unsafe fn new(layout: Layout, heap: HeapLayout, known: Known) -> Reader {
        Reader {
            layout,
            heap,
            known,
            class_traverse: 0,
        }
    }

    #[inline(always)]
    pub fn word(&self, at: usize) -> usize {
        // SAFETY: whoever made this value promised that what it is asked for can be read.
        unsafe { (at as *const usize).read_unaligned() }
    }

    #[inline(always)]
    pub fn half(&self, at: usize) -> u32 {
        // SAFETY: as above.
        unsafe { (at as *const u32).read_unaligned() }
    }

    #[inline(always)]
    pub fn byte(&self, at: usize) -> u8 {
        // SAFETY: as above.
        unsafe { (at as *const u8).read() }
    }

    #[inline(always)]
    pub fn type_of(&self, object: usize) -> usize {
        self.word(object + object::TYPE)
    }

    /// Length of an object that has one.
    #[inline(always)]
    pub fn size(&self, object: usize) -> usize {
        self.word(object + object::SIZE)
    }

    #[inline(always)]
    pub fn flags(&self, type_address: usize) -> usize {
        self.word(type_address + type_object::FLAGS)
    }

    pub fn is_heap_type(&self, type_address: usize) -> bool {
        self.flags(type_address) & type_flag::HEAP_TYPE != 0
    }

    /// References that are counted, or `None` for an immortal object.
    #[inline(always)]
    pub fn references(&self, object: usize) -> Option<u64> {
        let low = self.half(object);
        match self.heap.immortal {
            Some(immortal) if low >= immortal => None,
            Some(_) => Some(u64::from(low)),
            None => Some(self.word(object) as u64),
        }
    }

    /// Whether the collector has this object in its lists; only for objects of collected types.
    #[inline(always)]
    pub fn is_tracked(&self, object: usize) -> bool {
        self.word(object - object::GC_HEADER) != 0
    }

    /// A C string, up to a limit.
    pub fn c_text(&self, at: usize, out: &mut String) {
        out.clear();
        for offset in 0..512 {
            match self.byte(at + offset) {
                0 => break,
                byte if byte.is_ascii() => out.push(char::from(byte)),
                _ => out.push('?'),
            }
        }
    }

    /// The text of a string object, cut at the buffer's end; `false` if it is none.
    pub fn text<'a>(&self, object: usize, buffer: &'a mut [u8]) -> Option<(&'a str, bool)> {
        // SAFETY: the object is alive, as whoever made this value promised.
        let mut memory = unsafe { Direct::trusting() };
        let written = read_text(&mut memory, &self.layout.unicode, object, buffer).ok()?;
        let text = std::str::from_utf8(buffer.get(..written.len)?).ok()?;
        Some((text, written.cut))
    }

    /// Calls `with` for every key and value of a dict. `with` must not change it.
    #[inline(always)]
    pub fn dict_entries(&self, dict: usize, mut with: impl FnMut(usize, usize)) {
        let has_own_values = self.word(dict + object::DICT_VALUES) != 0;
        if self.heap.dict_keys == DictKeys::Compact && !has_own_values {
            let keys = self.word(dict + object::DICT_KEYS);
            // Where the keys are not all texts, the hash stands in front of each.
            let (len, first) = match self.byte(keys + dict_keys::KIND) {
                0 => (24, 8),
                _ => (16, 0),
            };
            let entries = keys + dict_keys::INDICES + (1 << self.byte(keys + dict_keys::INDEX_LOG));
            for number in 0..self.word(keys + dict_keys::N_ENTRIES) {
                let entry = entries + number * len + first;
                let (key, value) = (self.word(entry), self.word(entry + 8));
                if value != 0 {
                    with(key, value);
                }
            }
            return;
        }
        self.asked_dict_entries(dict, &mut with);
    }

    /// The same, by asking the interpreter.
    #[inline(never)]
    fn asked_dict_entries(&self, dict: usize, with: &mut dyn FnMut(usize, usize)) {
        let mut at = 0;
        let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the dict is alive, the GIL is held, and nothing changes it between two calls.
        while unsafe { (self.known.dict_next)(dict as *mut c_void, &mut at, &mut key, &mut value) }
            != 0
        {
            with(key as usize, value as usize);
        }
    }

    /// Has an object say what it refers to.
    #[inline(always)]
    pub fn traverse(&self, object: usize, function: usize, visit: Visit, with: *mut c_void) {
        // SAFETY: the function is the `tp_traverse` of the object's type, which is not null.
        let function: Traverse = unsafe { std::mem::transmute(function) };
        // SAFETY: the object is alive and, being tracked or of a type of the interpreter's own, whole: the collector
        // itself would call the same at any moment.
        unsafe { function(object as *mut c_void, visit, with) };
    }

    /// Whether this very object has a collector's header.
    #[inline(always)]
    pub fn is_collected(&self, object: usize, flags: usize, is_gc: usize) -> bool {
        if flags & type_flag::HAVE_GC == 0 {
            return false;
        }
        if is_gc == 0 {
            return true;
        }
        // SAFETY: the word is the `tp_is_gc` of the object's type.
        let is_gc: unsafe extern "C" fn(*mut c_void) -> c_int =
            unsafe { std::mem::transmute(is_gc) };
        // SAFETY: the object is alive and of that type.
        unsafe { is_gc(object as *mut c_void) != 0 }
    }

    /// The dict of a type; 0 if it has none.
    pub fn dict_of_type(&self, type_address: usize) -> usize {
        match self.known.type_dict {
            Some(function) => {
                // SAFETY: the type is alive and ready; the reference is given back at once, since the type keeps one.
                unsafe {
                    let dict = function(type_address as *mut c_void);
                    if !dict.is_null() {
                        (self.known.dec_ref)(dict);
                    }
                    dict as usize
                }
            }
            None => self.word(type_address + type_object::DICT),
        }
    }

    /// `sys.modules`.
    pub fn modules(&self) -> usize {
        // SAFETY: the GIL is held; the reference is borrowed from the interpreter.
        unsafe { (self.known.module_dict)() as usize }
    }

    pub fn interpreter(&self) -> usize {
        // SAFETY: the GIL is held.
        unsafe { (self.known.interpreter)() as usize }
    }

    /// The thread states, newest first.
    pub fn threads(&self) -> impl Iterator<Item = usize> + '_ {
        // SAFETY: the GIL is held, and the interpreter is this one.
        let head = unsafe { (self.known.thread_head)((self.known.interpreter)()) };
        std::iter::successors((!head.is_null()).then_some(head), |state| {
            // SAFETY: the state is alive: threads come and go only with the GIL.
            let next = unsafe { (self.known.thread_next)(*state) };
            (!next.is_null()).then_some(next)
        })
        .map(|state| state as usize)
    }

    /// Has the collector show its objects; `false` if it cannot (before 3.12).
    pub fn visit_collected(&self, visit: Visit, with: *mut c_void) -> bool {
        match self.known.visit_objects {
            // SAFETY: the GIL is held; the visitor neither makes nor frees objects.
            Some(function) => unsafe {
                function(visit, with);
                true
            },
            None => false,
        }
    }
}

/// A place in an object and how a reference from there is called.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub offset: usize,
    pub label: Label,
}
