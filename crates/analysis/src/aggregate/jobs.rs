//! The sums of each job, and of all jobs with the same name.
//!
//! Each capture is replayed once more, because a job's peak is at another time than the peak of the heap. A capture
//! with more than [`MAX_JOBS_AT_ONCE`] jobs is replayed several times, each time for some of the jobs, so that memory
//! stays bounded.

use std::ops::RangeInclusive;
use std::rc::Rc;

use heaptide_capture::{Capture, Identity, JobInfo, Outcome};
use heaptide_tally::{JobDetail, JobSite, JobTable, StackId, Stacks, TallyOptions};
use rustc_hash::FxHashMap;

use crate::filter::{Filter, NoMatch};
use crate::load::{VisibleFrame, frames, replay_capture, visible_frames};
use crate::model::Stopped;
use crate::model::jobs::{JobGroup, JobProcess, JobSiteSum, JobSums};
use crate::symbols::{Names, NativeNames};

/// The maximum number of jobs whose sums are in memory at a time. A job with its sites takes about 350 bytes.
const MAX_JOBS_AT_ONCE: usize = 10_000;

/// Calls `sink` with each job that passes the filter, capture by capture, by number. Jobs are not collected, because
/// there may be very many. `on_progress` receives the number of events replayed so far.
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
        stopped: Stopped::of(&capture.registry),
    })
}

/// Returns the numbers of the jobs of each pass.
fn passes(capture: &Capture) -> Vec<RangeInclusive<u32>> {
    let numbers: Vec<u32> = capture.registry.jobs.iter().map(|job| job.number).collect();
    // A bounded capture stores the sums of all jobs, so it needs only one pass.
    if numbers.len() <= MAX_JOBS_AT_ONCE || capture.checkpoint.is_some() {
        return vec![0..=u32::MAX];
    }
    let n_passes = numbers.len().div_ceil(MAX_JOBS_AT_ONCE);
    let parts = numbers.chunks(numbers.len().div_ceil(n_passes));
    parts
        .filter_map(|part| Some(*part.first()?..=*part.last()?))
        .collect()
}

fn each_job(
    mut capture: Capture,
    process: Rc<JobProcess>,
    filter: &Filter,
    on_progress: &mut dyn FnMut(u64),
    sink: &mut dyn FnMut(JobSums),
) {
    let passes = passes(&capture);
    let n_passes = passes.len() as u64;
    let mut natives = NativeNames::default();
    for (pass, numbers) in (0..).zip(passes) {
        let options = TallyOptions {
            n_jobs: capture.registry.jobs.len().div_ceil(n_passes as usize),
            jobs: match n_passes {
                1 => JobDetail::Each,
                _ => JobDetail::Between(numbers.clone()),
            },
            ..TallyOptions::default()
        };
        let n_before = capture.n_events() * pass;
        let progress = &mut |n_done| on_progress((n_before + n_done) / n_passes);
        let everything = Filter::default();
        let (read, (stacks, sums), _) =
            replay_capture(capture, &everything, options, progress, |tally, _| {
                tally.finish_jobs()
            });
        capture = read;
        let names = SiteNames::new(&stacks, &capture, filter, &mut natives);
        emit(&capture, numbers, &sums, &names, &process, filter, sink);
    }
}

/// Calls `sink` with the jobs of one pass.
fn emit(
    capture: &Capture,
    numbers: RangeInclusive<u32>,
    sums: &JobTable,
    names: &SiteNames,
    process: &Rc<JobProcess>,
    filter: &Filter,
    sink: &mut dyn FnMut(JobSums),
) {
    let registry = &capture.registry;
    let unix_ns = |units| {
        let elapsed = registry.elapsed_ns(units);
        capture.header.started_unix_ns.saturating_add(elapsed)
    };
    let mut totals = sums.iter().peekable();
    let jobs = registry.jobs.iter();
    for job in jobs.filter(|job| numbers.contains(&job.number)) {
        while totals.next_if(|it| it.number < job.number).is_some() {}
        let found = totals.next_if(|it| it.number == job.number);
        if !filter.wants_job(&registry.jobs, job) {
            continue;
        }
        let mut row = JobSums {
            peak_unix_ns: found.as_ref().map_or(0, |it| unix_ns(it.peak_time)),
            ..described(capture, job, process)
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
            // The job ended without an allocation.
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

/// Finds the innermost frame of the program on a stack and resolves its names.
struct SiteNames {
    visible: Vec<VisibleFrame>,
    names: Names,
}

impl SiteNames {
    /// `natives` are the native functions of earlier passes. Resolving them is slow, so each is resolved once.
    fn new(
        stacks: &Stacks,
        capture: &Capture,
        filter: &Filter,
        natives: &mut NativeNames,
    ) -> SiteNames {
        if !filter.hide_native {
            let frames = stacks.iter().map(|(_, stack)| stack.frame);
            natives.find_more(frames, &capture.registry);
        }
        let mut names = Names::default();
        let (visible, _) = visible_frames(stacks, capture, filter, natives, &mut names);
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
