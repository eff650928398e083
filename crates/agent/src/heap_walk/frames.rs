//! Local variables of frames: of running ones as roots, read where the interpreter keeps them, and of generators and
//! frame objects as names for what these refer to. No frame object is made.

use std::ops::ControlFlow;

use heaptide_capture::heap::{EdgeType, Label, RootCategory};

use super::names::NameTable;
use super::output::Output;
use super::reader::Reader;
use super::roots::Roots;
use super::walk::Walk;
use crate::cpython::heap_layout::{FrameStack, object, type_object};
use crate::cpython::thread_frames;

/// More locals than this has no function.
const MAX_LOCALS: usize = 1 << 16;
/// A stack of more values than this is none.
const MAX_STACK: usize = 1 << 20;

/// Names of the local variables of a code object, in order.
fn local_names(reader: &Reader, names: &mut NameTable, code: usize) -> Vec<u32> {
    let items = reader.word(reader.known.tuple + type_object::BASIC_SIZE);
    let mut all = Vec::new();
    for offset in reader.heap.code_local_names {
        let tuple = reader.word(code + offset);
        if tuple == 0 || reader.type_of(tuple) != reader.known.tuple {
            continue;
        }
        for number in 0..reader.size(tuple).min(MAX_LOCALS) {
            let name = reader.word(tuple + items + number * 8);
            all.push(
                if name != 0 && reader.type_of(name) == reader.known.unicode {
                    names.of_object(reader, name)
                } else {
                    0
                },
            );
        }
    }
    all
}

/// The string that is the name of a local variable; the interpreter interns all of them.
pub fn name_of_local(reader: &Reader, code: usize, wanted: &str) -> Option<usize> {
    let tuple = reader.word(code + reader.heap.code_local_names.first()?);
    if tuple == 0 || reader.type_of(tuple) != reader.known.tuple {
        return None;
    }
    let items = reader.word(reader.known.tuple + type_object::BASIC_SIZE);
    let mut buffer = [0; 100];
    (0..reader.size(tuple).min(MAX_LOCALS))
        .map(|number| reader.word(tuple + items + number * 8))
        .filter(|name| *name != 0 && reader.type_of(*name) == reader.known.unicode)
        .find(|name| {
            let text = reader.text(*name, &mut buffer);
            text.is_some_and(|(text, _)| text == wanted)
        })
}

/// An address from a word that may carry tags; 0 if it is none.
#[inline]
fn untagged(reader: &Reader, word: usize) -> usize {
    let tags = reader.heap.frame_tag_bits;
    if tags != 0 && word & tags == tags {
        return 0; // a number
    }
    word & !tags
}

/// The value of a local variable in a frame.
pub fn local(
    reader: &Reader,
    names: &mut NameTable,
    frame: usize,
    code: usize,
    wanted: &str,
) -> Option<usize> {
    let all = local_names(reader, names, code);
    let number = all
        .iter()
        .position(|name| names.names.get(*name) == wanted)?;
    let word = reader.word(frame + reader.heap.frame_locals + number * 8);
    Some(untagged(reader, word))
}

