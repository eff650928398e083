//! Sums per job: bytes allocated, at its peak, live at its end and live now, and its largest sites.
//!
//! Jobs do not share sites, so the site of a freed block identifies the job. The peak of a job is found like that of the
//! whole heap (see `sites`). The peaks of a job are numbered, and a site's share is copied when the site first changes
//! after a peak.
//!
//! When a job ends, its sites without live blocks are folded into the sites of its name. So memory grows with live
//! blocks, and by a small fixed amount per job.

use std::collections::BTreeMap;

use crate::amount::Raw;
use crate::encoding::{Decoder, Encoder};
use crate::index::{Index, hash};
use crate::sites::Site;
use crate::stacks::StackId;

/// The most sites that are kept of a job for each of three moments: its peak, its end, and the last event.
const MAX_SITES: usize = 3;
const NONE: u32 = u32::MAX;
const IS_NAME: u32 = 1 << 31;

/// The job of a site: none, one job by its number, or all jobs of a name by the name's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobKey(pub(crate) u32);

impl JobKey {
    pub const NONE: JobKey = JobKey(0);

    pub fn of_name(name: u32) -> JobKey {
        JobKey(name | IS_NAME)
    }

    /// Numbers above two billion are no job: a program does not reach them.
    pub fn of_job(job: u32) -> JobKey {
        JobKey(if job & IS_NAME == 0 { job } else { 0 })
    }

    /// The number of the job, if the key is that of one job.
    pub fn job(self) -> Option<u32> {
        (self.0 & IS_NAME == 0 && self.0 != 0).then_some(self.0)
    }

    /// The number of the name, if the key is that of a name.
    pub fn name(self) -> Option<u32> {
        (self.0 & IS_NAME != 0).then_some(self.0 & !IS_NAME)
    }
}

/// A site's share of a job's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSite {
    pub stack: StackId,
    pub bytes: u64,
}

/// Sums of one job.
#[derive(Default)]
pub(crate) struct JobState {
    pub number: u32,
    pub name: u32,
    pub total: Raw,
    pub live: Raw,
    pub peak: Raw,
    pub peak_time: u64,
    /// Live at the job's end; 0 while it runs.
    end: Raw,
    /// Number of the job's latest peak.
    peak_number: u32,
    /// Range of its sites in [`JobStates::shares`]: sites of the peak, then sites that were live at its end. Sites that are
    /// live after the last event begin at `first_live_share`.
    first_share: u32,
    first_live_share: u32,
    n_peak_shares: u8,
    n_end_shares: u8,
    n_live_shares: u8,
    has_ended: bool,
}

/// The amount of a site of a job at the job's latest peak.
#[derive(Clone, Copy)]
struct Share {
    bytes: u64,
    /// Number of the job's peak that `bytes` describes.
    stamp: u32,
    /// Position of the job; `NONE` if the site belongs to none.
    job: u32,
}

impl Share {
    const NO_JOB: Share = Share {
        bytes: 0,
        stamp: 0,
        job: NONE,
    };
}

/// The sums of all jobs.
#[derive(Default)]
pub(crate) struct JobStates {
    pub states: Vec<JobState>,
    index: Index,
    /// By site number.
    of_site: Vec<Share>,
    /// The largest sites of ended jobs.
    shares: Vec<JobSite>,
    /// By the positions of jobs that have not ended: the numbers of their sites.
    sites: BTreeMap<u32, Vec<u32>>,
    /// Sites of ended jobs that had live blocks when they were last checked.
    pub lingering: Vec<u32>,
    /// Length of `lingering` at which it is checked again.
    pub check_at: usize,
}

impl JobStates {
    fn find(&self, number: u32) -> Option<u32> {
        let states = &self.states;
        self.index.find(hash(number.into()), |at| {
            states[at as usize].number == number
        })
    }

