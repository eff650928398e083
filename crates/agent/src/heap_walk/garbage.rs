//! Finds garbage: tracked objects that nothing alive leads to.
//!
//! Objects that `sys.modules` or a running frame leads to are alive. Among the others, those with more references than the
//! others have to them are alive, and so is all that they lead to. The rest is garbage. This is the collector's own rule;
//! most objects are found alive in one pass instead of the collector's two.

use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;

use super::column::Column;
use super::frames::local_name_objects;
use super::index::Index;
use super::prefetch::fetch_object;
use super::reader::Reader;
use super::visited::{Refused, Visited};
use super::walk::Full;
use crate::cpython::offsets::{TypeField, type_flag};
use crate::cpython::references::{Frame, Object, Type};
use crate::cpython::thread_frames;

/// When this many objects of the list of work are done, they are removed from it.
const REMOVE_FROM: usize = 1 << 12;
/// The distance, in objects, at which an object is prefetched.
const FETCH: usize = 12;
/// The maximum valid number of values of a frame.
const MAX_VALUES: usize = 1 << 20;

/// Marks objects that are alive.
pub struct Marker<'r> {
    reader: &'r Reader,
    visited: Visited,
    /// Marked objects; the first `n_done` were traversed.
    waiting: Column<Object>,
    n_done: usize,
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

