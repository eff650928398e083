//! Local variables of frames: of running ones as roots, read where the interpreter keeps them, and of generators and
//! frame objects as names for what these refer to. No frame object is made.

use std::ops::ControlFlow;

use heaptide_capture::heap::{EdgeKind, Label, RootKind};

use super::live::Live;
use super::names::NameTable;
use super::notes::Notes;
use super::roots::Roots;
use super::walk::Walk;
use crate::cpython::heap_layout::{FrameStack, object, type_object};
use crate::cpython::thread_frames;

/// More locals than this has no function.
const MAX_LOCALS: usize = 1 << 16;
/// A stack of more values than this is none.
const MAX_STACK: usize = 1 << 20;

/// Names of the local variables of a code object, in order.
fn local_names(live: &Live, names: &mut NameTable, code: usize) -> Vec<u32> {
    let items = live.word(live.known.tuple + type_object::BASIC_SIZE);
    let mut all = Vec::new();
    for offset in live.heap.code_local_names {
        let tuple = live.word(code + offset);
        if tuple == 0 || live.type_of(tuple) != live.known.tuple {
            continue;
        }
        for number in 0..live.size(tuple).min(MAX_LOCALS) {
            let name = live.word(tuple + items + number * 8);
            all.push(if name != 0 && live.type_of(name) == live.known.unicode {
                names.of_object(live, name)
            } else {
                0
            });
        }
    }
    all
}

/// The string that is the name of a local variable; the interpreter interns all of them.
pub fn name_of_local(live: &Live, code: usize, wanted: &str) -> Option<usize> {
    let tuple = live.word(code + live.heap.code_local_names.first()?);
    if tuple == 0 || live.type_of(tuple) != live.known.tuple {
        return None;
    }
    let items = live.word(live.known.tuple + type_object::BASIC_SIZE);
    let mut buffer = [0; 100];
    (0..live.size(tuple).min(MAX_LOCALS))
        .map(|number| live.word(tuple + items + number * 8))
        .filter(|name| *name != 0 && live.type_of(*name) == live.known.unicode)
        .find(|name| {
            let text = live.text(*name, &mut buffer);
            text.is_some_and(|(text, _)| text == wanted)
        })
}

/// An address from a word that may carry tags; 0 if it is none.
#[inline]
fn untagged(live: &Live, word: usize) -> usize {
    let tags = live.heap.frame_tag_bits;
    if tags != 0 && word & tags == tags {
        return 0; // a number
    }
    word & !tags
}

/// The value of a local variable in a frame.
pub fn local(
    live: &Live,
    names: &mut NameTable,
    frame: usize,
    code: usize,
    wanted: &str,
) -> Option<usize> {
    let all = local_names(live, names, code);
    let number = all
        .iter()
        .position(|name| names.names.get(*name) == wanted)?;
    let word = live.word(frame + live.heap.frame_locals + number * 8);
    Some(untagged(live, word))
}

