//! Selects jobs by name, key or number.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use heaptide_capture::{Capture, JobInfo, Jobs, glob};
use heaptide_tally::{JobDetail, JobKey};
use rustc_hash::FxHashSet;

use super::{Filter, NoMatch};

impl Filter {
    /// Whether a job passes: its name, `name[key]` or `#number` matches one of the patterns.
    pub fn wants_job(&self, jobs: &Jobs, job: &JobInfo) -> bool {
        if self.jobs.is_empty() {
            return true;
        }
        let name = jobs.name(job);
        let with_key = jobs.key(job).map(|key| format!("{name}[{key}]"));
        let number = format!("#{}", job.number);
        self.jobs.iter().any(|pattern| {
            glob::matches(pattern, &name)
                || with_key
                    .as_ref()
                    .is_some_and(|text| glob::matches(pattern, text))
                || *pattern == number
        })
    }

    /// Returns an error if the filter names jobs and no capture has one of them. Called before events are replayed.
    pub fn check_jobs(&self, captures: &[Capture]) -> Result<(), NoMatch> {
        if self.jobs.is_empty() {
            return Ok(());
        }
        let mut known = BTreeSet::new();
        for capture in captures {
            let jobs = &capture.registry.jobs;
            if jobs.iter().any(|job| self.wants_job(jobs, job)) {
                return Ok(());
            }
            known.extend(jobs.iter().map(|job| jobs.name(job).into_owned()));
        }
        Err(NoMatch::Job {
            known: known.into_iter().collect(),
        })
    }

    /// How a tally must distinguish jobs for this filter. `by_name` is true if the report shows the names of jobs.
    pub(crate) fn job_detail(&self, capture: &Capture, by_name: bool) -> JobDetail {
        let jobs = &capture.registry.jobs;
        if self.jobs.is_empty() {
            return match by_name && !jobs.is_empty() {
                true => JobDetail::Names,
                false => JobDetail::Nothing,
            };
        }
        let chosen = jobs.iter().filter(|job| self.wants_job(jobs, job));
        let numbers: HashSet<u32> = chosen.map(|job| job.number).collect();
        JobDetail::Chosen(Arc::new(numbers))
    }
}

/// The jobs of one process that pass a filter.
pub(crate) struct WantedJobs {
    numbers: FxHashSet<u32>,
    names: FxHashSet<u32>,
}

impl WantedJobs {
    /// `None` if all pass.
    pub fn new(filter: &Filter, capture: &Capture) -> Option<WantedJobs> {
        if filter.jobs.is_empty() {
            return None;
        }
        let jobs = &capture.registry.jobs;
        let is_wanted = |job: &&JobInfo| filter.wants_job(jobs, job);
        // A bounded capture has one sum for all jobs of a name, so the name itself must match.
        let is_bounded = capture.checkpoint.is_some();
        let matches_name = |job: &&JobInfo| {
            let name = jobs.name(job);
            !is_bounded || filter.jobs.iter().any(|it| glob::matches(it, &name))
        };
        let chosen = || jobs.iter().filter(is_wanted);
        Some(WantedJobs {
            numbers: chosen().map(|job| job.number).collect(),
            names: chosen()
                .filter(matches_name)
                .map(|job| job.name_number)
                .collect(),
        })
    }

    pub fn has(&self, key: JobKey) -> bool {
        match (key.job(), key.name()) {
            (Some(number), _) => self.numbers.contains(&number),
            (_, Some(name)) => self.names.contains(&name),
            _ => false,
        }
    }
}
