//! The walk's only access to the interpreter: reads of live objects, and calls of the few functions that create no object.
//!
//! A method is safe if the type of its argument ([`Object`], [`Type`], [`Frame`]) guarantees that the read is valid. Other
//! reads, such as of a field that only lists have, are `unsafe`: the caller must check the object's type.

use std::ffi::{c_int, c_void};

use super::known::{Known, Traverse, Visit};
use crate::cpython::heap_layout::{DictKeys, FrameStack, HeapLayout};
use crate::cpython::layout::Layout;
use crate::cpython::memory::Direct;
use crate::cpython::offsets::{HeapTypeField, TypeField, dict_keys, object, type_flag};
use crate::cpython::references::{Frame, Object, Type};
use crate::cpython::text::read_text;

/// The heap of a paused interpreter.
#[derive(Clone, Copy)]
pub struct Reader {
    pub layout: Layout,
    pub heap: HeapLayout,
    pub known: Known,
    /// The `tp_traverse` of classes written in Python; 0 if it is unknown.
    pub class_traverse: usize,
}

/// Fields that every object has.
impl Reader {
    /// # Safety
    /// The calling thread holds the GIL as long as the value is used, and runs no Python code meanwhile. `layout` was
    /// proved in this process, and `heap` is that of its version.
    pub unsafe fn new(layout: Layout, heap: HeapLayout, known: Known) -> Reader {
        Reader {
            layout,
            heap,
            known,
            class_traverse: 0,
        }
    }

    #[inline(always)]
    pub fn type_of(&self, object: Object) -> Type {
        // SAFETY: every object has a reference to its type here, which it keeps alive. The word is not null, so the
        // type can be made without a check.
        unsafe { Type::from_object(Object::at(self.word(object, object::TYPE)).unwrap_unchecked()) }
    }

    /// Returns the reference count, or `None` for an immortal object.
    #[inline(always)]
    pub fn references(&self, object: Object) -> Option<u64> {
        // SAFETY: every object starts with its reference count.
        let (low, all) = unsafe { (self.half(object, 0), self.word(object, 0)) };
        match self.heap.immortal {
            Some(immortal) if low >= immortal => None,
            Some(_) => Some(u64::from(low)),
            None => Some(all as u64),
        }
    }

    /// Returns the text of a string, and whether it was cut at the end of the buffer; `None` for other objects.
    pub fn text<'a>(&self, object: Object, buffer: &'a mut [u8]) -> Option<(&'a str, bool)> {
        if self.flags(self.type_of(object)) & type_flag::UNICODE == 0 {
            return None;
        }
        // SAFETY: the object is alive, and its type says that it is a string.
        let read =
            unsafe { read_text(&mut Direct, &self.layout.unicode, object.address(), buffer) };
        let written = read.ok()?;
        let text = std::str::from_utf8(buffer.get(..written.len)?).ok()?;
        Some((text, written.cut))
    }
}

/// Fields of types.
impl Reader {
    #[inline(always)]
    pub fn type_field(&self, type_: Type, field: TypeField) -> usize {
        type_.field(field)
    }

    /// Returns the object that a field of a type refers to.
    ///
    /// # Safety
    /// The field is null or a reference that the type owns.
    pub unsafe fn type_reference(&self, type_: Type, field: TypeField) -> Option<Object> {
        // SAFETY: the type is alive, and keeps alive what it owns.
        unsafe { Object::at(self.type_field(type_, field)) }
    }

    #[inline(always)]
    pub fn flags(&self, type_: Type) -> usize {
        self.type_field(type_, TypeField::Flags)
    }

    #[inline(always)]
    pub fn basic_size(&self, type_: Type) -> usize {
        self.type_field(type_, TypeField::BasicSize)
    }

    /// Returns the first base of a type.
    pub fn base(&self, type_: Type) -> Option<Type> {
        // SAFETY: the field is null or a reference to a type.
        unsafe { Type::at(self.type_field(type_, TypeField::Base)) }
    }

    pub fn is_heap_type(&self, type_: Type) -> bool {
        self.flags(type_) & type_flag::HEAP_TYPE != 0
    }

    /// Returns a field that only heap types have; 0 for other types.
    pub fn heap_type_field(&self, type_: Type, field: HeapTypeField) -> usize {
        if !self.is_heap_type(type_) {
            return 0;
        }
        let offset = self.heap.heap_type_name + field as usize;
        // SAFETY: the struct of a heap type has the field here; its size was compared with the layout's.
        unsafe { self.word(type_.object(), offset) }
    }