impl<'r> Marker<'r> {
    pub fn new(reader: &'r Reader) -> Option<Marker<'r>> {
        Some(Marker {
            reader,
            visited: Visited::new()?,
            waiting: Column::new(),
            n_done: 0,
            failed: false,
        })
    }

    #[inline(always)]
    fn mark(&mut self, object: Object) {
        match self.visited.mark(object.address()) {
            Ok((_, new)) => self.failed |= !self.waiting.push_if(object, new),
            Err(refused) => self.failed |= refused == Refused::Full,
        }
    }

    /// Marks what the interpreter keeps alive: modules, the types of the tracked objects, and running frames.
    pub fn mark_roots(&mut self, read_locals: bool, types: &[(usize, u64)]) {
        let reader = self.reader;
        if let Some(modules) = reader.modules() {
            self.mark(modules);
        }
        for (address, _) in types {
            // SAFETY: a tracked object keeps its type alive.
            if let Some(type_) = unsafe { Type::at(*address) } {
                if !reader.is_heap_type(type_) {
                    self.mark(type_.object());
                }
            }
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
    }

    fn mark_frame(&mut self, frame: Frame, code: Object, read_locals: bool) {
        let reader = self.reader;
        if reader.type_of(code) != reader.known.code {
            return;
        }
        if reader.heap.frame_function.is_none() {
            // SAFETY: in 3.10 the frame is an object. The collector does not track it while it runs.
            if let Some(object) = unsafe { Object::at(frame.address()) } {
                let traverse = reader.type_field(reader.known.frame, TypeField::Traverse);
                self.traverse(object, traverse);
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
            code.address(),
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

    /// Marks all that the marked objects lead to. As in a collection, only tracked objects are traversed.
    pub fn run(&mut self) -> Result<(), Full> {
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
            let flags = reader.flags(type_);
            if flags & type_flag::HAVE_GC == 0 {
                continue;
            }
            // SAFETY: the flags and the function are those of the object's type, and the object has a collector's
            // header if it is collected. A tracked object is complete.
            unsafe {
                let is_gc = reader.type_field(type_, TypeField::IsGc);
                if reader.is_collected(object, flags, is_gc) {
                    if reader.is_tracked(object) {
                        self.traverse(object, reader.type_field(type_, TypeField::Traverse));
                    }
                } else if flags & type_flag::TYPE != 0 {
                    self.mark_static_type(Type::from_object(object));
                }
            }
            if self.failed {
                return Err(Full);
            }
        }
        Ok(())
    }

    fn traverse(&mut self, object: Object, function: usize) {
        if function != 0 {
            let reader = self.reader;
            let marker: *mut Self = self;
            // SAFETY: `function` is the `tp_traverse` of the object's type, and callers pass complete objects. The
            // visitor gets the marker that it expects.
            unsafe { reader.traverse(object, function, mark_referent, marker.cast()) };
        }
    }

    /// Marks what a static type refers to: it has no collector's header, so the collector does not traverse it.
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

    /// Returns the tracked objects that nothing alive leads to.
    pub fn garbage(mut self, tracked: &[Object]) -> Result<Column<Object>, Full> {
        let reader = self.reader;
        let mut rest: Column<Object> = Column::new();
        let mut addresses: Column<u64> = Column::new();
        let mut index = Index::new().ok_or(Full)?;
        for object in tracked {
            match self.visited.mark(object.address()) {
                Ok((_, true)) => {
                    let address = object.address() as u64;
                    index.find_or_add(&addresses, address).ok_or(Full)?;
                    if !(addresses.push(address) && rest.push(*object)) {
                        return Err(Full);
                    }
                }
                Ok((_, false)) => {}
                Err(_) => return Err(Full),
            }
        }
        let mut references = Rest {
            known: Column::zeroed(rest.len()).ok_or(Full)?,
            reached: Column::new(),
            is_reached: Column::zeroed(rest.len()).ok_or(Full)?,
            addresses,
            index,
            failed: false,
        };
        let traverse = |object: Object, visit, references: &mut Rest| {
            let function = reader.type_field(reader.type_of(object), TypeField::Traverse);
            if function != 0 {
                let with: *mut Rest = references;
                // SAFETY: a tracked object is complete, the function is that of its type, and the visitors expect this
                // value.
                unsafe { reader.traverse(object, function, visit, with.cast()) };
            }
        };
        for object in rest.iter() {
            traverse(*object, count_referent, &mut references);
        }
        for (number, object) in rest.iter().enumerate() {
            let known = u64::from(references.known[number]);
            if reader.references(*object).is_none_or(|count| count > known) {
                references.reach(number as u32);
            }
        }
        let mut done = 0;
        while let Some(number) = references.reached.get(done).copied() {
            done += 1;
            traverse(rest[number as usize], reach_referent, &mut references);
        }
        let mut garbage = Column::new();
        for (number, object) in rest.iter().enumerate() {
            let is_garbage = references.is_reached[number] == 0;
            references.failed |= !garbage.push_if(*object, is_garbage);
        }
        if references.failed {
            Err(Full)
        } else {
            Ok(garbage)
        }
    }
}

/// The objects that no root leads to, by number, and the references between them.
struct Rest {
    addresses: Column<u64>,
    index: Index,
    /// References to each object from the others.
    known: Column<u32>,
    is_reached: Column<u8>,
    /// Objects that are alive, in the order in which they were found.
    reached: Column<u32>,
    failed: bool,
}

impl Rest {
    fn find(&self, address: usize) -> Option<u32> {
        self.index.find(&self.addresses, address as u64)
    }

    fn reach(&mut self, number: u32) {
        let is_reached = &mut self.is_reached[number as usize];
        if std::mem::replace(is_reached, 1) == 0 {
            self.failed |= !self.reached.push(number);
        }
    }
}

unsafe extern "C" fn count_referent(target: *mut c_void, rest: *mut c_void) -> c_int {
    // SAFETY: `Marker::garbage` passes this value and does not use it until `tp_traverse` returns.
    let rest = unsafe { &mut *rest.cast::<Rest>() };
    if let Some(number) = rest.find(target as usize) {
        rest.known[number as usize] += 1;
    }
    0
}

unsafe extern "C" fn reach_referent(target: *mut c_void, rest: *mut c_void) -> c_int {
    // SAFETY: as in `count_referent`.
    let rest = unsafe { &mut *rest.cast::<Rest>() };
    if let Some(number) = rest.find(target as usize) {
        rest.reach(number);
    }
    0
}
