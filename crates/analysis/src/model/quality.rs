//! The reliability of the numbers of a report, and facts about its processes.

use std::path::PathBuf;

use heaptide_capture::{Damage, Identity, Labels, Lost, Mode, Registry};

use super::Measure;
use super::ledger::Ledger;

#[derive(Clone, Debug, Default)]
pub struct Quality {
    /// One for each capture, in the order of the command line.
    pub processes: Vec<ProcessSummary>,
    /// The filters as command-line options.
    pub filters: Vec<String>,
    /// Whether the filters choose an interval of time.
    pub has_interval: bool,
    /// Number of runs: processes with the same run or the same session belong to one.
    pub n_runs: usize,
    /// The hosts of the processes, sorted.
    pub hosts: Vec<String>,
    /// The largest known difference between the clocks of the hosts; `None` if it is unknown.
    pub clock_difference_ns: Option<u64>,
    /// Whether the filters choose sites. The peak and the curves are still those of the whole process.
    pub is_part: bool,
    /// `None` if every allocation was recorded.
    pub sampling: Option<Sampling>,
    /// Counts of lost records by reason, of all processes.
    pub lost: Vec<(Lost, u64)>,
    /// The damaged parts of files.
    pub damage: Vec<(PathBuf, Damage)>,
    /// Frees of blocks that were allocated before the recording began.
    pub n_unknown_frees: u64,
    /// Allocations at an address that was still in use: a free is missing.
    pub n_overlaps: u64,
    /// The largest size of mapped files at one time; not part of the heap.
    pub mapped_files_bytes: u64,
    /// Whether a capture of another profiler has no totals, only the blocks at the peak and at the end.
    pub lacks_totals: bool,
    pub arenas: PythonArenas,
    /// The moment of every number at the peak.
    pub peak_moment: PeakMoment,
}

/// The moment that "at the peak" means in a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeakMoment {
    /// The report covers one process.
    #[default]
    OfProcess,
    /// The common peak of all processes, in nanoseconds since the first of them began.
    Common(u64),
    /// The captures do not show the common peak, so each process is at its own peak.
    EachOwn,
}

impl Quality {
    /// False if a capture of another profiler lacks this measure.
    pub fn knows(&self, measure: Measure) -> bool {
        match measure {
            Measure::Peak | Measure::Leaked => true,
            Measure::Total | Measure::Temporary => !self.lacks_totals,
        }
    }
}

/// Bytes in arenas of Python's object allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonArenas {
    pub peak_bytes: u64,
    pub live_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Mean bytes between two recorded allocations.
    pub mean_bytes: u64,
    /// Half the width of the 95% interval around each number.
    pub total_error_bytes: f64,
    pub peak_error_bytes: f64,
    pub live_error_bytes: f64,
}

/// A recording that failed before its program ended, for example because the disk was full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Nanoseconds since the recording began.
    pub elapsed_ns: u64,
    /// Events that were dropped since then, until the process ended or until now.
    pub n_dropped: u64,
    pub reason: String,
}

impl Stopped {
    pub fn of(registry: &Registry) -> Option<Stopped> {
        let mark = registry.stopped.as_ref()?;
        // If only the completion of the file failed, nothing is missing.
        let is_incomplete = mark.n_dropped > 0 || registry.end.is_none_or(|end| mark.time < end);
        is_incomplete.then(|| Stopped {
            elapsed_ns: registry.elapsed_ns(mark.time),
            n_dropped: mark.n_dropped,
            reason: mark.reason.clone(),
        })
    }
}

/// An interval that was recorded in one mode, until the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeInterval {
    /// Nanoseconds since the recording began.
    pub from_ns: u64,
    pub mode: Mode,
}

#[derive(Clone, Debug, Default)]
pub struct ProcessSummary {
    pub path: PathBuf,
    /// The session ID that all processes of a run share; `None` if the capture has none.
    pub session: Option<[u8; 16]>,
    pub identity: Identity,
    /// The process ID, with parts of the identity if another process of the report has the same ID: `1@web-2`.
    pub name: String,
    /// The name with the title of the process, and with its host if the report covers several: `4711 (celery worker)`.
    pub shown: String,
    /// The role or program alone; empty if unknown.
    pub title: String,
    pub labels: Labels,
    /// The name of the run; empty if unknown.
    pub run: String,
    pub pid: u32,
    pub parent_pid: u32,
    pub command: Vec<String>,
    pub n_allocations: u64,
    pub total_bytes: u64,
    /// The peak of this process alone.
    pub peak_bytes: u64,
    pub peak_unix_ns: u64,
    /// The bytes of this process at the peak of the report.
    pub at_peak_bytes: u64,
    pub live_bytes: u64,
    /// The largest resident size; `None` if none was sampled.
    pub resident_peak_bytes: Option<u64>,
    /// Heaptide's own part of the largest resident size; `None` if it was not recorded.
    pub own_at_resident_peak_bytes: Option<u64>,
    pub limit_bytes: Option<u64>,
    /// The peak of Heaptide's own memory in the program.
    pub own_memory_bytes: u64,
    pub n_threads: u64,
    /// False if the program was killed, or is still running.
    pub ended_in_order: bool,
    /// The recording failed before the program ended; `None` if it did not.
    pub stopped: Option<Stopped>,
    /// Whether the recording began in a running process.
    pub joined_late: bool,
    /// The resident size when `heaptide attach` entered the process; `None` if the recording began in another way.
    pub attached_at_bytes: Option<u64>,
    pub n_events: u64,
    /// Nanoseconds from the start until which a bounded capture has only sums; `None` if all events have times.
    pub times_unknown_until_ns: Option<u64>,
    /// How the process was recorded, by time: one entry unless the mode changed.
    pub modes: Vec<ModeInterval>,
    /// The breakdown of the resident memory at the end; `None` if it was not recorded, if the recording failed, or if a
    /// filter is active.
    pub ledger: Option<Ledger>,
}
