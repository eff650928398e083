//! What stands out, each with where it is and the numbers that show it. Words belong to `report`, and are the same
//! everywhere.

use super::Location;

#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The line that allocated; `None` if it is about the whole, or if no Python frame was on the stack.
    pub place: Option<Location>,
    /// The nearest line of the program that led there, where the place itself is in the standard library.
    pub caller: Option<Location>,
    pub what: FindingKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FindingKind {
    /// The place that holds most at the peak.
    HoldsMost(HoldsMost),
    /// What a place holds grows steadily through the run.
    Grows(Grows),
    /// A place allocates again and again what it releases at once.
    Churns(Churns),
    /// The allocator keeps memory that nobody uses.
    KeptFree(Ledger),
    /// A child of a fork has copied what it shared with its parent.
    Unshared(Unshared),
}

/// Where one process's resident memory was at the end. The rows add up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub pid: u32,
    pub resident_bytes: u64,
    /// Blocks of Python's own allocators, if these were recorded.
    pub python_bytes: u64,
    /// Anonymous mappings: without Python's own allocators recorded, mostly the arenas its objects are in.
    pub mapped_bytes: u64,
    /// Blocks of libc.
    pub native_bytes: u64,
    /// What else libc has given out: before recording began, and what it adds to each block.
    pub earlier_bytes: u64,
    pub libc_free_bytes: u64,
    /// Resident pages of files and of memory that is shared on purpose.
    pub files_bytes: u64,
    pub own_bytes: u64,
    /// The rest. Below zero if memory was given out that was never touched.
    pub unexplained_bytes: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unshared {
    pub pid: u32,
    pub parent_pid: u32,
    /// What the child had from its parent, and what of it was shared at the end.
    pub inherited_bytes: u64,
    pub shared_bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HoldsMost {
    pub bytes: u64,
    pub count: u64,
    /// Of all that was alive then.
    pub whole_bytes: u64,
    /// What the same place held at the end.
    pub leaked_bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Grows {
    pub from_ns: u64,
    pub to_ns: u64,
    /// What was held at both times.
    pub from_bytes: u64,
    pub to_bytes: u64,
    /// Of the straight line that fits best.
    pub bytes_per_second: f64,
    /// How much of the change that line explains, from 0 to 1.
    pub confidence: f64,
    /// Speaks against a leak: at how many of so many readings less was held than at the one before.
    pub n_falls: u64,
    pub n_readings: u64,
    /// Speaks against it, too: released by the place's callers in that time.
    pub released_bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Churns {
    pub bytes: u64,
    pub count: u64,
    /// All allocations of the place.
    pub n_allocations: u64,
    /// All allocations there were.
    pub n_whole: u64,
    /// Within how many other allocations of its thread a block was released.
    pub threshold: u32,
    pub mean_lifetime_ns: Option<u64>,
}