    /// Writes the name of a type (`tp_name`) to `out`.
    pub fn type_name(&self, type_: Type, out: &mut String) {
        // SAFETY: the field is a C string that lives as long as the type.
        unsafe { self.c_text(self.type_field(type_, TypeField::Name), out) };
    }

    /// Returns the dict of a type.
    pub fn dict_of_type(&self, type_: Type) -> Option<Object> {
        match self.known.type_dict {
            Some(function) => {
                // SAFETY: the type is alive and ready. The new reference is released at once: the type keeps another,
                // so the dict stays alive.
                unsafe {
                    let dict = function(type_.address() as *mut c_void);
                    if !dict.is_null() {
                        (self.known.dec_ref)(dict);
                    }
                    Object::at(dict as usize)
                }
            }
            // SAFETY: before 3.12 the field is null or a reference that the type owns.
            None => unsafe { self.type_reference(type_, TypeField::Dict) },
        }
    }
}

/// Fields of frames. A word may be the address of an object that was freed, if the frame has finished.
impl Reader {
    /// # Safety
    /// A frame has a word at this offset.
    #[inline]
    unsafe fn frame_word(&self, frame: Frame, offset: usize) -> usize {
        // SAFETY: the memory of the frame is readable, and the caller vouches for the offset.
        unsafe { word_at(frame.address() + offset) }
    }

    /// Returns an address without the tags that a word may carry; 0 if the word is a tagged number.
    #[inline]
    fn untagged(&self, word: usize) -> usize {
        let tags = self.heap.frame_tag_bits;
        if tags != 0 && word & tags == tags {
            return 0;
        }
        word & !tags
    }

    pub fn frame_code(&self, frame: Frame) -> usize {
        // SAFETY: the layout was proved: every frame has its code here.
        unsafe { self.frame_word(frame, self.layout.frame_code) & self.layout.frame_code_mask }
    }

    pub fn frame_namespace(&self, frame: Frame) -> usize {
        // SAFETY: every frame has its namespace here, in all versions.
        unsafe { self.frame_word(frame, self.heap.frame_namespace) }
    }

    pub fn frame_function(&self, frame: Frame) -> usize {
        // SAFETY: every frame has its function here, in versions that have the field.
        let word = |offset| unsafe { self.frame_word(frame, offset) };
        self.untagged(self.heap.frame_function.map_or(0, word))
    }

    pub fn frame_object(&self, frame: Frame) -> usize {
        // SAFETY: every frame has its frame object here, in versions that have the field.
        let word = |offset| unsafe { self.frame_word(frame, offset) };
        self.heap.frame_object.map_or(0, word)
    }

    /// Returns the number of locals and stack values of a running frame; 0 if it is unknown.
    pub fn n_frame_values(&self, frame: Frame) -> usize {
        let locals = frame.address() + self.heap.frame_locals;
        // SAFETY: every frame of a version with this field has it here.
        unsafe {
            match self.heap.frame_stack {
                FrameStack::Unknown => 0,
                FrameStack::Count(offset) => {
                    let count = half_at(frame.address() + offset) as i32;
                    count.max(0) as usize
                }
                FrameStack::Pointer(offset) => {
                    self.frame_word(frame, offset).saturating_sub(locals) / 8
                }
            }
        }
    }

    /// Returns a local variable or a stack value of a frame; 0 if it is not set.
    ///
    /// # Safety
    /// The frame has more values than `number`, by its code or by [`Reader::n_frame_values`].
    pub unsafe fn frame_value(&self, frame: Frame, number: usize) -> usize {
        // SAFETY: passed on from the caller.
        self.untagged(unsafe { self.frame_word(frame, self.heap.frame_locals + number * 8) })
    }
}

/// Reads of fields that only some types have. The caller knows the type.
impl Reader {
    /// # Safety
    /// The struct of the object, or the header before it, has a word at this offset.
    #[inline(always)]
    pub unsafe fn word(&self, object: Object, offset: usize) -> usize {
        // SAFETY: the object is alive, and the caller vouches for the offset.
        unsafe { word_at(object.address() + offset) }
    }

    /// Returns 4 bytes of an object.
    ///
    /// # Safety
    /// The struct of the object has them at this offset.
    #[inline(always)]
    pub unsafe fn half(&self, object: Object, offset: usize) -> u32 {
        // SAFETY: as for `word`.
        unsafe { half_at(object.address() + offset) }
    }

    /// Returns a reference in a field of an object.
    ///
    /// # Safety
    /// At this offset, the struct of the object has null or a reference that it owns.
    #[inline(always)]
    pub unsafe fn reference(&self, object: Object, offset: usize) -> Option<Object> {
        // SAFETY: the object is alive, and keeps alive what it owns.
        unsafe { Object::at(self.word(object, offset)) }
    }

