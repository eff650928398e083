//! The call tree of the pages `heaptide flamegraph` and `heaptide table`: everything a page needs to filter, invert,
//! merge and lay out without asking again.
//!
//! Lists instead of a linked tree, because stacks can be deeper than recursion is safe, and because a page reads columns
//! faster than objects. What a place allocated itself is kept apart by process, thread and allocator; what it allocated
//! together with those it called is the sum below it, and belongs to the page.

use std::rc::Rc;

use heaptide_capture::{Allocator, Mode};

use super::Measure;
use super::finding::Finding;
use super::quality::Quality;

#[derive(Clone, Debug)]
pub struct Flame {
    /// From the first start to the last end.
    pub start_unix_ns: u64,
    pub end_unix_ns: u64,
    /// The most that was alive at one time, in all processes together.
    pub peak_bytes: u64,
    pub processes: Vec<FlameProcess>,
    pub threads: Vec<FlameThread>,
    pub timeline: Timeline,
    /// Functions, files and modules; locations name them by number.
    pub texts: Vec<Rc<str>>,
    pub locations: Vec<FlameLocation>,
    pub nodes: Vec<FlameNode>,
    pub origins: Vec<Origin>,
    /// By node, then by origin, ascending.
    pub own: Vec<Own>,
    pub lives: FlameLives,
    /// What stands out, each with the node it is about, if that was not cut.
    pub findings: Vec<(Finding, Option<u32>)>,
    /// Nodes whose share was below this in every measure were cut.
    pub min_share: f64,
    pub quality: Quality,
}

/// One process, beside what [`Quality`] says of it under the same number.
#[derive(Clone, Debug, Default)]
pub struct FlameProcess {
    pub host: String,
    pub executable: String,
    pub working_directory: String,
    /// As `sys.hexversion`.
    pub python_version: u32,
    pub python_allocator: String,
    pub mode: Mode,
    /// From the start of the first process to the start, the end and the peak of this one.
    pub start_ns: u64,
    pub end_ns: u64,
    pub peak_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlameThread {
    /// Number of its process.
    pub process: u32,
    pub os_id: u32,
    pub name: Option<String>,
    pub is_main: bool,
}

/// Memory over time in bins of equal width, counted from the start of the first process. Each value is the highest
/// within its bin; `None` where nothing is known: before the start, behind the end, or before the first sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    pub bin_ns: u64,
    pub processes: Vec<Curves>,
    /// Of several processes: the heap of each at that moment of a bin at which all together held most. Each may have held more
    /// at another moment of the bin.
    pub stacked: Vec<Vec<Option<u64>>>,
    /// All processes: the most that they had on their heaps at one time, and the sum of their resident sizes, which is never
    /// too low and too high by what happened within one bin.
    pub all_processes: Curves,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curves {
    pub heap: Vec<Option<u64>>,
    pub resident: Vec<Option<u64>>,
}

/// A place in the source, by number in [`Flame::texts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlameLocation {
    pub function: u32,
    pub file: u32,
    pub line: i32,
    /// `None` for the standard library and the import system.
    pub module: Option<u32>,
    /// Part of how Python imports modules, not of what they do.
    pub is_import_system: bool,
    /// Of a native function: the library it is in.
    pub library: Option<u32>,
    /// The line's text, if its file could be read and has not changed since.
    pub source: Option<String>,
}

/// Parents come before their children; the first node is the root, its own parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlameNode {
    pub parent: u32,
    pub content: FlameContent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlameContent {
    Root,
    /// Number of the location.
    Frame(u32),
    /// Allocated without a Python frame on the stack.
    NoFrames,
    /// So many frames below its parent that were too small to be shown.
    Cut {
        n_frames: u32,
    },
}

/// Who allocated: a thread through an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// Number in [`Flame::threads`], which knows the process.
    pub thread: u32,
    pub allocator: Allocator,
}

/// What a node allocated itself, from one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    pub node: u32,
    pub origin: u32,
    /// In the order of [`Measure::ALL`].
    pub amounts: [Measured; Measure::ALL.len()],
}

/// When blocks were born and died, in bins of time: what was allocated between any two edges, and what of it was alive at
/// the second, exactly. `docs/reference/page-data.md` says how to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlameLives {
    /// Nanoseconds since the start of the first process, ascending; empty if there are no bins.
    pub edges_ns: Vec<u64>,
    /// By own entry, birth and death, ascending; none twice.
    pub entries: Vec<FlameLife>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlameLife {
    /// Number in [`Flame::own`].
    pub own: u32,
    /// The bin in which it was allocated.
    pub birth: u16,
    /// The bin in which it was released; the number of bins if it was alive at the end.
    pub death: u16,
    /// Negative where a release was taken back in a later bin.
    pub bytes: i64,
    pub count: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub bytes: u64,
    pub count: u64,
    /// Of `bytes`, in square KiB; 0 where every allocation was recorded. What is less than that is no noise to speak of.
    pub variance: u64,
}
