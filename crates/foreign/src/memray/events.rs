//! A file with all allocations: its events, as chunks of operations.
//!
//! The file is read twice. Opening it reads the metadata, because code objects and threads lie between the events, and
//! counts the events for the progress bar. A replay collects [`WINDOW_OPS`] events, one chunk per thread, and then
//! passes them to the sink in turns:
//!
//! ```text
//! file      1: a a push a   2: b b   1: pop a   2: b
//! chunks    1: a a a a      2: b b b
//! turns     1: 0..3         2: 0..2  1: 3..4    2: 2..3
//! ```
//!
//! So memory does not grow with the file, and a stack is resolved once per window for all allocations on it.

use std::mem;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use heaptide_capture::area::ChunkHead;
use heaptide_capture::foreign::{Sink, SumSink};
use heaptide_capture::{
    Capture, Damage, DamageCategory, DecodedChunk, ForeignEvents, Frame, Op, OpAction, OpenFailure,
};

use super::Source;
use super::header::FileHeader;
use super::input::Input;
use super::metadata::{Metadata, Streams};
use super::records::{Next, Record, Records};

/// Operations that are collected before they are passed to the sink.
const WINDOW_OPS: usize = 1 << 16;
/// A window with more threads than this is passed to the sink.
const WINDOW_THREADS: usize = 256;
/// Deeper stacks count as damage.
const MAX_DEPTH: usize = 1 << 20;

#[derive(Debug)]
struct AllEvents {
    source: Source,
    header: FileHeader,
    n_events: u64,
}

/// Reads the metadata of the file.
pub fn open(
    path: &Path,
    header: FileHeader,
    input: Input,
    source: Source,
) -> Result<Capture, OpenFailure> {
    let mut metadata = Metadata::new(&header);
    let mut n_events = 0;
    // Damage is ignored here, because the replay reports it.
    Records::new(&header).read(input, |record| {
        let mut accepted = Some(());
        match record {
            Record::Alloc { .. } | Record::Free { .. } | Record::FreeRange { .. } => n_events += 1,
            Record::Code(code) => accepted = metadata.code(code),
            Record::Thread(thread) => accepted = metadata.thread(thread).map(|_| ()),
            Record::ThreadName(name) => metadata.thread_name(name),
            Record::Resident { time, bytes } => metadata.resident(time, bytes),
            Record::Trailer => {
                metadata.end(&header);
                return Next::Stop;
            }
            _ => {}
        }
        accepted.map_or(Next::Refuse, |()| Next::Read)
    });
    let events = AllEvents {
        source,
        header: header.clone(),
        n_events,
    };
    Ok(Capture::foreign(
        path,
        header.common,
        metadata.finish(),
        Box::new(events),
    ))
}

impl ForeignEvents for AllEvents {
    fn n_events(&self) -> u64 {
        self.n_events
    }

    fn sums(&self, _: &mut dyn SumSink) -> bool {
        false
    }

    fn replay(&self, on_progress: &mut dyn FnMut(u64), sink: &mut Sink) -> Vec<Damage> {
        // Skips the header, which was read when the capture was opened.
        let input = self.source.input().and_then(|mut input| {
            FileHeader::read(&mut input).map_err(|_| std::io::ErrorKind::InvalidData)?;
            Ok(input)
        });
        let input = match input {
            Ok(input) => input,
            Err(error) => {
                let category = DamageCategory::ReadFailed {
                    stream: 1,
                    reason: error.kind(),
                };
                return vec![Damage {
                    offset: 0,
                    category,
                }];
            }
        };
        let mut window = Window::new(&self.header);
        let damage = Records::new(&self.header).read(input, |record| {
            if let Record::Trailer = record {
                return Next::Stop;
            }
            if window.take(record).is_none() {
                return Next::Refuse;
            }
            if window.is_full() && window.flush(on_progress, sink).is_break() {
                return Next::Stop;
            }
            Next::Read
        });
        // The window is empty if the sink stopped the replay.
        let _ = window.flush(on_progress, sink);
        damage.into_iter().collect()
    }
}

/// The state of a thread while the file is read.
#[derive(Default)]
struct Thread {
    stream: u32,
    stack: Vec<Frame>,
    /// Number of outermost frames that are never shown.
    n_hidden: usize,
    /// Number of its chunks so far.
    n_chunks: u32,
    /// Whether the thread has operations in this window.
    is_active: bool,
    chunk: DecodedChunk,
    /// The last time mark in the chunk.
    time: u64,
    /// Nodes of the stack's outermost frames in the chunk.
    nodes: Vec<u32>,
    /// The node of the stack on which it allocated last.
    node: u32,
}