    /// Returns the length of an object.
    ///
    /// # Safety
    /// The object has one: its struct starts with `PyVarObject`, or has a word of the same meaning there.
    #[inline(always)]
    pub unsafe fn size(&self, object: Object) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { self.word(object, object::SIZE) }
    }

    /// Returns whether the collector has this object in its lists.
    ///
    /// # Safety
    /// The object has a collector's header.
    #[inline(always)]
    pub unsafe fn is_tracked(&self, object: Object) -> bool {
        // SAFETY: the header lies right before the object.
        unsafe { word_at(object.address() - object::GC_HEADER) != 0 }
    }

    /// Returns whether this object has a collector's header.
    ///
    /// # Safety
    /// `flags` and `is_gc` are those of the object's type.
    #[inline(always)]
    pub unsafe fn is_collected(&self, object: Object, flags: usize, is_gc: usize) -> bool {
        if flags & type_flag::HAVE_GC == 0 {
            return false;
        }
        if is_gc == 0 {
            return true;
        }
        // SAFETY: the word is the `tp_is_gc` of the object's type, and the object is alive.
        unsafe {
            let is_gc: unsafe extern "C" fn(*mut c_void) -> c_int = std::mem::transmute(is_gc);
            is_gc(object.address() as *mut c_void) != 0
        }
    }

    /// Writes a C string to `out`, up to a limit.
    ///
    /// # Safety
    /// `at` is the address of a C string.
    pub unsafe fn c_text(&self, at: usize, out: &mut String) {
        out.clear();
        for offset in 0..512 {
            // SAFETY: no earlier byte was the end of the string.
            match unsafe { byte_at(at + offset) } {
                0 => break,
                byte if byte.is_ascii() => out.push(char::from(byte)),
                _ => out.push('?'),
            }
        }
    }

    /// Returns whether a C string is equal to a text.
    ///
    /// # Safety
    /// `at` is the address of a C string.
    pub unsafe fn c_text_is(&self, at: usize, text: &str) -> bool {
        let mut ended = text.bytes().chain([0]).enumerate();
        // SAFETY: all bytes before this one were equal to those of a text, so none was the end of the string.
        ended.all(|(offset, byte)| unsafe { byte_at(at + offset) } == byte)
    }

    /// Returns whether a type has this name (`tp_name`).
    pub fn type_is_named(&self, type_: Type, name: &str) -> bool {
        // SAFETY: the field is a C string that lives as long as the type.
        unsafe { self.c_text_is(self.type_field(type_, TypeField::Name), name) }
    }

    /// Returns whether the interpreter marked a dict as one with only `str` keys. Some such dicts lack the mark.
    ///
    /// # Safety
    /// The object is an instance of dict or of a subclass.
    #[inline(always)]
    pub unsafe fn has_only_string_keys(&self, dict: Object) -> bool {
        // SAFETY: a dict has the address of its keys object, which has the field in versions with compact keys.
        self.heap.dict_keys == DictKeys::Compact
            && unsafe { byte_at(self.word(dict, object::DICT_KEYS) + dict_keys::KIND) } != 0
    }

    /// Returns whether a dict shares neither its keys nor its values with other objects, and the entries can be read.
    ///
    /// # Safety
    /// The object is an instance of dict or of a subclass.
    #[inline(always)]
    pub unsafe fn has_own_keys(&self, dict: Object) -> bool {
        // SAFETY: a dict has this field.
        self.heap.dict_keys == DictKeys::Compact
            && unsafe { self.word(dict, object::DICT_VALUES) } == 0
    }

    /// Calls `with` for every key and value of a dict. `with` must not change it.
    ///
    /// # Safety
    /// The object is an instance of dict or of a subclass.
    #[inline(always)]
    pub unsafe fn dict_entries(&self, dict: Object, mut with: impl FnMut(Object, Object)) {
        // SAFETY: a dict has these fields, and its keys object has the fields and entries below. A live entry has a
        // key and a value, to which the dict has references.
        unsafe {
            let has_separate_values = self.word(dict, object::DICT_VALUES) != 0;
            if self.heap.dict_keys == DictKeys::Compact && !has_separate_values {
                let keys = self.word(dict, object::DICT_KEYS);
                // If keys may be of any type, each has its hash stored before it.
                let (len, first) = match byte_at(keys + dict_keys::KIND) {
                    0 => (dict_keys::ENTRY, 8),
                    _ => (dict_keys::STRING_ENTRY, 0),
                };
                let entries = entries_of(keys);
                for number in 0..word_at(keys + dict_keys::N_ENTRIES) {
                    let entry = entries + number * len + first;
                    let (key, value) = (word_at(entry), word_at(entry + 8));
                    if let Some(value) = Object::at(value) {
                        with(Object::at(key).unwrap_unchecked(), value);
                    }
                }
                return;
            }
            self.dict_next_entries(dict, &mut with);
        }
    }

    /// Does the same as [`Reader::dict_entries`], through `PyDict_Next`.
    ///
    /// # Safety
    /// As for [`Reader::dict_entries`].
    #[inline(never)]
    unsafe fn dict_next_entries(&self, dict: Object, with: &mut dyn FnMut(Object, Object)) {
        let mut position = 0;
        let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        let dict = dict.address() as *mut c_void;
        // SAFETY: the dict is alive, the GIL is held, and nothing changes the dict between two calls.
        while unsafe { (self.known.dict_next)(dict, &mut position, &mut key, &mut value) } != 0 {
            // SAFETY: the dict has references to both.
            let entry = unsafe { (Object::at(key as usize), Object::at(value as usize)) };
            if let (Some(key), Some(value)) = entry {
                with(key, value);
            }
        }
    }

    /// Calls `visit` for each reference of an object.
    ///
    /// # Safety
    /// `function` is the `tp_traverse` of the object's type and not null. The object is complete: it is tracked, or its
    /// type is static. `visit` accepts `with` as its second argument.
    #[inline(always)]
    pub unsafe fn traverse(
        &self,
        object: Object,
        function: usize,
        visit: Visit,
        with: *mut c_void,
    ) {
        // SAFETY: the collector may call a `tp_traverse` at any moment for such an object, so this call needs no more
        // than the caller promises: the function of the object's type, and a visitor that accepts `with`.
        unsafe {
            let function: Traverse = std::mem::transmute(function);
            function(object.address() as *mut c_void, visit, with)
        };
    }
}

