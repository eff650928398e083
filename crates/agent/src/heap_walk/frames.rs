//! Local variables of frames. Those of running frames are roots. Those of generators and frame objects label the references
//! that these objects report. The walk reads the interpreter's frames and creates no frame object.

use std::ops::ControlFlow;

use heaptide_capture::heap::{EdgeType, Label, RootCategory};

use super::names::NameTable;
use super::output::Output;
use super::reader::{Reader, word_at};
use super::roots::Roots;
use super::walk::Walk;
use crate::cpython::offsets::object;
use crate::cpython::references::{Frame, Object};
use crate::cpython::thread_frames;

/// The maximum number of local variables of a function.
const MAX_LOCALS: usize = 1 << 16;
/// The maximum valid number of stack values.
const MAX_STACK: usize = 1 << 20;

/// Returns the items of the tuples that name all local variables of a code object, in order.
///
/// # Safety
/// The object is a code object.
pub(super) unsafe fn local_name_objects(reader: &Reader, code: Object) -> Vec<Option<Object>> {
    let items = reader.basic_size(reader.known.tuple);
    let mut all = Vec::new();
    for offset in reader.heap.code_local_names {
        // SAFETY: at this offset, a code object has null or a reference. A tuple has a length, and that many references.
        unsafe {
            let tuple = reader.reference(code, *offset);
            let is_tuple = |tuple: &Object| reader.type_of(*tuple) == reader.known.tuple;
            if let Some(tuple) = tuple.filter(is_tuple) {
                let n_items = reader.size(tuple).min(MAX_LOCALS);
                all.extend((0..n_items).map(|number| {
                    Object::at(word_at(tuple.address() + items + number * 8))
                        .filter(|name| reader.type_of(*name) == reader.known.unicode)
                }));
            }
        }
    }
    all
}

/// Returns the names of the local variables of a code object, in order.
///
/// # Safety
/// The object is a code object.
unsafe fn local_names(reader: &Reader, names: &mut NameTable, code: Object) -> Vec<u32> {
    // SAFETY: passed on from the caller.
    unsafe { local_name_objects(reader, code) }
        .into_iter()
        .map(|name| name.map_or(0, |name| names.of_object(reader, name)))
        .collect()
}

/// Returns the address of the value of a local variable, and the string that names it, which is interned.
///
/// # Safety
/// The frame runs this code.
pub unsafe fn local(
    reader: &Reader,
    frame: Frame,
    code: Object,
    wanted: &str,
) -> Option<(usize, Object)> {
    let mut buffer = [0; 100];
    // SAFETY: `code` is the code object of the frame.
    let names = unsafe { local_name_objects(reader, code) };
    let number = names.iter().position(|name| {
        let text = name.and_then(|name| reader.text(name, &mut buffer));
        text.is_some_and(|(text, _)| text == wanted)
    })?;
    // SAFETY: the frame has a value for each name of its code.
    let value = unsafe { reader.frame_value(frame, number) };
    Some((value, names[number]?))
}