impl<O: Output> Walk<'_, O> {
    pub(super) fn generator_locals(
        &mut self,
        type_number: u32,
        at: usize,
        entries: &mut Vec<(usize, Label)>,
    ) {
        if self.reader.heap.frame_function.is_none() {
            return; // 3.10: a generator has a frame object
        }
        let basic_size = self.types[type_number as usize].basic_size;
        if let Some(frame) = (at + basic_size).checked_sub(self.reader.heap.frame_locals) {
            self.known_locals(frame, entries);
        }
    }

    pub(super) fn frame_object_locals(&mut self, at: usize, entries: &mut Vec<(usize, Label)>) {
        if self.reader.heap.frame_function.is_none() {
            self.known_locals(at, entries);
            return;
        }
        // A frame object of its own keeps the frame behind its fields; others say nothing of theirs.
        let frame = self.reader.word(at + object::FRAME_OBJECT_FRAME);
        let basic_size = self.reader.word(self.reader.known.frame + 32);
        if frame > at && frame <= at + basic_size {
            self.known_locals(frame, entries);
        }
    }

    /// Adds what a frame refers to, with names, if it is one that the object at hand has told of.
    fn known_locals(&mut self, frame: usize, entries: &mut Vec<(usize, Label)>) {
        let reader = self.reader;
        let code = reader.word(frame + reader.layout.frame_code) & reader.layout.frame_code_mask;
        // A finished frame may have the address of a code object that is gone; a live one has just been told.
        if code == 0 || !self.referents.contains(&code) || reader.type_of(code) != reader.known.code
        {
            return;
        }
        let fixed = [
            (reader.word(frame + reader.heap.frame_namespace), "f_locals"),
            (
                reader
                    .heap
                    .frame_function
                    .map_or(0, |offset| untagged(reader, reader.word(frame + offset))),
                "function",
            ),
            (code, "f_code"),
        ];
        for (target, name) in fixed {
            if target != 0 && self.referents.contains(&target) {
                let label = Label::new(EdgeType::Internal, self.names.of_text(name));
                entries.push((target, label));
            }
        }
        // The order in which objects tell of themselves differs from version to version.
        let referents = &self.referents;
        entries.sort_by_key(|(target, _)| referents.iter().position(|one| one == target));
        let names = local_names(reader, &mut self.names, code);
        for (number, name) in names.iter().enumerate() {
            let word = reader.word(frame + reader.heap.frame_locals + number * 8);
            let target = untagged(reader, word);
            if target != 0 {
                entries.push((target, Label::new(EdgeType::Local, *name)));
            }
        }
    }

    /// The local variables of all running frames, as roots.
    pub fn frame_roots(&mut self, roots: &mut Roots) {
        let reader = self.reader;
        let threads: Vec<usize> = reader.threads().collect();
        let n_threads = threads.len();
        for (position, state) in threads.into_iter().enumerate() {
            // The oldest thread is the first.
            let thread = n_threads - position;
            let mut visit = |frame: usize, code: usize, _: u32| {
                if code != 0 && reader.type_of(code) == reader.known.code {
                    self.one_frame(roots, thread, frame, code);
                }
                ControlFlow::Continue(())
            };
            // SAFETY: the GIL is held, so the thread stands still, and the layout was proved.
            let _ = unsafe { thread_frames(&reader.layout, state, &mut visit) };
        }
    }

    fn one_frame(&mut self, roots: &mut Roots, thread: usize, frame: usize, code: usize) {
        let reader = self.reader;
        let mut buffer = [0; 200];
        let name_at = reader
            .layout
            .code
            .qualname
            .unwrap_or(reader.layout.code.name);
        let function = reader
            .text(reader.word(code + name_at), &mut buffer)
            .map_or("?", |(text, _)| text);
        let function = format!("thread {thread}/{function}");
        let Some(function_offset) = reader.heap.frame_function else {
            // 3.10: the frame is an object, and tells of itself.
            roots.add(self, RootCategory::Frame, &function, frame);
            return;
        };
        let fixed = [
            (
                untagged(reader, reader.word(frame + function_offset)),
                "function",
            ),
            (reader.word(frame + reader.heap.frame_namespace), "f_locals"),
            (
                reader
                    .heap
                    .frame_object
                    .map_or(0, |offset| reader.word(frame + offset)),
                "frame",
            ),
            (code, "f_code"),
        ];
        for (target, name) in fixed {
            if target != 0 {
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
        let names = local_names(reader, &mut self.names, code);
        let first = frame + reader.heap.frame_locals;
        for (number, name) in names.iter().enumerate() {
            let target = untagged(reader, reader.word(first + number * 8));
            if target != 0 {
                let name = format!("{function}.{}", self.names.names.get(*name));
                roots.add(self, RootCategory::Frame, &name, target);
            }
        }
        let end = match reader.heap.frame_stack {
            FrameStack::Unknown => 0,
            FrameStack::Count(offset) => (reader.half(frame + offset) as i32).max(0) as usize,
            FrameStack::Pointer(offset) => reader.word(frame + offset).saturating_sub(first) / 8,
        };
        if end > MAX_STACK {
            return;
        }
        for number in names.len()..end {
            let target = untagged(reader, reader.word(first + number * 8));
            if target != 0 {
                let name = format!("{function} value {}", number - names.len());
                roots.add(self, RootCategory::Frame, &name, target);
            }
        }
    }
}
