//! Every site with its stack, and each process over time: the source of exports, pages and comparisons.

use heaptide_capture::{Allocator, Mode};
use heaptide_tally::{Amount, Lifetimes};

use super::Measure;
use super::finding::Finding;
use super::quality::Quality;

#[derive(Clone, Debug, Default)]
pub struct StackModel {
    /// The frames of all stacks.
    pub locations: Vec<super::Location>,
    /// All stacks as one tree, callers before callees. Most stacks share most of their frames, so this is far smaller than
    /// a list of frames for each stack.
    pub stacks: Vec<StackNode>,
    /// Names of jobs; sites refer to them. Empty unless the report distinguishes jobs.
    pub jobs: Vec<String>,
    /// In the order of the command line, as in [`Quality::processes`].
    pub processes: Vec<ProcessStacks>,
    /// From the first start to the last end.
    pub start_unix_ns: u64,
    pub end_unix_ns: u64,
    /// The bytes alive at the moment of [`Quality::peak_moment`].
    pub peak_bytes: u64,
    /// The most important first.
    pub findings: Vec<Finding>,
    pub quality: Quality,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackNode {
    /// Index of the stack this one was called from; `None` at the root.
    pub parent: Option<usize>,
    /// Index of the innermost frame.
    pub location: usize,
}

#[derive(Clone, Debug, Default)]
pub struct ProcessStacks {
    pub start_unix_ns: u64,
    pub duration_ns: u64,
    pub executable: String,
    pub working_directory: String,
    pub host: String,
    /// As `sys.hexversion`.
    pub python_version: u32,
    pub python_allocator: String,
    pub mode: Mode,
    pub main_thread: u32,
    pub threads: Vec<ThreadName>,
    pub sites: Vec<SiteSum>,
    pub total: Amount,
    /// At the peak of the report, and its nanoseconds after the start.
    pub peak: Amount,
    pub peak_elapsed_ns: u64,
    /// The bytes of all sites at that moment, including sites that a filter leaves out.
    pub whole_peak_bytes: u64,
    /// The peak of this process alone.
    pub own_peak_bytes: u64,
    pub own_peak_elapsed_ns: u64,
    pub leaked: Amount,
    /// Lifetimes of the sites' blocks, in the session's bins; empty unless requested.
    pub lives: Lifetimes,
    /// Largest heap size within each interval, and the size at the end.
    pub heap: Vec<Reading>,
    pub resident: Vec<Reading>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadName {
    /// The thread ID of the operating system; 0 if the record was lost.
    pub os_id: u32,
    pub name: Option<String>,
    pub started_ns: u64,
}

/// The sums of one allocation site: a stack, a thread, an allocator and the name of a job. Frames on the same line are merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteSum {
    /// Index of the stack; `None` if no Python frame was on it.
    pub stack: Option<usize>,
    /// Index of the process's thread.
    pub thread: usize,
    pub allocator: Allocator,
    /// Index of the job's name; `None` outside of jobs.
    pub job: Option<u32>,
    pub total: Amount,
    pub peak: Amount,
    pub leaked: Amount,
    /// Temporary blocks; zero unless requested.
    pub temporary: Amount,
    /// The lifetimes of all its blocks added up, until the end for live blocks; `None` if not known.
    pub block_time_ns: Option<u64>,
}

impl SiteSum {
    /// The site's share of a measure.
    pub fn amount(&self, measure: Measure) -> Amount {
        match measure {
            Measure::Peak => self.peak,
            Measure::Leaked => self.leaked,
            Measure::Total => self.total,
            Measure::Temporary => self.temporary,
        }
    }
}

/// A size, valid from this time until the next reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub elapsed_ns: u64,
    pub bytes: u64,
}
