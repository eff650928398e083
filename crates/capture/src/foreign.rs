//! Captures of other profilers: the interface that their readers implement, so that every report works on them.
//!
//! A reader turns a foreign file into a [`crate::Capture`] with the file's header and registry. Its events come from
//! [`ForeignEvents`] instead of from chunks. If a file holds sums instead of events, they go to a [`SumSink`].

use std::fmt::Debug;
use std::ops::{ControlFlow, Range};
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::allocator::Allocator;
use crate::damage::Damage;
use crate::decode::DecodedChunk;
use crate::event::Frame;

/// Takes some operations of a chunk; may stop the replay.
pub type Sink<'a> = dyn FnMut(&DecodedChunk, Range<usize>) -> ControlFlow<()> + 'a;

/// The events of a foreign capture.
pub trait ForeignEvents: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Returns the number of events.
    fn n_events(&self) -> u64;

    /// Passes the sums of a file without events to `sink`. Returns false if the file holds events instead.
    fn sums(&self, sink: &mut dyn SumSink) -> bool;

    /// Passes all events to `sink` in the order in which they happened, until it returns `Break`. Returns the damage.
    ///
    /// Ranges of one chunk arrive in order and are never empty. Ranges of other threads may arrive between them.
    /// `on_progress` receives the number of events done after each chunk.
    fn replay(&self, on_progress: &mut dyn FnMut(u64), sink: &mut Sink) -> Vec<Damage>;
}

/// A number of bytes, and the number of blocks they are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSum {
    pub bytes: u64,
    pub count: u64,
}

/// Receives the sums of a file without events.
pub trait SumSink {
    /// Takes the blocks of one site at the peak and at the end. `stack` begins with the outermost frame.
    fn add_site(
        &mut self,
        stack: &[Frame],
        stream: u32,
        allocator: Allocator,
        at_peak: BlockSum,
        at_end: BlockSum,
    );

    /// Takes the size of the heap at `time`, in clock units. Times ascend.
    fn add_heap_size(&mut self, time: u64, bytes: u64);
}
