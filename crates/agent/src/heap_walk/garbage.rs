//! Marks the tracked objects that are alive; the others are garbage.
//!
//! Objects reachable from `sys.modules` or from a running frame are alive. A remaining object is also alive if anything
//! other than a remaining object refers to it, and so is everything reachable from it. This is the collector's own rule. It
//! takes less time than a collection, because most objects are found alive in one pass instead of two.
//!
//! A snapshot finds its unreachable objects itself, and a table leaves them out. [`needs_collection`] reports when a
//! collection could change that table, or is worthwhile.

use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;

use super::column::Column;
use super::frames::local_name_objects;
use super::index::Index;
use super::known::Visit;
use super::output::Columns;
use super::prefetch::fetch_object;
use super::reader::{Reader, word_at};
use super::visited::{Refused, Visited};
use super::walk::{Full, Walk};
use crate::cpython::offsets::{TypeField, type_flag};
use crate::cpython::references::{Frame, Object, Type};
use crate::cpython::thread_frames;

/// When this many objects of the list of work are done, they are removed from it.
const REMOVE_FROM: usize = 1 << 12;
/// The distance, in objects, at which an object is prefetched.
const FETCH: usize = 12;
/// The maximum valid number of values of a frame.
const MAX_VALUES: usize = 1 << 20;

/// One object of garbage among this many makes a collection worthwhile.
pub const GARBAGE_SHARE: usize = 10;

/// Returns whether a collection of these unreachable objects may change other objects, or is worthwhile because they are
/// many. A finalizer can change anything, and so can the callback of a weak reference: it removes entries of a
/// `WeakValueDictionary`.
pub fn needs_collection(walk: &Walk<'_, Columns>, garbage: &[Object]) -> bool {
    let reader = walk.reader;
    let has_effects = |object: &Object| {
        let type_ = reader.type_of(*object);
        let offset = reader.type_field(type_, TypeField::WeakListOffset) as isize;
        reader.type_field(type_, TypeField::Finalize) != 0
            // SAFETY: if the offset is not 0, every instance of the type has the head of the list of its weak references
            // there: in its struct, or before the collector's header if the offset is negative. The collector and
            // `weakref.ref` read the same word.
            || (offset != 0 && unsafe { word_at(object.address().wrapping_add_signed(offset)) } != 0)
    };
    garbage.len() * GARBAGE_SHARE > walk.output.handles.len() || garbage.iter().any(has_effects)
}

/// Marks objects that are alive.
pub struct Marker<'r> {
    reader: &'r Reader,
    visited: Visited,
    /// Marked objects; the first `n_done` were traversed.
    waiting: Column<Object>,
    n_done: usize,
    /// Marked tuples and dicts that refer to nothing the collector may track except tuples.
    plain: Visited,
    /// Whether the tuple or dict that is being followed refers to anything else.
    holds_other: bool,
    failed: bool,
}

