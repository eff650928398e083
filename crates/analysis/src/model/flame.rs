//! The call tree of the pages `heaptide flamegraph` and `heaptide table`: all data that a page needs to filter, invert,
//! merge and lay out.
//!
//! The tree is stored in lists: stacks can be too deep for recursion, and a page reads columns faster than objects. Own
//! allocations of a node are separate for each process, thread, allocator and job name. The page computes sums that
//! include callees.

use std::rc::Rc;

use heaptide_capture::{Allocator, Mode, Outcome};

use super::Measure;
use super::finding::Finding;
use super::quality::Quality;

#[derive(Clone, Debug)]
pub struct Flame {
    /// From the first start to the last end.
    pub start_unix_ns: u64,
    pub end_unix_ns: u64,
    /// The bytes at the peak, and its time since the start; `None` if each process is at its own peak.
    pub peak_bytes: u64,
    pub peak_ns: Option<u64>,
    pub processes: Vec<FlameProcess>,
    pub threads: Vec<FlameThread>,
    /// Names of jobs; origins and spans refer to them.
    pub jobs: Vec<String>,
    /// The longest jobs, by start, and the number of others.
    pub job_spans: Vec<JobSpan>,
    pub n_more_jobs: usize,
    pub timeline: Timeline,
    /// Names of functions, files and modules; locations refer to positions in this list.
    pub texts: Vec<Rc<str>>,
    pub locations: Vec<FlameLocation>,
    /// Who wrote each file and each native library of [`Self::locations`], by position in [`Self::texts`].
    pub owners: Vec<(u32, Owner)>,
    pub nodes: Vec<FlameNode>,
    pub origins: Vec<Origin>,
    /// By node, then by origin, ascending.
    pub own: Vec<Own>,
    pub lives: FlameLives,
    /// The findings, each with its node unless that was cut.
    pub findings: Vec<(Finding, Option<u32>)>,
    /// Nodes whose share was below this in every measure were cut.
    pub min_share: f64,
    pub quality: Quality,
}

/// One process; [`Quality::processes`] has more about it at the same position.
#[derive(Clone, Debug, Default)]
pub struct FlameProcess {
    pub host: String,
    pub executable: String,
    pub working_directory: String,
    /// As `sys.hexversion`.
    pub python_version: u32,
    pub python_allocator: String,
    pub mode: Mode,
    /// Start, end and own peak of this process, counted from the start of the first process.
    pub start_ns: u64,
    pub end_ns: u64,
    pub peak_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlameThread {
    /// Position in [`Flame::processes`].
    pub process: u32,
    pub os_id: u32,
    pub name: Option<String>,
    pub is_main: bool,
}

/// When a job ran, in nanoseconds since the start of the first process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpan {
    /// Position in [`Flame::jobs`].
    pub job: u32,
    /// Position in [`Flame::processes`].
    pub process: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    pub key: Option<String>,
    pub outcome: Outcome,
}

/// Memory over time in bins of equal width, counted from the start of the first process. Each value is the highest
/// within its bin; `None` before the start, after the end, and before the first sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    pub bin_ns: u64,
    pub processes: Vec<Curves>,
    /// With several processes: for each bin, the heap of each process at the time when the sum was highest. A process may
    /// have held more at another time within the bin.
    pub stacked: Vec<Vec<Option<u64>>>,
    /// All processes: the highest sum of their heaps, and the sum of their resident sizes. The latter is never too low, and
    /// too high at most by the changes within one bin.
    pub all_processes: Curves,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curves {
    pub heap: Vec<Option<u64>>,
    pub resident: Vec<Option<u64>>,
}

/// A source location; numbers are positions in [`Flame::texts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlameLocation {
    pub function: u32,
    pub file: u32,
    pub line: i32,
    /// `None` for the standard library and the import system.
    pub module: Option<u32>,
    /// Whether the frame belongs to Python's import system.
    pub is_import_system: bool,
    /// The library of a native function.
    pub library: Option<u32>,
    /// The text of the line, if its file could be read and has not changed since the recording.
    pub source: Option<String>,
}

/// Who wrote a file or a native library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The user's own code; see [`crate::user_code`].
    User,
    /// Installed packages, with their native libraries.
    Package,
    StandardLibrary,
    /// The interpreter itself, and memory that no line requested, such as arenas.
    Interpreter,
    /// Code in none of the known folders: system libraries, other folders of the import path, generated code.
    Other,
}

/// Parents come before their children. The first node is the root; it is its own parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlameNode {
    pub parent: u32,
    pub content: FlameContent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlameContent {
    Root,
    /// Position in [`Flame::locations`].
    Frame(u32),
    /// Allocated without a Python frame on the stack.
    NoFrames,
    /// The frames below its parent that were too small.
    Cut {
        n_frames: u32,
    },
}

/// A thread, the allocator it used, and the name of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// Position in [`Flame::threads`].
    pub thread: u32,
    pub allocator: Allocator,
    /// Position in [`Flame::jobs`]; `None` outside of jobs.
    pub job: Option<u32>,
}

/// The own allocations of a node from one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    pub node: u32,
    pub origin: u32,
    /// In the order of [`Measure::ALL`].
    pub amounts: [Measured; Measure::ALL.len()],
}

/// The lifetimes of blocks, in bins of time. They give the exact bytes allocated between any two edges, and the part of
/// these that was alive at the second edge. `docs/reference/page-data.md` explains the calculation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlameLives {
    /// Nanoseconds since the start of the first process, ascending; empty if there are no bins.
    pub edges_ns: Vec<u64>,
    /// Sorted by own entry, birth and death, without duplicates.
    pub entries: Vec<FlameLife>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlameLife {
    /// Position in [`Flame::own`].
    pub own: u32,
    /// The bin of the allocation.
    pub birth: u16,
    /// The bin in which the blocks were freed; the number of bins if they were alive at the end.
    pub death: u16,
    /// Negative if a free was undone in a later bin: `realloc` records a free before it may fail.
    pub bytes: i64,
    pub count: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub bytes: u64,
    pub count: u64,
    /// The variance of `bytes` in square KiB, which is precise enough; 0 if every allocation was recorded.
    pub variance: u64,
}