    /// Makes room for this many jobs, with two sites each.
    pub fn reserve(&mut self, n_jobs: usize) {
        self.states.reserve_exact(n_jobs);
        self.shares.reserve_exact(2 * n_jobs);
    }

    /// Returns the position of a job. Adds the job if it is new.
    pub fn of_number(&mut self, number: u32, name: u32) -> u32 {
        if let Some(at) = self.find(number) {
            return at;
        }
        let states = &mut self.states;
        let at = states.len() as u32;
        if states.len() == states.capacity() {
            // Doubling would waste megabytes.
            states.reserve_exact(64 + states.len() / 8);
        }
        states.push(JobState {
            number,
            name,
            ..JobState::default()
        });
        self.index.insert(hash(number.into()), at, |at| {
            hash(states[at as usize].number.into())
        });
        at
    }

    /// Makes the counts of all sums so far fixed-point numbers.
    pub fn make_fixed_point(&mut self) {
        for state in &mut self.states {
            let state = [
                &mut state.total,
                &mut state.live,
                &mut state.peak,
                &mut state.end,
            ];
            for amount in state {
                amount.make_fixed_point();
            }
        }
    }

    pub fn has_ended(&self, number: u32) -> bool {
        let at = self.find(number);
        at.is_some_and(|at| self.states[at as usize].has_ended)
    }

    pub fn get(&mut self, number: u32) -> Option<&mut JobState> {
        let at = self.find(number)?;
        self.states.get_mut(at as usize)
    }

    /// Notes that a new site belongs to a job.
    pub fn add_site(&mut self, site: u32, job: u32) {
        self.assign_site(site, job);
        self.sites.entry(job).or_default().push(site);
    }

    fn assign_site(&mut self, site: u32, job: u32) {
        let at = site as usize;
        if self.of_site.len() <= at {
            self.of_site.resize(at + 1, Share::NO_JOB);
        }
        self.of_site[at] = Share {
            bytes: 0,
            stamp: self.states[job as usize].peak_number,
            job,
        };
    }

    pub fn is_known_site(&self, site: u32) -> bool {
        self.of_site
            .get(site as usize)
            .is_some_and(|share| share.job != NONE)
    }

    pub fn forget_site(&mut self, site: u32) {
        if let Some(share) = self.of_site.get_mut(site as usize) {
            *share = Share::NO_JOB;
        }
    }

    /// Adds an amount to a site's job. `before` is the site's live bytes without it. `is_allocation` is false for an undone
    /// free.
    #[inline(always)]
    pub fn grow(&mut self, site: u32, before: u64, amount: Raw, is_allocation: bool) {
        let Some(share) = self.of_site.get_mut(site as usize) else {
            return;
        };
        let Some(state) = self.states.get_mut(share.job as usize) else {
            return;
        };
        if share.stamp < state.peak_number {
            share.bytes = before;
            share.stamp = state.peak_number;
        }
        state.live += amount;
        if is_allocation {
            state.total += amount;
        }
    }

    /// Subtracts an amount from a site's job. Its live bytes just before may be a new peak.
    #[inline(always)]
    pub fn shrink(&mut self, site: u32, before: u64, amount: Raw, time: u64) {
        let Some(share) = self.of_site.get_mut(site as usize) else {
            return;
        };
        let Some(state) = self.states.get_mut(share.job as usize) else {
            return;
        };
        state.mark_peak(time);
        if share.stamp < state.peak_number {
            share.bytes = before;
            share.stamp = state.peak_number;
        }
        state.live -= amount;
    }

