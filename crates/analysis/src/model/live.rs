//! The memory of a running program at one time, by function and thread, and its curve until then.
//!
//! Unlike the other models, this one is sent to other threads and processes, so it owns its texts.

use heaptide_capture::{Lost, PYTHON_ARENA_FILE};

use super::quality::Stopped;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    pub pid: u32,
    pub command: Vec<String>,
    /// Since the recording began.
    pub elapsed_ns: u64,
    /// Whether the recording has ended in order, so that these numbers are final.
    pub is_ended: bool,
    /// Alive on the heap.
    pub heap_bytes: u64,
    pub n_blocks: u64,
    pub peak_bytes: u64,
    pub resident_bytes: Option<u64>,
    pub limit_bytes: Option<u64>,
    /// Mean bytes between two recorded allocations; 0 if every one is recorded.
    pub sample_bytes: u64,
    /// Allocations and frees so far.
    pub n_events: u64,
    pub lost: Vec<(Lost, u64)>,
    /// The recording failed, so these numbers do not change any more.
    pub stopped: Option<Stopped>,
    /// The number of damaged parts of the file.
    pub n_damaged: u64,
    pub threads: Vec<LiveThread>,
    /// Largest first.
    pub functions: Vec<LiveFunction>,
    /// The number of functions that are too small to be listed.
    pub n_more: u64,
    pub curve: Curve,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveThread {
    pub os_id: u32,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveFunction {
    pub function: String,
    pub file: String,
    /// By thread, without threads in which it holds nothing.
    pub held: Vec<Held>,
}

/// The bytes that a function holds in one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Index in [`Live::threads`].
    pub thread: u32,
    /// Allocated by the function itself.
    pub own_bytes: u64,
    /// Allocated by the function and its callees.
    pub total_bytes: u64,
    /// The number of blocks in `total_bytes`.
    pub count: u64,
}

/// Memory over time: the highest value in each of several intervals of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    pub bin_ns: u64,
    pub heap: Vec<Option<u64>>,
    pub resident: Vec<Option<u64>>,
}

/// The number that functions are sorted by, largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveOrder {
    #[default]
    Total,
    Own,
    Count,
}

/// The bytes that a function holds in the chosen threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRow<'a> {
    pub function: &'a str,
    pub file: &'a str,
    pub own_bytes: u64,
    pub total_bytes: u64,
    pub count: u64,
}

impl Live {
    /// Bytes in arenas of Python's object allocator.
    pub fn python_arena_bytes(&self) -> u64 {
        let functions = self.functions.iter();
        let arenas = functions.filter(|function| function.file == PYTHON_ARENA_FILE);
        let held = arenas.flat_map(|function| &function.held);
        held.map(|held| held.own_bytes).fold(0, u64::saturating_add)
    }

    /// The functions that hold memory in the thread at this position of `threads`, or in any thread.
    pub fn rows(&self, thread: Option<u32>, order: LiveOrder) -> Vec<LiveRow<'_>> {
        let mut rows: Vec<LiveRow> = Vec::new();
        for function in &self.functions {
            let mut row = LiveRow {
                function: &function.function,
                file: &function.file,
                own_bytes: 0,
                total_bytes: 0,
                count: 0,
            };
            let held = function.held.iter();
            for held in held.filter(|held| thread.is_none_or(|wanted| held.thread == wanted)) {
                row.own_bytes = row.own_bytes.saturating_add(held.own_bytes);
                row.total_bytes = row.total_bytes.saturating_add(held.total_bytes);
                row.count = row.count.saturating_add(held.count);
            }
            if row.count > 0 || row.total_bytes > 0 {
                rows.push(row);
            }
        }
        rows.sort_by_key(|row| {
            let first = match order {
                LiveOrder::Total => row.total_bytes,
                LiveOrder::Own => row.own_bytes,
                LiveOrder::Count => row.count,
            };
            let largest_first = std::cmp::Reverse((first, row.total_bytes, row.own_bytes));
            (largest_first, row.file, row.function)
        });
        rows
    }
}
