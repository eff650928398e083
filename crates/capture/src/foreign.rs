//! Captures that other profilers wrote: what their readers must give so that every report works on them.
//!
//! A reader turns a foreign file into a [`crate::Capture`] whose header and registry say what the file says, and whose
//! events come from here instead of from chunks. [`crate::replay`] then feeds them to the same sums as our own.

use std::fmt::Debug;
use std::ops::{ControlFlow, Range};
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::damage::Damage;
use crate::decode::DecodedChunk;
use crate::tally::Tally;

/// Takes some operations of a chunk, as [`crate::replay_until`] gives them.
pub type Sink<'a> = dyn FnMut(&DecodedChunk, Range<usize>) -> ControlFlow<()> + 'a;

/// The events of a foreign capture.
pub trait ForeignEvents: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// How many there are.
    fn n_events(&self) -> u64;

    /// The sums with which the capture begins: none, or all there are if the file holds no events.
    fn first_tally(&self) -> Tally;

    /// Gives all events in the order in which they happened, under the rules of [`crate::replay`], until the sink breaks
    /// off. Returns what could not be read.
    fn replay(&self, on_progress: &mut dyn FnMut(u64), sink: &mut Sink) -> Vec<Damage>;
}
