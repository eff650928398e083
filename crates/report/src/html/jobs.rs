//! The jobs page: table, distributions, and the runs of each process over time.

use std::io::{self, Write};

use heaptide_analysis::job_runs::{JobRuns, JobTable, workers};

use super::{MAX_BYTES, insert, pack};
use crate::json::jobs::{CaptureLink, PageContent, page};
use crate::text::notes::incomplete_jobs;

pub(super) const JOBS: &str = include_str!("../../../../web/dist/jobs.html");
/// A browser shows this many runs without delay.
const MAX_SPANS: usize = 4000;
/// A page with fewer runs would be useless.
const MIN_SPANS: usize = 16;

/// Writes the page. `title` names the source; `captures` has a link for each of [`JobRuns::captures`].
pub fn jobs_page(
    out: &mut dyn Write,
    runs: &JobRuns,
    table: &JobTable,
    title: &str,
    captures: &[CaptureLink],
    worker_name: &dyn Fn(u32) -> String,
) -> io::Result<()> {
    let mut max_spans = MAX_SPANS;
    // Keys of jobs may have any length, so the number of runs is found by trial.
    let packed = loop {
        let workers = workers(runs, max_spans);
        let content = PageContent {
            title: title.to_owned(),
            warnings: incomplete_jobs(runs, worker_name),
            captures,
            workers: &workers,
            worker_name,
        };
        let packed = pack(&page(runs, table, &content))?;
        if packed.len().div_ceil(3) * 4 <= MAX_BYTES - JOBS.len() || max_spans <= MIN_SPANS {
            break packed;
        }
        max_spans /= 2;
    };
    insert(out, JOBS, &packed)
}
