//! The sums of each job, as the result of a tally.
//!
//! A capture may have a hundred thousand jobs, so the table holds raw sums and finishes each one when it is read.

use super::Tally;
use crate::amount::{Amount, Weigher};
use crate::jobs::{JobSite, JobStates};

/// The sums of all jobs; empty unless [`super::JobDetail::Each`] or `Between` was requested.
pub struct JobTable {
    jobs: Option<Box<JobStates>>,
    weigher: Weigher,
}

/// The sums of one job. Mappings of files are not among them.
#[derive(Clone, Debug, PartialEq)]
pub struct JobTotals<'a> {
    pub number: u32,
    pub total: Amount,
    /// The high-water mark of the job's own live bytes, and its clock units.
    pub peak: Amount,
    pub peak_time: u64,
    /// Live when the job ended; `None` if it runs, or if its end was not recorded.
    pub at_end: Option<Amount>,
    /// Live after the last event.
    pub live: Amount,
    /// The largest sites at the peak, at the end of the job, and after the last event; largest first.
    pub peak_sites: &'a [JobSite],
    pub end_sites: &'a [JobSite],
    pub live_sites: &'a [JobSite],
}

impl JobTable {
    pub(super) fn new(tally: &mut Tally) -> JobTable {
        let mut jobs = tally.jobs.take();
        if let Some(jobs) = &mut jobs {
            let sites = &tally.sites;
            for job in 0..jobs.states.len() as u32 {
                jobs.settle(job, tally.time, false, |site| sites.stack_and_sums(site));
            }
            jobs.add_live_sites(|site| sites.stack_and_sums(site));
            jobs.finish();
        }
        JobTable {
            jobs,
            weigher: tally.weigher,
        }
    }

    /// All jobs, by number.
    pub fn iter(&self) -> impl Iterator<Item = JobTotals<'_>> {
        let jobs = self.jobs.iter();
        jobs.flat_map(|jobs| {
            jobs.states.iter().map(|state| {
                let (peak_sites, end_sites) = jobs.sites_of(state);
                JobTotals {
                    number: state.number,
                    total: self.weigher.finish(state.total),
                    peak: self.weigher.finish(state.peak),
                    peak_time: state.peak_time,
                    at_end: state.at_end().map(|amount| self.weigher.finish(amount)),
                    live: self.weigher.finish(state.live),
                    peak_sites,
                    end_sites,
                    live_sites: match state.at_end() {
                        Some(_) => jobs.live_sites_of(state),
                        None => end_sites,
                    },
                }
            })
        })
    }
}