/// Marks a reported reference.
unsafe extern "C" fn mark_referent(target: *mut c_void, marker: *mut c_void) -> c_int {
    // SAFETY: `Marker::traverse` passes itself and does not use it until `tp_traverse` returns.
    let marker = unsafe { &mut *marker.cast::<Marker<'_>>() };
    // SAFETY: a `tp_traverse` reports references that its object has.
    if let Some(target) = unsafe { Object::at(target as usize) } {
        marker.mark(target);
    }
    0
}

/// Marks a reported reference of a tuple or dict.
unsafe extern "C" fn mark_item(target: *mut c_void, marker: *mut c_void) -> c_int {
    // SAFETY: as in `mark_referent`.
    let marker = unsafe { &mut *marker.cast::<Marker<'_>>() };
    // SAFETY: as in `mark_referent`.
    if let Some(target) = unsafe { Object::at(target as usize) } {
        marker.mark_item(target);
    }
    0
}

impl<'r> Marker<'r> {
    pub fn new(reader: &'r Reader) -> Option<Marker<'r>> {
        Some(Marker {
            reader,
            visited: Visited::new()?,
            waiting: Column::new(),
            n_done: 0,
            plain: Visited::new()?,
            holds_other: false,
            failed: false,
        })
    }

    /// Marks an object. It is followed only if the collector tracks it, or if it is a static type: other objects lead to no
    /// tracked object.
    #[inline(always)]
    fn mark(&mut self, object: Object) {
        // Most references lead to objects that are marked. Only their bit is read, not the object.
        match self.visited.mark(object.address()) {
            Ok((_, false)) => {}
            Ok((_, true)) => {
                let is_followed = self.is_followed(object);
                self.failed |= !self.waiting.push_if(object, is_followed);
            }
            Err(refused) => self.failed |= refused == Refused::Full,
        }
    }

    #[inline(always)]
    fn is_followed(&self, object: Object) -> bool {
        let reader = self.reader;
        let type_ = reader.type_of(object);
        let flags = reader.flags(type_);
        if flags & type_flag::HAVE_GC == 0 {
            return false;
        }
        let is_gc = reader.type_field(type_, TypeField::IsGc);
        // SAFETY: the flags and the function are those of the object's type, and a collected object has the header.
        unsafe {
            if reader.is_collected(object, flags, is_gc) {
                reader.is_tracked(object)
            } else {
                flags & type_flag::TYPE != 0
            }
        }
    }

    /// Marks an object to which a tuple or dict refers.
    #[inline(always)]
    fn mark_item(&mut self, object: Object) {
        if !self.holds_other {
            let reader = self.reader;
            let type_ = reader.type_of(object);
            let is_gc = reader.type_field(type_, TypeField::IsGc);
            // SAFETY: the flags and the function are those of the object's type.
            let is_collected = unsafe { reader.is_collected(object, reader.flags(type_), is_gc) };
            self.holds_other = is_collected && type_ != reader.known.tuple;
        }
        self.mark(object);
    }

    /// Returns whether a tracked object has been found alive.
    #[inline(always)]
    pub fn is_marked(&mut self, object: Object) -> bool {
        self.visited.contains(object.address())
    }

    /// Returns whether an object is a live tuple or dict that refers to nothing the collector may track except tuples.
    #[inline(always)]
    pub fn is_plain(&mut self, object: Object) -> bool {
        self.plain.contains(object.address())
    }

    /// Marks modules and running frames, and everything reachable from them.
    pub fn mark_roots(&mut self, read_locals: bool) -> Result<(), Full> {
        let reader = self.reader;
        if let Some(modules) = reader.modules() {
            self.mark(modules);
        }
        for state in reader.threads() {
            let mut visit = |frame: usize, code: usize, _: u32| {
                // SAFETY: a running frame stays until its function returns, which needs the GIL, and keeps its code.
                let (frame, code) = unsafe { (Frame::at(frame), Object::at(code)) };
                if let (Some(frame), Some(code)) = (frame, code) {
                    self.mark_frame(frame, code, read_locals);
                }
                ControlFlow::Continue(())
            };
            // SAFETY: the GIL is held, so the thread does not run Python code, and the layout was proved.
            let _ = unsafe { thread_frames(&reader.layout, state, &mut visit) };
        }
        self.follow()
    }

    fn mark_frame(&mut self, frame: Frame, code: Object, read_locals: bool) {
        let reader = self.reader;
        if reader.type_of(code) != reader.known.code {
            return;
        }
        if reader.heap.frame_function.is_none() {
            // SAFETY: in 3.10 the frame is an object. The collector does not track it while it runs.
            if let Some(object) = unsafe { Object::at(frame.address()) } {
                self.traverse(object, reader.known.frame, mark_referent);
            }
            return;
        }
        let mut n_values = 0;
        if read_locals {
            // SAFETY: the frame is running this code object.
            let n_locals = unsafe { local_name_objects(reader, code) }.len();
            n_values = reader.n_frame_values(frame).max(n_locals);
        }
        let own = [
            reader.frame_function(frame),
            reader.frame_namespace(frame),
            reader.frame_object(frame),
        ];
        // SAFETY: the frame has a value for each name of its code, and this many values in all.
        let values = (0..n_values.min(MAX_VALUES))
            .map(|number| unsafe { reader.frame_value(frame, number) });
        for address in own.into_iter().chain(values) {
            // SAFETY: a running frame has references to these objects.
            if let Some(target) = unsafe { Object::at(address) } {
                self.mark(target);
            }
        }
    }

    /// Marks everything reachable from the marked objects.
    fn follow(&mut self) -> Result<(), Full> {
        let reader = self.reader;
        while let Some(object) = self.waiting.get(self.n_done).copied() {
            if let Some(ahead) = self.waiting.get(self.n_done + FETCH) {
                fetch_object(*ahead);
            }
            self.n_done += 1;
            if self.n_done >= REMOVE_FROM && self.n_done * 2 >= self.waiting.len() {
                self.waiting.remove_first(self.n_done);
                self.n_done = 0;
            }
            let type_ = reader.type_of(object);
            if reader.flags(type_) & type_flag::TYPE != 0 {
                // SAFETY: an object of a type with this flag is a type.
                let type_ = unsafe { Type::from_object(object) };
                if !reader.is_heap_type(type_) {
                    self.mark_static_type(type_);
                    continue;
                }
            }
            if type_ == reader.known.tuple || type_ == reader.known.dict {
                self.follow_container(object, type_);
            } else {
                self.traverse(object, type_, mark_referent);
            }
            if self.failed {
                return Err(Full);
            }
        }
        Ok(())
    }

    /// Marks everything that a tuple or dict refers to.
    fn follow_container(&mut self, object: Object, type_: Type) {
        let reader = self.reader;
        self.holds_other = false;
        // SAFETY: the object is a tuple, which has a length and as many references or nulls, or a dict.
        unsafe {
            if type_ == reader.known.tuple {
                let items = object.address() + reader.basic_size(type_);
                for number in 0..reader.size(object) {
                    if let Some(item) = Object::at(word_at(items + number * 8)) {
                        self.mark_item(item);
                    }
                }
            } else if !reader.has_own_keys(object) {
                // The dict's own function decides which of the values that it shares with an instance it refers to.
                self.traverse(object, type_, mark_item);
            } else if reader.has_only_string_keys(object) {
                reader.dict_entries(object, |_, value| self.mark_item(value));
            } else {
                reader.dict_entries(object, |key, value| {
                    self.mark_item(key);
                    self.mark_item(value);
                });
            }
        }
        if !self.holds_other {
            self.failed |= self.plain.mark(object.address()).is_err();
        }
    }

    fn traverse(&mut self, object: Object, type_: Type, visit: Visit) {
        let function = self.reader.type_field(type_, TypeField::Traverse);
        if function != 0 {
            let marker: *mut Self = self;
            // SAFETY: `function` is the `tp_traverse` of the object's type, and callers pass complete objects: tracked
            // ones, and running frames. The visitor gets the marker that it expects.
            unsafe { self.reader.traverse(object, function, visit, marker.cast()) };
        }
    }

    /// Marks the references of a static type, which the collector does not traverse because it has no collector's header.
    fn mark_static_type(&mut self, type_: Type) {
        let reader = self.reader;
        let fields = [TypeField::Base, TypeField::Bases, TypeField::Mro];
        // SAFETY: these fields are null or references that the type owns.
        let owned = fields.map(|field| unsafe { reader.type_reference(type_, field) });
        for target in owned
            .into_iter()
            .chain([reader.dict_of_type(type_)])
            .flatten()
        {
            self.mark(target);
        }
    }

    /// Marks the objects of `rest` to which something outside of `rest` refers, and everything reachable from them. `rest` is
    /// all unmarked tracked objects, so the objects that are still unmarked after this call are garbage.
    pub fn mark_held(&mut self, rest: &[Object]) -> Result<(), Full> {
        let reader = self.reader;
        let mut references = References::new(rest).ok_or(Full)?;
        let with: *mut References = &mut references;
        for object in rest {
            let function = reader.type_field(reader.type_of(*object), TypeField::Traverse);
            if function != 0 {
                // SAFETY: a tracked object is complete, the function is that of its type, and the visitor expects this
                // value, which nothing else uses meanwhile.
                unsafe { reader.traverse(*object, function, count_referent, with.cast()) };
            }
        }
        for (object, known) in rest.iter().zip(references.known.iter()) {
            let is_held = |count| count > u64::from(*known);
            if reader.references(*object).is_none_or(is_held) {
                self.mark(*object);
            }
        }
        self.follow()
    }
}

/// The number of references to each of some objects from the others.
struct References {
    addresses: Column<u64>,
    index: Index,
    known: Column<u32>,
}

impl References {
    fn new(objects: &[Object]) -> Option<References> {
        let mut addresses = Column::new();
        let mut index = Index::new()?;
        for object in objects {
            let address = object.address() as u64;
            index.find_or_add(&addresses, address)?;
            addresses.push(address).then_some(())?;
        }
        Some(References {
            addresses,
            index,
            known: Column::zeroed(objects.len())?,
        })
    }
}

unsafe extern "C" fn count_referent(target: *mut c_void, references: *mut c_void) -> c_int {
    // SAFETY: `Marker::mark_held` passes this value and does not use it until `tp_traverse` returns.
    let references = unsafe { &mut *references.cast::<References>() };
    let number = references.index.find(&references.addresses, target as u64);
    if let Some(known) = number.and_then(|number| references.known.get_mut(number as usize)) {
        *known = known.saturating_add(1);
    }
    0
}
