//! How far the numbers of a report can be trusted, and what stands beside them.

use std::path::PathBuf;

use heaptide_capture::{Damage, Lost};

use super::Measure;
use super::ledger::Ledger;

#[derive(Clone, Debug, Default)]
pub struct Quality {
    /// One for each capture, in the order in which they were named.
    pub processes: Vec<ProcessSummary>,
    /// The filters in force, in the words of the command line.
    pub filters: Vec<String>,
    /// True if they leave only a part of the sites, while the peak and the curves are the whole process's.
    pub is_part: bool,
    /// `None` if every allocation was recorded.
    pub sampling: Option<Sampling>,
    /// Missing events by reason, of all processes.
    pub lost: Vec<(Lost, u64)>,
    /// What could not be read, and of which file.
    pub damage: Vec<(PathBuf, Damage)>,
    /// Releases of blocks that were allocated before recording began.
    pub n_unknown_frees: u64,
    /// Allocations at an address that was still taken: a release is missing.
    pub n_overlaps: u64,
    /// The most that was mapped from files at one time: not part of the heap.
    pub mapped_files_bytes: u64,
    /// True if a capture holds no totals, only what was alive at the peak and at the end: it is another profiler's.
    pub lacks_totals: bool,
    /// True if the peak is that of several processes together, found on their common time line.
    pub peak_is_aligned: bool,
    /// A time at which they held about that much, in nanoseconds since the first process began; `None` if the captures
    /// cannot be asked what was alive then.
    pub common_peak_unix_ns: Option<u64>,
}

impl Quality {
    /// False for what a capture of another profiler does not say.
    pub fn knows(&self, measure: Measure) -> bool {
        match measure {
            Measure::Peak | Measure::Leaked => true,
            Measure::Total | Measure::Temporary => !self.lacks_totals,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Mean bytes between two recorded allocations.
    pub mean_bytes: u64,
    /// Half the width of the 95 % interval around each number.
    pub total_error_bytes: f64,
    pub peak_error_bytes: f64,
    pub live_error_bytes: f64,
}

#[derive(Clone, Debug, Default)]
pub struct ProcessSummary {
    pub path: PathBuf,
    /// Shared by all processes of one run; `None` if the capture does not say.
    pub session: Option<[u8; 16]>,
    pub pid: u32,
    pub parent_pid: u32,
    pub command: Vec<String>,
    pub n_allocations: u64,
    pub total_bytes: u64,
    pub peak_bytes: u64,
    pub peak_unix_ns: u64,
    pub live_bytes: u64,
    /// Highest resident size that was seen; `None` if none was sampled.
    pub resident_peak_bytes: Option<u64>,
    pub limit_bytes: Option<u64>,
    /// What the profiler itself held in the program.
    pub own_memory_bytes: u64,
    pub n_threads: u64,
    /// False if the program was killed, or is still running.
    pub ended_in_order: bool,
    /// Recording began in a running process.
    pub joined_late: bool,
    /// Resident when `heaptide attach` entered the process; `None` if recording began in another way.
    pub attached_at_bytes: Option<u64>,
    pub n_events: u64,
    /// Where its resident memory was at the end; `None` if nobody said, or if a filter leaves only a part.
    pub ledger: Option<Ledger>,
}
