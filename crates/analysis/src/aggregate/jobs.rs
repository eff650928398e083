//! The sums of each job, and of all jobs of a name.
//!
//! The captures are replayed once more for them, because a job's own peak is at another time than that of the heap.

use std::rc::Rc;

use heaptide_capture::{Capture, Identity, JobInfo, Outcome};
use heaptide_tally::{JobDetail, JobSite, StackId, Stacks, TallyOptions};
use rustc_hash::FxHashMap;

use crate::filter::{Filter, NoMatch};
use crate::load::{VisibleFrame, frames, replay_capture, visible_frames};
use crate::model::jobs::{JobGroup, JobProcess, JobSiteSum, JobSums};
use crate::symbols::{Names, NativeNames};

/// Calls `sink` with each job that passes the filter, capture by capture, by number. They are not collected, because there
/// may be very many. `on_progress` receives the number of events replayed so far.
pub fn jobs(
    captures: Vec<Capture>,
    filter: &Filter,
    on_progress: &mut dyn FnMut(u64),
    sink: &mut dyn FnMut(JobSums),
) -> Result<(), NoMatch> {
    let captures = filter.choose_processes(captures)?;
    let identities: Vec<Identity> = captures.iter().map(|it| it.header.identity()).collect();
    let mut n_before = 0;
    for capture in captures {
        let n_events = capture.n_events();
        if !capture.registry.jobs.is_empty() {
            let process = process_of(&capture, &identities);
            let progress = &mut |n_done| on_progress(n_before + n_done);
            each_job(capture, process, filter, progress, sink);
        }
        n_before += n_events;
    }
    Ok(())
}

fn process_of(capture: &Capture, all: &[Identity]) -> Rc<JobProcess> {
    let identity = capture.header.identity();
    Rc::new(JobProcess {
        path: capture.path.clone(),
        name: identity.name_among(all),
        title: capture.header.title(),
        labels: capture.header.labels(),
        pid: capture.header.pid,
        host: capture.header.host.clone(),
        start: identity.start.clone(),
        identity,
        sample_bytes: capture.header.mode.sample_bytes,
    })
}

fn each_job(
    capture: Capture,
    process: Rc<JobProcess>,
    filter: &Filter,
    on_progress: &mut dyn FnMut(u64),
    sink: &mut dyn FnMut(JobSums),
) {
    let options = TallyOptions {
        jobs: JobDetail::Each,
        n_jobs: capture.registry.jobs.len(),
        ..TallyOptions::default()
    };
    let everything = Filter::default();
    let (capture, (stacks, sums), _) =
        replay_capture(capture, &everything, options, on_progress, |tally, _| {
            tally.finish_jobs()
        });
    let names = SiteNames::new(&stacks, &capture, filter);
    let registry = &capture.registry;
    let unix_ns = |units| {
        let elapsed = registry.elapsed_ns(units);
        capture.header.started_unix_ns.saturating_add(elapsed)
    };
    let mut totals = sums.iter().peekable();
    for job in registry.jobs.iter() {
        while totals.next_if(|it| it.number < job.number).is_some() {}
        let found = totals.next_if(|it| it.number == job.number);
        if !filter.wants_job(&registry.jobs, job) {
            continue;
        }
        let mut row = JobSums {
            peak_unix_ns: found.as_ref().map_or(0, |it| unix_ns(it.peak_time)),
            ..described(&capture, job, &process)
        };
        match found {
            Some(found) => {
                row.allocated = found.total;
                row.peak = found.peak;
                row.retained = found.at_end;
                row.retained_now = found.live;
                row.peak_sites = names.sites(found.peak_sites);
                row.retained_sites = names.sites(found.end_sites);
                row.live_sites = names.sites(found.live_sites);
            }
            // It ended without an allocation.
            None if job.ended.is_some() => row.retained = Some(row.allocated),
            None => {}
        }
        sink(row);
    }
}

