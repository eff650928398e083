//! The numbers of `heaptide stats`.

use heaptide_capture::Allocator;
use heaptide_tally::Amount;

use super::finding::Finding;
use super::jobs::JobGroup;
use super::quality::Quality;

#[derive(Clone, Debug)]
pub struct Stats {
    pub n_allocations: u64,
    pub total_bytes: u64,
    pub peak_bytes: u64,
    /// `None` if nothing was allocated.
    pub histogram: Option<Histogram>,
    /// The number of allocations by allocator, largest first.
    pub allocators: Vec<(Allocator, u64)>,
    pub top_by_size: Vec<LocationSum>,
    pub top_by_count: Vec<LocationSum>,
    pub modules_by_size: Vec<ModuleSum>,
    pub modules_by_count: Vec<ModuleSum>,
    pub metadata: Metadata,
    /// Lifetimes of blocks, the shortest first; the last class holds blocks alive at the end.
    pub lifetimes: Vec<LifetimeClass>,
    /// The jobs by name, the largest peak first; empty unless requested.
    pub jobs: Vec<JobGroup>,
    /// The processes by host or label, the largest peak first; empty unless requested.
    pub process_groups: Vec<ProcessGroup>,
    /// The most important first.
    pub findings: Vec<Finding>,
    pub quality: Quality,
    /// Bytes and number of the leaked blocks, if allocators, locations and modules count leaked blocks only.
    pub leaked: Option<(u64, u64)>,
}

/// One process, or processes of the same host or with the same value of a label.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessGroup {
    pub name: String,
    pub n_processes: u64,
    pub allocated: Amount,
    /// Live at the moment of [`Quality::peak_moment`].
    pub peak: Amount,
    /// Live at the end.
    pub live: Amount,
}

/// Sizes in bins of equal width on a logarithmic scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    pub smallest: u64,
    pub largest: u64,
    pub bins: Vec<SizeBin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeBin {
    /// The smallest size of this bin.
    pub from: u64,
    /// The first size after this bin; for the last bin, the largest size in it.
    pub to: u64,
    pub count: u64,
}

/// Blocks of similar lifetime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifetimeClass {
    /// The upper bound of their lifetime, which is the lower bound of the next class; `None` for blocks alive at the end.
    pub below_ns: Option<u64>,
    pub count: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationSum {
    /// `None` if no Python frame was on the stack.
    pub location: Option<super::Location>,
    pub bytes: u64,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSum {
    pub module: String,
    pub bytes: u64,
    pub count: u64,
}

/// The profiled program. With several processes: the first one, and the time from the first start to the last end.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    pub start_unix_ns: u64,
    pub end_unix_ns: u64,
    /// The number of different frames on the recorded stacks of each process, summed over all processes.
    pub n_frames: u64,
    pub command: Vec<String>,
    pub pid: u32,
    pub main_thread: u32,
    pub python_allocator: String,
    pub objects: bool,
    pub native: bool,
    pub aggregate: bool,
}
