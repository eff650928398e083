//! The numbers of one job, for `heaptide jobs` and `--by job`.

use std::path::PathBuf;
use std::rc::Rc;

use heaptide_capture::{Identity, Outcome};
use heaptide_tally::Amount;

use super::{Location, Stopped};

/// One job of one process. All bytes are those of blocks that the job itself allocated.
#[derive(Clone, Debug)]
pub struct JobSums {
    /// Unique in its process.
    pub number: u32,
    pub name: String,
    pub key: Option<String>,
    pub labels: Vec<(String, String)>,
    pub outcome: Outcome,
    /// The type of the exception; empty if there was none.
    pub error: String,
    /// The number of the enclosing job; 0 if there is none.
    pub parent: u32,
    /// Nanoseconds since 1970. It may lie before the start of the recording.
    pub began_unix_ns: u64,
    pub ended_unix_ns: Option<u64>,
    /// Whether the job began before the recording, so that some of its memory is missing.
    pub began_before_recording: bool,
    /// Operating-system id of the thread in which it began.
    pub thread: u32,
    pub process: Rc<JobProcess>,
    pub allocated: Amount,
    /// The high-water mark of the job's own live bytes.
    pub peak: Amount,
    pub peak_unix_ns: u64,
    /// Live when the job ended; `None` if it is running, or if its end was not recorded.
    pub retained: Option<Amount>,
    /// Live at the end of the recording.
    pub retained_now: Amount,
    /// The largest sites at the peak, when the job ended, and after the last event; largest first.
    pub peak_sites: Vec<JobSiteSum>,
    pub retained_sites: Vec<JobSiteSum>,
    pub live_sites: Vec<JobSiteSum>,
}

/// The process and the capture of a job.
#[derive(Clone, Debug, Default)]
pub struct JobProcess {
    pub path: PathBuf,
    pub identity: Identity,
    /// The process ID, with the host where that is needed.
    pub name: String,
    /// Its role or program; empty if unknown.
    pub title: String,
    pub labels: Vec<(String, String)>,
    pub pid: u32,
    pub host: String,
    /// The start of the process, as in its identity.
    pub start: String,
    /// Mean bytes between two recorded allocations; 0 if every one was recorded.
    pub sample_bytes: u64,
    /// Why and when the recording failed before the program ended; `None` if it did not.
    pub stopped: Option<Stopped>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSiteSum {
    /// `None` if no Python frame was on the stack.
    pub location: Option<Location>,
    pub bytes: u64,
}

impl JobSums {
    /// The name, with the key if there is one.
    pub fn title(&self) -> String {
        match &self.key {
            Some(key) => format!("{}[{key}]", self.name),
            None => self.name.clone(),
        }
    }

    pub fn seconds(&self) -> Option<f64> {
        let ended = self.ended_unix_ns?;
        Some(ended.saturating_sub(self.began_unix_ns) as f64 / 1e9)
    }

    pub fn is_sampled(&self) -> bool {
        self.process.sample_bytes > 0
    }
}

/// The jobs of one name.
#[derive(Clone, Debug, Default)]
pub struct JobGroup {
    pub name: String,
    pub n_jobs: u64,
    pub n_failed: u64,
    pub n_running: u64,
    pub allocated: Amount,
    /// The largest peak of one job, and its error (95%).
    pub peak: Amount,
    /// Live when they ended, summed.
    pub retained: Amount,
    pub retained_now: Amount,
    /// The site with the most bytes at the largest peak, and the one with the most retained bytes in one job.
    pub peak_site: Option<JobSiteSum>,
    pub retained_site: Option<JobSiteSum>,
}