fn described(capture: &Capture, job: &JobInfo, process: &Rc<JobProcess>) -> JobSums {
    let jobs = &capture.registry.jobs;
    let labels = jobs.labels(job);
    JobSums {
        number: job.number,
        name: jobs.name(job).into_owned(),
        key: jobs.key(job).map(str::to_owned),
        labels: labels
            .map(|(key, value)| (key.into_owned(), value.into_owned()))
            .collect(),
        outcome: job.outcome,
        error: jobs.error(job).into_owned(),
        parent: job.parent,
        began_unix_ns: job.began_unix_ns,
        ended_unix_ns: job.ended.map(|_| job.ended_unix_ns),
        began_before_recording: job.began_unix_ns < capture.header.started_unix_ns,
        thread: job.thread,
        process: process.clone(),
        allocated: Default::default(),
        peak: Default::default(),
        peak_unix_ns: 0,
        retained: None,
        retained_now: Default::default(),
        peak_sites: Vec::new(),
        retained_sites: Vec::new(),
        live_sites: Vec::new(),
    }
}

/// Resolves the innermost frames of the program on stacks.
struct SiteNames {
    visible: Vec<VisibleFrame>,
    names: Names,
}

impl SiteNames {
    fn new(stacks: &Stacks, capture: &Capture, filter: &Filter) -> SiteNames {
        let natives = match filter.hide_native {
            true => NativeNames::default(),
            false => {
                let frames = stacks.iter().map(|(_, stack)| stack.frame);
                NativeNames::find(frames, &capture.registry)
            }
        };
        let mut names = Names::default();
        let (visible, _) = visible_frames(stacks, capture, filter, &natives, &mut names);
        SiteNames { visible, names }
    }

    fn sites(&self, sites: &[JobSite]) -> Vec<JobSiteSum> {
        let sites = sites.iter();
        sites
            .map(|site| JobSiteSum {
                location: self.location(site.stack),
                bytes: site.bytes,
            })
            .collect()
    }

    fn location(&self, stack: StackId) -> Option<crate::model::Location> {
        let is_python = |id: &_| !self.names.get(*id).is_native();
        let first = frames(&self.visible, stack).find(is_python);
        let id = first.or_else(|| frames(&self.visible, stack).next())?;
        Some(self.names.get(id).clone())
    }
}

/// Sums jobs by name.
#[derive(Default)]
pub struct JobGroups {
    by_name: FxHashMap<String, JobGroup>,
}

impl JobGroups {
    pub fn add(&mut self, job: &JobSums) {
        let group = match self.by_name.get_mut(&job.name) {
            Some(group) => group,
            None => self.by_name.entry(job.name.clone()).or_insert(JobGroup {
                name: job.name.clone(),
                ..JobGroup::default()
            }),
        };
        group.n_jobs += 1;
        group.n_failed += u64::from(matches!(job.outcome, Outcome::Failed | Outcome::Killed));
        group.n_running += u64::from(job.outcome == Outcome::Running);
        group.allocated += job.allocated;
        group.retained += job.retained.unwrap_or_default();
        group.retained_now += job.retained_now;
        if job.peak.bytes > group.peak.bytes {
            group.peak = job.peak;
            group.peak_site = job.peak_sites.first().cloned();
        }
        let largest = group.retained_site.as_ref().map_or(0, |site| site.bytes);
        if let Some(site) = job.retained_sites.first().filter(|it| it.bytes > largest) {
            group.retained_site = Some(site.clone());
        }
    }

    /// The groups with the largest peaks first.
    pub fn finish(self) -> Vec<JobGroup> {
        let mut groups: Vec<JobGroup> = self.by_name.into_values().collect();
        groups.sort_by(|one, other| {
            let bytes = other.peak.bytes.cmp(&one.peak.bytes);
            bytes.then_with(|| one.name.cmp(&other.name))
        });
        groups
    }
}
