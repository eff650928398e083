//! Lists every allocation and free of a capture with its visible stack. Used to write captures of other profilers.
//!
//! The session is loaded first, so that stacks are the same as in all reports. The capture is then replayed twice: a
//! later record may undo a free, and the formats of other profilers have no such record.

use std::ops::{ControlFlow, Range};

use heaptide_capture::{Allocator, Capture, DecodedChunk, Frame, OpAction};
use heaptide_tally::{StackId, replay, replay_until};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::load::Process;

/// An allocation or a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub elapsed_ns: u64,
    /// The stream of the thread.
    pub stream: u32,
    pub address: u64,
    pub change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Alloc {
        size: u64,
        allocator: Allocator,
        /// Index into the stacks of the model.
        stack: Option<usize>,
    },
    Free,
    FreeRange {
        length: u64,
    },
}

/// Emits the events of a capture in order. `node_of` holds the index of each stack of `process` in the model, from
/// [`crate::aggregate::stacks_with_index`].
pub fn events<E>(
    capture: &Capture,
    process: &Process,
    node_of: &[Option<usize>],
    sink: &mut dyn FnMut(Event) -> Result<(), E>,
) -> Result<(), E> {
    let undone = undone_frees(capture);
    let mut paths = Paths {
        children: process
            .sums
            .stacks
            .iter()
            .map(|(id, stack)| ((stack.parent, stack.frame), id))
            .collect(),
        of_chunk: FxHashMap::default(),
    };
    let mut number = 0;
    let mut failed = None;
    replay_until(capture, &mut |_| {}, &mut |chunk, ops| {
        let stream = chunk.head.stream;
        let mut times = Times::new(chunk, ops.start);
        for at in ops {
            let op = &chunk.ops[at];
            number += 1;
            let change = match op.action {
                OpAction::Free if undone.contains(&number) => continue,
                OpAction::FreeRange if undone.contains(&number) => continue,
                OpAction::Unfree | OpAction::JobEnd => continue,
                OpAction::Free => Change::Free,
                OpAction::FreeRange => Change::FreeRange { length: op.size },
                OpAction::Alloc => {
                    let Some(allocator) = Allocator::from_number(op.allocator) else {
                        continue;
                    };
                    let stack = paths.stack_of(chunk, op.node);
                    Change::Alloc {
                        size: op.size,
                        allocator,
                        stack: stack.and_then(|stack| *node_of.get(stack.0 as usize)?),
                    }
                }
            };
            let event = Event {
                elapsed_ns: capture.registry.elapsed_ns(times.at(chunk, at)),
                stream,
                address: op.address,
                change,
            };
            if let Err(error) = sink(event) {
                failed = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    failed.map_or(Ok(()), Err)
}

/// Returns the frees that did not happen, by their position among all operations, counted from 1.
fn undone_frees(capture: &Capture) -> FxHashSet<u64> {
    let mut undone = FxHashSet::default();
    let mut last_free: FxHashMap<u32, u64> = FxHashMap::default();
    let mut number = 0;
    replay(capture, &mut |_| {}, &mut |chunk, ops: Range<usize>| {
        for op in &chunk.ops[ops] {
            number += 1;
            match op.action {
                OpAction::Alloc | OpAction::JobEnd => {}
                OpAction::Free | OpAction::FreeRange => {
                    last_free.insert(chunk.head.stream, number);
                }
                OpAction::Unfree => undone.extend(last_free.remove(&chunk.head.stream)),
            }
        }
    });
    undone
}

/// Maps the nodes of chunks to the stacks of a session.
struct Paths {
    children: FxHashMap<(StackId, Frame), StackId>,
    /// By stream: the number of its chunk, and the stacks of that chunk's nodes.
    of_chunk: FxHashMap<u32, (u32, Vec<Option<StackId>>)>,
}

impl Paths {
    fn stack_of(&mut self, chunk: &DecodedChunk, node: u32) -> Option<StackId> {
        let (number, known) = self.of_chunk.entry(chunk.head.stream).or_default();
        if *number != chunk.head.number {
            *number = chunk.head.number;
            known.clear();
        }
        // Parents precede their children.
        while known.len() <= node as usize {
            let stack = match chunk.nodes.get(known.len()) {
                _ if known.is_empty() => Some(StackId::EMPTY),
                Some(node) => known[node.parent as usize]
                    .and_then(|parent| self.children.get(&(parent, node.frame)).copied()),
                None => return None,
            };
            known.push(stack);
        }
        known[node as usize]
    }
}

/// The times of consecutive operations of a chunk, in clock units.
struct Times {
    mark: usize,
}

impl Times {
    fn new(chunk: &DecodedChunk, first_op: usize) -> Times {
        let marks = &chunk.times;
        Times {
            mark: marks.partition_point(|mark| mark.first_op as usize <= first_op),
        }
    }

    fn at(&mut self, chunk: &DecodedChunk, op: usize) -> u64 {
        let is_passed = |mark: usize| {
            let mark = chunk.times.get(mark);
            mark.is_some_and(|mark| mark.first_op as usize <= op)
        };
        while is_passed(self.mark) {
            self.mark += 1;
        }
        let mark = chunk.times.get(self.mark.wrapping_sub(1));
        mark.map_or(chunk.head.time, |mark| mark.time)
    }
}
