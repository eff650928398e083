//! Runs of jobs: the data of each run from job records and captures, and one row per job name.
//!
//! In reading order: a [`JobRun`] is one run, whatever its source. [`RecordReader`] reads job records;
//! [`JobRuns::join`] adds the runs of captures. [`trend`] decides whether a job leaks, and `resident` whether the job
//! makes its process grow. [`table`] sums runs into rows, [`timeline`] into spans per process.

mod from_captures;
mod levels;
mod lines;
mod maybe;
mod read;
mod regression;
mod resident;
mod run;
pub mod table;
pub mod timeline;
pub mod trend;

pub use maybe::{HasUnknown, Maybe};
pub use read::{RecordNotes, RecordReader};
pub use run::{JobProcess, JobRun, JobRuns, KeyRange, OUTCOMES, RunIndex, RunNumbers, SiteRange};
pub use table::{
    Basis, Distribution, Grouping, JobRow, JobTable, LargestSite, PeakKind, RetainedPerRun,
    job_table,
};
pub use timeline::{Span, Worker, workers};
pub use trend::{Trend, Verdict};