struct Window<'h> {
    header: &'h FileHeader,
    streams: Streams,
    /// By stream; streams count from 1.
    threads: Vec<Thread>,
    /// Index of the thread whose records follow.
    now: usize,
    time: u64,
    /// Threads with a chunk.
    active: Vec<usize>,
    turns: Vec<(usize, Range<usize>)>,
    n_ops: usize,
    n_done: u64,
    spare: Vec<DecodedChunk>,
}

impl<'h> Window<'h> {
    fn new(header: &'h FileHeader) -> Self {
        Window {
            header,
            streams: Streams::default(),
            threads: Vec::new(),
            now: usize::MAX,
            time: 0,
            active: Vec::new(),
            turns: Vec::new(),
            n_ops: 0,
            n_done: 0,
            spare: Vec::new(),
        }
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.n_ops >= WINDOW_OPS || self.active.len() > WINDOW_THREADS
    }

    /// Returns `None` if the record is impossible.
    #[inline(always)]
    fn take(&mut self, record: Record) -> Option<()> {
        match record {
            Record::Alloc {
                address,
                size,
                allocator,
            } => self.add(Op {
                address,
                size,
                node: 0,
                action: OpAction::Alloc,
                allocator: allocator as u8,
            })?,
            Record::Free { address } => self.release(OpAction::Free, address, 0)?,
            Record::FreeRange { address, length } => {
                self.release(OpAction::FreeRange, address, length)?;
            }
            Record::Push(frame) => {
                let thread = self.threads.get_mut(self.now)?;
                if thread.stack.len() >= MAX_DEPTH {
                    return None;
                }
                thread.stack.push(frame);
            }
            Record::Pop(n_frames) => {
                let thread = self.threads.get_mut(self.now)?;
                let depth = thread.stack.len().saturating_sub(n_frames);
                thread.stack.truncate(depth);
                thread.nodes.truncate(depth);
            }
            Record::Thread(number) => self.switch_to(number)?,
            Record::Resident { time, .. } => self.time = self.time.max(time),
            _ => {}
        }
        Some(())
    }

    fn switch_to(&mut self, number: u64) -> Option<()> {
        let (stream, is_new) = self.streams.of(number)?;
        if is_new {
            self.threads.push(Thread {
                stream,
                n_hidden: self.header.n_hidden(number),
                ..Thread::default()
            });
        }
        self.now = stream as usize - 1;
        Some(())
    }

    fn release(&mut self, action: OpAction, address: u64, size: u64) -> Option<()> {
        self.add(Op {
            address,
            size,
            action,
            ..Op::default()
        })
    }

    /// Adds an operation of the current thread.
    #[inline(always)]
    fn add(&mut self, mut op: Op) -> Option<()> {
        let thread = self.threads.get_mut(self.now)?;
        if !thread.is_active {
            thread.begin_chunk(self.time, self.spare.pop().unwrap_or_default());
            self.active.push(self.now);
        } else if thread.time != self.time {
            thread.time = self.time;
            thread.chunk.mark_time(self.time);
        }
        if op.action == OpAction::Alloc {
            thread.update_node();
        }
        op.node = thread.node;
        let at = thread.chunk.ops.len();
        thread.chunk.ops.push(op);
        self.n_ops += 1;
        match self.turns.last_mut() {
            Some((now, ops)) if *now == self.now => ops.end = at + 1,
            _ => self.turns.push((self.now, at..at + 1)),
        }
        Some(())
    }

    /// Passes the collected operations to the sink and begins a new window.
    fn flush(&mut self, on_progress: &mut dyn FnMut(u64), sink: &mut Sink) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        for (thread, ops) in self.turns.drain(..) {
            if flow.is_continue() {
                flow = sink(&self.threads[thread].chunk, ops);
            }
        }
        for thread in self.active.drain(..) {
            let thread = &mut self.threads[thread];
            thread.is_active = false;
            self.spare.push(mem::take(&mut thread.chunk));
        }
        self.n_done += mem::take(&mut self.n_ops) as u64;
        on_progress(self.n_done);
        flow
    }
}

impl Thread {
    fn begin_chunk(&mut self, time: u64, memory: DecodedChunk) {
        self.chunk = memory;
        self.chunk.begin(&ChunkHead {
            stream: self.stream,
            number: self.n_chunks,
            time,
            ..ChunkHead::default()
        });
        self.n_chunks += 1;
        self.is_active = true;
        self.time = time;
        self.nodes.clear();
        self.update_node();
    }

    /// Sets `node` to that of the current stack.
    #[inline(always)]
    fn update_node(&mut self) {
        while let Some(&frame) = self.stack.get(self.nodes.len()) {
            let node = if self.nodes.len() < self.n_hidden {
                0
            } else {
                let parent = self.nodes.last().copied().unwrap_or(0);
                self.chunk.child(parent, frame)
            };
            self.nodes.push(node);
        }
        self.node = self.nodes.last().copied().unwrap_or(0);
    }
}
