//! The numbers of `heaptide stats`.

use heaptide_capture::Allocator;

use super::finding::Finding;
use super::quality::Quality;

#[derive(Clone, Debug)]
pub struct Stats {
    pub n_allocations: u64,
    pub total_bytes: u64,
    pub peak_bytes: u64,
    /// `None` if nothing was allocated.
    pub histogram: Option<Histogram>,
    /// How many allocations each allocator made, most first.
    pub allocators: Vec<(Allocator, u64)>,
    pub top_by_size: Vec<LocationSum>,
    pub top_by_count: Vec<LocationSum>,
    pub modules_by_size: Vec<ModuleSum>,
    pub modules_by_count: Vec<ModuleSum>,
    pub metadata: Metadata,
    /// How long blocks lived, the shortest first, those alive at the end last.
    pub lifetimes: Vec<LifetimeClass>,
    /// What stands out, the most important first.
    pub findings: Vec<Finding>,
    pub quality: Quality,
}

/// Sizes in bins that are equally wide on a logarithmic scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    pub smallest: u64,
    pub largest: u64,
    pub bins: Vec<SizeBin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeBin {
    /// The first size of this bin.
    pub from: u64,
    /// The first size behind it; of the last bin, the largest size in it.
    pub to: u64,
    pub count: u64,
}

/// Blocks that lived about equally long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifetimeClass {
    /// They lived less long than this, and longer than those of the class before; `None` for those alive at the end.
    pub below_ns: Option<u64>,
    pub count: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationSum {
    /// `None`: no Python frame was on the stack.
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

/// What was profiled. Of several processes: the first one, from the first start to the last end.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    pub start_unix_ns: u64,
    pub end_unix_ns: u64,
    /// Different frames on the recorded stacks.
    pub n_frames: u64,
    pub command: Vec<String>,
    pub pid: u32,
    pub main_thread: u32,
    pub python_allocator: String,
    pub objects: bool,
    pub native: bool,
    pub aggregate: bool,
}