    /// Completes the sums of a job when it ends, or when the recording ends first (`has_ended` is then false).
    pub fn settle(
        &mut self,
        job: u32,
        time: u64,
        has_ended: bool,
        site_of: impl Fn(u32) -> (StackId, Site),
    ) {
        let Some(state) = self.states.get_mut(job as usize) else {
            return;
        };
        if state.has_ended {
            return;
        }
        state.mark_peak(time);
        let (mut at_peak, mut live) = (Vec::new(), Vec::new());
        for &site in self.sites.get(&job).into_iter().flatten() {
            let (stack, sums) = site_of(site);
            let share = self.of_site[site as usize];
            let bytes = if share.stamp < state.peak_number {
                sums.live.bytes
            } else {
                share.bytes
            };
            add_share(&mut at_peak, stack, bytes);
            add_share(&mut live, stack, sums.live.bytes);
        }
        state.first_share = self.shares.len() as u32;
        for (shares, count) in [
            (&mut at_peak, &mut state.n_peak_shares),
            (&mut live, &mut state.n_end_shares),
        ] {
            keep_largest(shares);
            *count = shares.len() as u8;
            self.shares.extend_from_slice(shares);
        }
        if has_ended {
            state.has_ended = true;
            state.end = state.live;
            self.lingering
                .extend(self.sites.remove(&job).unwrap_or_default());
        }
    }

    /// Adds the sites of ended jobs that have live blocks after the last event.
    pub fn add_live_sites(&mut self, site_of: impl Fn(u32) -> (StackId, Site)) {
        let mut lingering = std::mem::take(&mut self.lingering);
        let job_of = |site: u32| self.of_site[site as usize].job;
        lingering.sort_unstable_by_key(|&site| (job_of(site), site));
        let mut live: Vec<JobSite> = Vec::new();
        for sites in lingering.chunk_by(|&one, &other| job_of(one) == job_of(other)) {
            live.clear();
            for &site in sites {
                let (stack, sums) = site_of(site);
                add_share(&mut live, stack, sums.live.bytes);
            }
            keep_largest(&mut live);
            if let Some(state) = self.states.get_mut(job_of(sites[0]) as usize) {
                state.first_live_share = self.shares.len() as u32;
                state.n_live_shares = live.len() as u8;
                self.shares.extend_from_slice(&live);
            }
        }
    }

    /// Sorts the jobs by number and drops the data that only further events need.
    pub fn finish(&mut self) {
        self.index = Index::default();
        self.of_site = Vec::new();
        self.lingering = Vec::new();
        self.sites = BTreeMap::new();
        self.states.sort_unstable_by_key(|state| state.number);
    }

    /// The largest sites of a settled job: at its peak, and at its end.
    pub fn sites_of(&self, state: &JobState) -> (&[JobSite], &[JobSite]) {
        let first = state.first_share as usize;
        let middle = first + usize::from(state.n_peak_shares);
        let end = middle + usize::from(state.n_end_shares);
        match self.shares.get(first..end) {
            Some(shares) => shares.split_at(middle - first),
            None => (&[], &[]),
        }
    }

    /// The largest sites of an ended job that have live blocks after the last event.
    pub fn live_sites_of(&self, state: &JobState) -> &[JobSite] {
        let first = state.first_live_share as usize;
        let live = first..first + usize::from(state.n_live_shares);
        self.shares.get(live).unwrap_or(&[])
    }

    pub fn heap_bytes(&self) -> usize {
        let sites = self.sites.values().map(Vec::capacity);
        self.states.capacity() * size_of::<JobState>()
            + sites.sum::<usize>() * size_of::<u32>()
            + self.of_site.capacity() * size_of::<Share>()
            + self.shares.capacity() * size_of::<JobSite>()
            + self.lingering.capacity() * size_of::<u32>()
            + self.index.heap_bytes()
    }

