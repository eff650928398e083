//! An aggregated file: the sums of every site at the peak and at the end, without events.

use std::collections::HashMap;
use std::path::Path;

use heaptide_capture::foreign::{BlockSum, Sink, SumSink};
use heaptide_capture::{Allocator, Capture, Damage, ForeignEvents, Frame};

use super::header::FileHeader;
use super::input::Input;
use super::metadata::Metadata;
use super::records::{Next, Record, Records};

/// A frame and the stack it was called from.
#[derive(Clone, Copy, Debug)]
struct Stack {
    frame: u64,
    parent: u32,
    depth: u32,
}

/// The content of the file.
#[derive(Debug, Default)]
struct Aggregated {
    sites: Vec<Site>,
    /// The first stack is the empty stack.
    stacks: Vec<Stack>,
    frames: HashMap<u64, Frame>,
    heap_sizes: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct Site {
    stack: u32,
    stream: u32,
    /// Number of its outermost frames that are not shown.
    n_hidden: u32,
    allocator: Allocator,
    at_peak: BlockSum,
    at_end: BlockSum,
}

/// Reads the whole file: its size is proportional to the number of sites.
pub fn open(path: &Path, header: FileHeader, input: Input) -> Capture {
    let mut metadata = Metadata::new(&header);
    let mut found = Aggregated {
        stacks: vec![Stack {
            frame: u64::MAX,
            parent: 0,
            depth: 0,
        }],
        ..Aggregated::default()
    };
    let damage = Records::new(&header).read(input, |record| {
        let next = found.take(record, &header, &mut metadata);
        next.unwrap_or(Next::Refuse)
    });
    let registry = metadata.finish();
    let mut capture = Capture::foreign(path, header.common, registry, Box::new(found));
    capture.damage.extend(damage);
    capture
}

impl Aggregated {
    /// Returns `None` if the record is impossible.
    fn take(
        &mut self,
        record: Record,
        header: &FileHeader,
        metadata: &mut Metadata,
    ) -> Option<Next> {
        match record {
            Record::Thread(thread) => {
                metadata.thread(thread)?;
            }
            Record::ThreadName(name) => metadata.thread_name(name),
            Record::Code(code) => metadata.code(code)?,
            Record::Heap {
                time,
                resident,
                heap,
            } => {
                metadata.resident(time, resident);
                self.heap_sizes.push((time, heap));
            }
            Record::Frame { number, frame } => {
                self.frames.insert(number, frame);
            }
            Record::Stack { frame, parent } => {
                let parent = u32::try_from(parent).ok()?;
                // Parents precede their children.
                let depth = self.stacks.get(parent as usize)?.depth + 1;
                self.stacks.push(Stack {
                    frame,
                    parent,
                    depth,
                });
            }
            Record::Sum {
                thread,
                stack,
                allocator,
                at_peak,
                at_end,
            } => {
                let stack = u32::try_from(stack).ok()?;
                self.stacks.get(stack as usize)?;
                self.sites.push(Site {
                    stack,
                    stream: metadata.thread(thread)?,
                    n_hidden: header.n_hidden(thread).try_into().unwrap_or(u32::MAX),
                    allocator,
                    at_peak,
                    at_end,
                });
            }
            Record::Trailer => {
                metadata.end(header);
                return Some(Next::Stop);
            }
            _ => {}
        }
        Some(Next::Read)
    }

    /// Returns the frames of a stack, outermost first, without hidden ones.
    fn frames_of(&self, site: &Site) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut at = self.stacks[site.stack as usize];
        while at.depth > site.n_hidden {
            // Code 0 does not exist: a frame that the file does not describe is shown as unknown.
            let unknown = Frame::default();
            frames.push(self.frames.get(&at.frame).copied().unwrap_or(unknown));
            at = self.stacks[at.parent as usize];
        }
        frames.reverse();
        frames
    }
}

impl ForeignEvents for Aggregated {
    fn n_events(&self) -> u64 {
        0
    }

    fn sums(&self, sink: &mut dyn SumSink) -> bool {
        for &(time, bytes) in &self.heap_sizes {
            sink.add_heap_size(time, bytes);
        }
        for site in &self.sites {
            sink.add_site(
                &self.frames_of(site),
                site.stream,
                site.allocator,
                site.at_peak,
                site.at_end,
            );
        }
        true
    }

    fn replay(&self, _: &mut dyn FnMut(u64), _: &mut Sink) -> Vec<Damage> {
        Vec::new()
    }
}
