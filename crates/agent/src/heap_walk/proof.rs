//! Verifies with objects of known contents that the walk reads frames and instances correctly.

use std::ops::ControlFlow;

use super::attributes::attributes_of;
use super::frames;
use super::names::NameTable;
use super::reader::Reader;
use super::types::TypeEntry;
use crate::cpython::heap_layout::InlineValues;
use crate::cpython::references::{Frame, Object};
use crate::cpython::{interpreter, thread_frames};

/// Addresses of objects whose contents the caller knows.
#[derive(Clone, Copy, Debug)]
pub struct Proof {
    /// The value of the variable `heaptide_token` in the calling Python function.
    pub token: usize,
    /// An instance with the attributes `first` and `second`, in this order, and their values.
    pub instance: usize,
    pub first: usize,
    pub second: usize,
}

const VARIABLE: &str = "heaptide_token";

impl Proof {
    /// Returns the instance and the token.
    ///
    /// # Safety
    /// Both are alive as long as the result is used.
    pub(super) unsafe fn objects(&self) -> Option<(Object, Object)> {
        // SAFETY: passed on from the caller.
        unsafe { Some((Object::at(self.instance)?, Object::at(self.token)?)) }
    }
}

/// Returns the name of the caller's variable, if the walk reads the token as its value.
pub(super) fn locals(reader: &Reader, token: Object) -> Option<Object> {
    let mut name = None;
    let mut visit = |frame: usize, code: usize, _: u32| {
        // SAFETY: the frame is running in the calling thread, and keeps its code.
        let read = unsafe {
            Frame::at(frame)
                .zip(Object::at(code))
                .and_then(|(frame, code)| frames::local(reader, frame, code, VARIABLE))
        };
        name = read.filter(|(value, _)| *value == token.address());
        ControlFlow::Break(())
    };
    // SAFETY: the thread is the calling one, which holds the GIL, and the layout was checked against this interpreter.
    let walked = unsafe { thread_frames(&reader.layout, interpreter::thread_state(), &mut visit) };
    walked.ok().and(name).map(|(_, name)| name)
}

/// Returns whether the attributes of the instance are at the offsets of the layout. Before 3.11 they are always in a dict.
pub(super) fn attributes(reader: &Reader, instance: Object, proof: Proof) -> bool {
    if reader.heap.inline_values == InlineValues::None {
        return true;
    }
    let Some(mut names) = NameTable::new() else {
        return false;
    };
    let entry = TypeEntry::of(reader, &mut names, reader.type_of(instance));
    let mut labels = Vec::new();
    // SAFETY: `entry` describes the instance's type.
    unsafe { attributes_of(reader, &entry, instance, &mut labels) };
    let read: Vec<(usize, &str)> = labels
        .iter()
        .map(|(value, label)| (*value, names.names.get(label.number())))
        .collect();
    read == [(proof.first, "first"), (proof.second, "second")]
}