/// The interpreter itself.
impl Reader {
    /// Returns `sys.modules`.
    pub fn modules(&self) -> Option<Object> {
        // SAFETY: the GIL is held; the interpreter keeps the object alive.
        unsafe { Object::at((self.known.module_dict)() as usize) }
    }

    /// Returns the address of the interpreter's state.
    pub fn interpreter(&self) -> usize {
        // SAFETY: the GIL is held.
        unsafe { (self.known.interpreter)() as usize }
    }

    /// Returns the thread states, newest first.
    pub fn threads(&self) -> impl Iterator<Item = usize> + '_ {
        // SAFETY: the GIL is held, and the interpreter is the current one.
        let head = unsafe { (self.known.thread_head)((self.known.interpreter)()) };
        std::iter::successors((!head.is_null()).then_some(head), |state| {
            // SAFETY: the state is alive: threads are added and removed only with the GIL.
            let next = unsafe { (self.known.thread_next)(*state) };
            (!next.is_null()).then_some(next)
        })
        .map(|state| state as usize)
    }

    /// Calls `visit` for each object of the collector; `false` if the collector cannot do this (before 3.12).
    ///
    /// # Safety
    /// `visit` accepts `with` as its second argument, and neither creates nor frees objects.
    pub unsafe fn visit_collected(&self, visit: Visit, with: *mut c_void) -> bool {
        match self.known.visit_objects {
            // SAFETY: the GIL is held, and the caller vouches for the visitor.
            Some(function) => unsafe {
                function(visit, with);
                true
            },
            None => false,
        }
    }
}

/// Returns the address of the entries of a keys object of 3.11 and later.
///
/// # Safety
/// `keys` is a live keys object of a dict or of a class.
#[inline(always)]
pub unsafe fn entries_of(keys: usize) -> usize {
    // SAFETY: passed on from the caller.
    let index_bytes = 1 << unsafe { byte_at(keys + dict_keys::INDEX_LOG) };
    keys + dict_keys::INDICES + index_bytes
}

/// Returns the word at an address.
///
/// # Safety
/// The bytes are readable: they belong to a live object or to memory that one owns.
#[inline(always)]
pub unsafe fn word_at(address: usize) -> usize {
    // SAFETY: passed on from the caller.
    unsafe { (address as *const usize).read_unaligned() }
}

/// Returns the 4 bytes at an address.
///
/// # Safety
/// As for [`word_at`].
#[inline(always)]
pub unsafe fn half_at(address: usize) -> u32 {
    // SAFETY: passed on from the caller.
    unsafe { (address as *const u32).read_unaligned() }
}

/// Returns the byte at an address.
///
/// # Safety
/// As for [`word_at`].
#[inline(always)]
pub unsafe fn byte_at(address: usize) -> u8 {
    // SAFETY: passed on from the caller.
    unsafe { (address as *const u8).read() }
}