impl<N: Notes> Walk<'_, N> {
    pub(super) fn generator_locals(
        &mut self,
        type_number: u32,
        at: usize,
        entries: &mut Vec<(usize, Label)>,
    ) {
        if self.live.heap.frame_function.is_none() {
            return; // 3.10: a generator has a frame object
        }
        let basic_size = self.types[type_number as usize].basic_size;
        if let Some(frame) = (at + basic_size).checked_sub(self.live.heap.frame_locals) {
            self.known_locals(frame, entries);
        }
    }

    pub(super) fn frame_object_locals(&mut self, at: usize, entries: &mut Vec<(usize, Label)>) {
        if self.live.heap.frame_function.is_none() {
            self.known_locals(at, entries);
            return;
        }
        // A frame object of its own keeps the frame behind its fields; others say nothing of theirs.
        let frame = self.live.word(at + object::FRAME_OBJECT_FRAME);
        let basic_size = self.live.word(self.live.known.frame + 32);
        if frame > at && frame <= at + basic_size {
            self.known_locals(frame, entries);
        }
    }

    /// Adds what a frame refers to, with names, if it is one that the object at hand has told of.
    fn known_locals(&mut self, frame: usize, entries: &mut Vec<(usize, Label)>) {
        let live = self.live;
        let code = live.word(frame + live.layout.frame_code) & live.layout.frame_code_mask;
        // A finished frame may have the address of a code object that is gone; a live one has just been told.
        if code == 0 || !self.told.contains(&code) || live.type_of(code) != live.known.code {
            return;
        }
        let fixed = [
            (live.word(frame + live.heap.frame_namespace), "f_locals"),
            (
                live.heap
                    .frame_function
                    .map_or(0, |offset| untagged(live, live.word(frame + offset))),
                "function",
            ),
            (code, "f_code"),
        ];
        for (target, name) in fixed {
            if target != 0 && self.told.contains(&target) {
                let label = Label::new(EdgeKind::Internal, self.names.of_text(name));
                entries.push((target, label));
            }
        }
        // The order in which objects tell of themselves differs from version to version.
        let told = &self.told;
        entries.sort_by_key(|(target, _)| told.iter().position(|one| one == target));
        let names = local_names(live, &mut self.names, code);
        for (number, name) in names.iter().enumerate() {
            let word = live.word(frame + live.heap.frame_locals + number * 8);
            let target = untagged(live, word);
            if target != 0 {
                entries.push((target, Label::new(EdgeKind::Local, *name)));
            }
        }
    }

    /// The local variables of all running frames, as roots.
    pub fn frame_roots(&mut self, roots: &mut Roots) {
        let live = self.live;
        let threads: Vec<usize> = live.threads().collect();
        let n_threads = threads.len();
        for (place, state) in threads.into_iter().enumerate() {
            // The oldest thread is the first.
            let thread = n_threads - place;
            let mut visit = |frame: usize, code: usize, _: u32| {
                if code != 0 && live.type_of(code) == live.known.code {
                    self.one_frame(roots, thread, frame, code);
                }
                ControlFlow::Continue(())
            };
            // SAFETY: the GIL is held, so the thread stands still, and the layout was proved.
            let _ = unsafe { thread_frames(&live.layout, state, &mut visit) };
        }
    }

    fn one_frame(&mut self, roots: &mut Roots, thread: usize, frame: usize, code: usize) {
        let live = self.live;
        let mut buffer = [0; 200];
        let name_at = live.layout.code.qualname.unwrap_or(live.layout.code.name);
        let function = live
            .text(live.word(code + name_at), &mut buffer)
            .map_or("?", |(text, _)| text);
        let function = format!("thread {thread}/{function}");
        let Some(function_offset) = live.heap.frame_function else {
            // 3.10: the frame is an object, and tells of itself.
            roots.add(self, RootKind::Frame, &function, frame);
            return;
        };
        let fixed = [
            (
                untagged(live, live.word(frame + function_offset)),
                "function",
            ),
            (live.word(frame + live.heap.frame_namespace), "f_locals"),
            (
                live.heap
                    .frame_object
                    .map_or(0, |offset| live.word(frame + offset)),
                "frame",
            ),
            (code, "f_code"),
        ];
        for (target, name) in fixed {
            if target != 0 {
                roots.add(self, RootKind::Frame, &format!("{function} {name}"), target);
            }
        }
        if !roots.read_locals {
            return;
        }
        let names = local_names(live, &mut self.names, code);
        let first = frame + live.heap.frame_locals;
        for (number, name) in names.iter().enumerate() {
            let target = untagged(live, live.word(first + number * 8));
            if target != 0 {
                let name = format!("{function}.{}", self.names.names.get(*name));
                roots.add(self, RootKind::Frame, &name, target);
            }
        }
        let end = match live.heap.frame_stack {
            FrameStack::Unknown => 0,
            FrameStack::Count(offset) => (live.half(frame + offset) as i32).max(0) as usize,
            FrameStack::Pointer(offset) => live.word(frame + offset).saturating_sub(first) / 8,
        };
        if end > MAX_STACK {
            return;
        }
        for number in names.len()..end {
            let target = untagged(live, live.word(first + number * 8));
            if target != 0 {
                let name = format!("{function} value {}", number - names.len());
                roots.add(self, RootKind::Frame, &name, target);
            }
        }
    }
}