    /// Writes all jobs. `live_of` returns the live bytes of a site.
    pub fn write(&self, out: &mut Encoder, live_of: impl Fn(u32) -> u64) {
        out.number(self.states.len() as u64);
        for (position, state) in self.states.iter().enumerate() {
            out.number(state.number.into());
            out.number(state.name.into());
            for amount in [state.total, state.live, state.peak] {
                out.amount(amount);
            }
            out.number(state.peak_time);
            out.byte(u8::from(state.has_ended));
            out.amount(state.end);
            let (at_peak, at_end) = self.sites_of(state);
            for shares in [at_peak, at_end] {
                out.number(shares.len() as u64);
                for share in shares {
                    out.number(share.stack.0.into());
                    out.number(share.bytes);
                }
            }
            let sites = self.sites.get(&(position as u32));
            let sites = sites.map_or(&[][..], Vec::as_slice);
            out.number(sites.len() as u64);
            for &site in sites {
                let share = self.of_site[site as usize];
                out.number(site.into());
                out.number(if share.stamp < state.peak_number {
                    live_of(site)
                } else {
                    share.bytes
                });
            }
        }
        out.number(self.lingering.len() as u64);
        for &site in &self.lingering {
            out.number(site.into());
            out.number(self.of_site[site as usize].job.into());
        }
    }

    pub fn read(input: &mut Decoder, n_stacks: usize, n_sites: usize) -> Option<JobStates> {
        let mut jobs = JobStates::default();
        for _ in 0..input.length(19)? {
            let number = input.number32()?;
            let position = jobs.states.len() as u32;
            if jobs.of_number(number, input.number32()?) != position {
                return None;
            }
            let (total, live, peak) = (input.amount()?, input.amount()?, input.amount()?);
            let peak_time = input.number()?;
            let has_ended = input.byte()? != 0;
            let at_end = input.amount()?;
            let first_share = jobs.shares.len() as u32;
            let mut counts = [0u8; 2];
            for count in &mut counts {
                let n_shares = input.length(2)?;
                if n_shares > MAX_SITES {
                    return None;
                }
                *count = n_shares as u8;
                for _ in 0..n_shares {
                    let stack = StackId(input.number32()?);
                    if stack.0 as usize >= n_stacks {
                        return None;
                    }
                    let bytes = input.number()?;
                    jobs.shares.push(JobSite { stack, bytes });
                }
            }
            for _ in 0..input.length(2)? {
                let site = input.site(n_sites)?;
                if jobs.is_known_site(site) {
                    return None;
                }
                jobs.add_site(site, position);
                jobs.of_site[site as usize].bytes = input.number()?;
            }
            let state = &mut jobs.states[position as usize];
            (state.total, state.live, state.peak) = (total, live, peak);
            state.peak_time = peak_time;
            state.has_ended = has_ended;
            state.end = at_end;
            state.first_share = first_share;
            [state.n_peak_shares, state.n_end_shares] = counts;
        }
        for _ in 0..input.length(2)? {
            let (site, job) = (input.site(n_sites)?, input.number32()?);
            if job as usize >= jobs.states.len() || jobs.is_known_site(site) {
                return None;
            }
            jobs.assign_site(site, job);
            jobs.lingering.push(site);
        }
        Some(jobs)
    }
}

impl JobState {
    /// Live when the job ended; `None` while it runs.
    pub fn at_end(&self) -> Option<Raw> {
        self.has_ended.then_some(self.end)
    }

    #[inline(always)]
    fn mark_peak(&mut self, time: u64) {
        if self.live.bytes > self.peak.bytes && !self.has_ended {
            self.peak = self.live;
            self.peak_time = time;
            self.peak_number = self.peak_number.wrapping_add(1);
        }
    }
}

fn keep_largest(shares: &mut Vec<JobSite>) {
    shares.sort_unstable_by_key(|share| std::cmp::Reverse((share.bytes, share.stack.0)));
    shares.truncate(MAX_SITES);
}

/// Adds bytes to the share of a stack. A job's sites of different threads and allocators may have the same stack.
fn add_share(shares: &mut Vec<JobSite>, stack: StackId, bytes: u64) {
    if bytes == 0 {
        return;
    }
    match shares.iter_mut().find(|share| share.stack == stack) {
        Some(share) => share.bytes = share.bytes.wrapping_add(bytes),
        None => shares.push(JobSite { stack, bytes }),
    }
}
