//! Applies job marks: the job of the allocations that follow, and the ends of jobs.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use heaptide_capture::DecodedChunk;

use super::Tally;
use crate::jobs::{JobKey, JobStates};
use crate::sites::SiteKey;
use crate::threads::Thread;

/// How a tally distinguishes the jobs of allocations.
#[derive(Clone, Debug, Default)]
pub enum JobDetail {
    /// Jobs are ignored.
    #[default]
    Nothing,
    /// By the names of jobs.
    Names,
    /// Allocations of the jobs with these numbers, by name; all others belong to no job.
    Chosen(Arc<HashSet<u32>>),
    /// By job. The sites of an ended job become those of its name, and [`super::Sums::jobs`] has the sums of each job.
    /// Cannot be combined with bins of time.
    Each,
    /// Like `Each` for jobs with these numbers; all others by name. The length of the range bounds the memory, so a caller
    /// can replay a capture several times instead of keeping all jobs at once.
    Between(RangeInclusive<u32>),
}

impl JobDetail {
    /// Whether there are sums of single jobs.
    pub(super) fn has_sums(&self) -> bool {
        matches!(self, JobDetail::Each | JobDetail::Between(_))
    }

    fn has_sums_of(&self, job: u32) -> bool {
        match self {
            JobDetail::Between(numbers) => numbers.contains(&job),
            _ => self.has_sums(),
        }
    }
}

impl Tally {
    /// Keeps sums per job from the first event on, as a bounded capture does.
    pub fn keep_jobs(&mut self) {
        self.job_detail = JobDetail::Each;
        self.jobs.get_or_insert_default();
    }

    /// Distinguishes the jobs of further allocations, without sums of each job.
    pub fn distinguish_job_names(&mut self) {
        self.job_detail = JobDetail::Names;
        self.jobs = None;
    }

    /// Sets the job of the thread to that of the operation `op`. Returns the position of the next job mark.
    pub(super) fn enter_job(
        &mut self,
        chunk: &DecodedChunk,
        thread: &mut Thread,
        op: usize,
    ) -> usize {
        if chunk.jobs.is_empty() || matches!(self.job_detail, JobDetail::Nothing) {
            thread.job = JobKey::NONE;
            return usize::MAX;
        }
        let next = chunk
            .jobs
            .partition_point(|mark| mark.first_op as usize <= op);
        let mark = next.checked_sub(1).and_then(|at| chunk.jobs.get(at));
        let (job, name) = mark.map_or((0, 0), |mark| (mark.job, mark.name));
        thread.job = self.job_key(job, name);
        next
    }

    fn job_key(&mut self, job: u32, name: u32) -> JobKey {
        if job == 0 {
            return JobKey::NONE;
        }
        match &self.job_detail {
            JobDetail::Nothing => JobKey::NONE,
            JobDetail::Names => JobKey::of_name(name),
            JobDetail::Chosen(numbers) if numbers.contains(&job) => JobKey::of_name(name),
            JobDetail::Chosen(_) => JobKey::NONE,
            detail if !detail.has_sums_of(job) => JobKey::of_name(name),
            _ => match &mut self.jobs {
                Some(jobs) if JobKey::of_job(job) != JobKey::NONE => {
                    // Events that follow the end, because another thread had not noticed it yet.
                    if jobs.has_ended(job) {
                        return JobKey::of_name(name);
                    }
                    jobs.of_number(job, name);
                    JobKey::of_job(job)
                }
                _ => JobKey::NONE,
            },
        }
    }

    /// Notes a new site of a job.
    pub(super) fn add_job_site(&mut self, site: u32, key: JobKey) {
        let Some(jobs) = &mut self.jobs else { return };
        if let Some(number) = key.job() {
            if !jobs.is_known_site(site) {
                let job = jobs.of_number(number, 0);
                jobs.add_site(site, job);
            }
        }
    }

    #[cold]
    pub(super) fn end_job(&mut self, number: u64) {
        let Some(mut jobs) = self.jobs.take() else {
            return;
        };
        if let Ok(number) = u32::try_from(number) {
            if JobKey::of_job(number) != JobKey::NONE && self.job_detail.has_sums_of(number) {
                self.settle_job(&mut jobs, number);
            }
        }
        self.jobs = Some(jobs);
    }

    fn settle_job(&mut self, jobs: &mut JobStates, number: u32) {
        let job = jobs.of_number(number, 0);
        let sites = &self.sites;
        let n_before = jobs.lingering.len();
        jobs.settle(job, self.time, true, |site| sites.stack_and_sums(site));
        self.fold_freed(jobs, n_before);
        // Checking the sites of all ended jobs at every end would take quadratic time.
        if jobs.lingering.len() >= jobs.check_at {
            self.fold_freed(jobs, 0);
            jobs.check_at = 2 * jobs.lingering.len() + 64;
        }
    }

    /// Folds the sites of ended jobs that have no live blocks, from position `first` of their list on.
    fn fold_freed(&mut self, jobs: &mut JobStates, first: usize) {
        let lingering = jobs.lingering.split_off(first);
        for site in lingering {
            let (key, sums) = self.sites.key_and_sums(site);
            if sums.live.count != 0 {
                jobs.lingering.push(site);
                continue;
            }
            let name = key.job.job().and_then(|number| jobs.get(number));
            let name = name.map_or(0, |state| state.name);
            jobs.forget_site(site);
            self.sites.fold(
                site,
                SiteKey {
                    job: JobKey::of_name(name),
                    ..key
                },
            );
        }
    }
}