impl<O: Output> Walk<'_, O> {
    /// Appends labels for the references of a generator, a coroutine or an asynchronous generator.
    ///
    /// # Safety
    /// The object is one of these, and `type_number` is that of its type.
    pub(super) unsafe fn generator_locals(
        &mut self,
        type_number: u32,
        object: Object,
        labels: &mut Vec<(usize, Label)>,
    ) {
        if self.reader.heap.frame_function.is_none() {
            return; // 3.10: a generator has a frame object
        }
        // The basic size includes the fields of the frame, but not its locals.
        let end = object.address() + self.types[type_number as usize].basic_size;
        // SAFETY: from 3.11 on the frame of a generator is part of the object.
        let frame = unsafe { Frame::at(end - self.reader.heap.frame_locals) };
        if let Some(frame) = frame {
            self.label_locals(frame, labels);
        }
    }

    /// Appends labels for the references of a frame object.
    ///
    /// # Safety
    /// The object is a frame object.
    pub(super) unsafe fn frame_object_locals(
        &mut self,
        object: Object,
        labels: &mut Vec<(usize, Label)>,
    ) {
        let at = object.address();
        if self.reader.heap.frame_function.is_none() {
            // SAFETY: in 3.10 the frame is the object.
            if let Some(frame) = unsafe { Frame::at(at) } {
                self.label_locals(frame, labels);
            }
            return;
        }
        // A frame object that outlived its call contains the frame, after its own fields. Others do not report
        // their frame, which is still on the interpreter's stack.
        // SAFETY: a frame object has the address of its frame here.
        let frame = unsafe { self.reader.word(object, object::FRAME_OBJECT_FRAME) };
        let basic_size = self.reader.basic_size(self.reader.known.frame);
        if frame > at && frame <= at + basic_size {
            // SAFETY: the frame is part of the object.
            if let Some(frame) = unsafe { Frame::at(frame) } {
                self.label_locals(frame, labels);
            }
        }
    }

    /// Appends labels for the references of a frame, if the current object reported its code.
    fn label_locals(&mut self, frame: Frame, labels: &mut Vec<(usize, Label)>) {
        let reader = self.reader;
        let address = reader.frame_code(frame);
        // A finished frame may have the address of a code object that was freed; a reported one is alive.
        let code = self.referents.iter().find(|one| one.address() == address);
        let is_code = |code: &Object| reader.type_of(*code) == reader.known.code;
        let Some(code) = code.copied().filter(is_code) else {
            return;
        };
        for (target, name) in [
            (reader.frame_namespace(frame), "f_locals"),
            (reader.frame_function(frame), "function"),
            (address, "f_code"),
        ] {
            if self.referents.iter().any(|one| one.address() == target) {
                let label = Label::new(EdgeType::Internal, self.names.of_text(name));
                labels.push((target, label));
            }
        }
        // The order in which objects report these differs between versions.
        let referents = &self.referents;
        labels.sort_by_key(|(target, _)| referents.iter().position(|one| one.address() == *target));
        // SAFETY: `code` is a code object.
        let names = unsafe { local_names(reader, &mut self.names, code) };
        for (number, name) in names.iter().enumerate() {
            // SAFETY: the frame runs this code, so it has a value for each name.
            let target = unsafe { reader.frame_value(frame, number) };
            if target != 0 {
                labels.push((target, Label::new(EdgeType::Local, *name)));
            }
        }
    }

    /// Adds the local variables of all running frames as roots.
    pub fn frame_roots(&mut self, roots: &mut Roots) {
        let reader = self.reader;
        let threads: Vec<usize> = reader.threads().collect();
        let n_threads = threads.len();
        for (position, state) in threads.into_iter().enumerate() {
            // Threads are numbered from the oldest, which is the last.
            let thread = n_threads - position;
            let mut visit = |frame: usize, code: usize, _: u32| {
                // SAFETY: a running frame stays until its function returns, which needs the GIL, and keeps its code.
                let (frame, code) = unsafe { (Frame::at(frame), Object::at(code)) };
                if let (Some(frame), Some(code)) = (frame, code) {
                    if reader.type_of(code) == reader.known.code {
                        // SAFETY: the frame is running this code object.
                        unsafe { self.add_frame(roots, thread, frame, code) };
                    }
                }
                ControlFlow::Continue(())
            };
            // SAFETY: the GIL is held, so the thread does not run Python code, and the layout was proved.
            let _ = unsafe { thread_frames(&reader.layout, state, &mut visit) };
        }
    }

    /// Adds the references of one running frame as roots.
    ///
    /// # Safety
    /// The frame is running this code object.
    unsafe fn add_frame(&mut self, roots: &mut Roots, thread: usize, frame: Frame, code: Object) {
        let reader = self.reader;
        let mut buffer = [0; 200];
        let code_layout = &reader.layout.code;
        let name_offset = code_layout.qualname.unwrap_or(code_layout.name);
        // SAFETY: a code object has a reference to its name.
        let name = unsafe { reader.reference(code, name_offset) };
        let name = name.and_then(|name| reader.text(name, &mut buffer));
        let function = format!("thread {thread}/{}", name.map_or("?", |(text, _)| text));
        if reader.heap.frame_function.is_none() {
            // SAFETY: in 3.10 the frame is an object, and reports its references.
            if let Some(frame) = unsafe { Object::at(frame.address()) } {
                roots.add(self, RootCategory::Frame, &function, frame);
            }
            return;
        }
        // SAFETY: a running frame has references to these objects, and to its locals and stack values below.
        let object = |address| unsafe { Object::at(address) };
        for (target, name) in [
            (reader.frame_function(frame), "function"),
            (reader.frame_namespace(frame), "f_locals"),
            (reader.frame_object(frame), "frame"),
            (code.address(), "f_code"),
        ] {
            if let Some(target) = object(target) {
                roots.add(
                    self,
                    RootCategory::Frame,
                    &format!("{function} {name}"),
                    target,
                );
            }
        }
        if !roots.read_locals {
            return;
        }
        // SAFETY: `code` is a code object.
        let names = unsafe { local_names(reader, &mut self.names, code) };
        for (number, name) in names.iter().enumerate() {
            // SAFETY: the frame has a value for each name of its code.
            if let Some(target) = object(unsafe { reader.frame_value(frame, number) }) {
                let name = format!("{function}.{}", self.names.names.get(*name));
                roots.add(self, RootCategory::Frame, &name, target);
            }
        }
        let n_values = reader.n_frame_values(frame);
        if n_values > MAX_STACK {
            return;
        }
        for number in names.len()..n_values {
            // SAFETY: the frame has this many values.
            if let Some(target) = object(unsafe { reader.frame_value(frame, number) }) {
                let name = format!("{function} value {}", number - names.len());
                roots.add(self, RootCategory::Frame, &name, target);
            }
        }
    }
}
