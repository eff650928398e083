//! Sums per site: a call stack, in a thread, with an allocator, for a job.
//!
//! Reports need each site's share of the heap's peak. Copying all sites at every new peak would be far too slow, so a
//! site's share is copied when the site first changes after a peak. Peaks are numbered: a site whose stamp is smaller than
//! the latest number has not changed since that peak.
//!
//! With bins of time, a site's blocks are counted under a separate number in each bin: see `cohorts`.

use crate::amount::Raw;
use crate::cohorts::Cohorts;
use crate::encoding::{Decoder, Encoder};
use crate::index::{Index, hash};
use crate::jobs::JobKey;
use crate::lifetimes::Lifetimes;
use crate::stacks::StackId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SiteKey {
    pub stack: StackId,
    pub stream: u32,
    pub allocator: u8,
    pub job: JobKey,
    /// Index in the capture's list of sampling distances; 0 unless the mode has changed.
    pub mean: u16,
}

impl SiteKey {
    /// The key of a number that is not in use. No stack has the number `u32::MAX`, and no allocator is 0.
    const UNUSED: SiteKey = SiteKey {
        stack: StackId(u32::MAX),
        stream: 0,
        allocator: 0,
        job: JobKey::NONE,
        mean: 0,
    };
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Site {
    pub total: Raw,
    pub live: Raw,
    pub peak: Raw,
    /// Number of the peak that `peak` describes.
    pub stamp: u64,
    /// Sum of the times of all frees minus the times of all allocations. With the end time for live blocks, this is the
    /// total lifetime of all blocks.
    pub moment: u64,
}

impl Site {
    /// Its share of the latest peak.
    pub fn peak_at(&self, peak_number: u64) -> Raw {
        if self.stamp < peak_number {
            self.live
        } else {
            self.peak
        }
    }
}

#[derive(Default)]
pub(crate) struct Sites {
    keys: Vec<SiteKey>,
    /// Indexed by the number under which blocks are counted: the number of the site, or of its cohort.
    sites: Vec<Site>,
    index: Index,
    /// Number of the latest peak.
    peak_number: u64,
    cohorts: Option<Box<Cohorts>>,
    /// By site; sites beyond its end have no temporary blocks.
    temporary: Vec<Raw>,
    /// Numbers that are not in use: those of folded sites.
    unused: Vec<u32>,
}

impl Sites {
    /// Returns the number under which blocks of this site are counted now.
    pub fn intern(&mut self, key: SiteKey) -> u32 {
        let site = self.number_of(key);
        match &mut self.cohorts {
            Some(cohorts) => cohorts.of_site(site, &mut self.sites),
            None => site,
        }
    }

    fn number_of(&mut self, key: SiteKey) -> u32 {
        let hash = hash_of(&key);
        let keys = &self.keys;
        if let Some(at) = self.index.find(hash, |at| keys[at as usize] == key) {
            return at;
        }
        if let Some(at) = self.unused.pop() {
            self.keys[at as usize] = key;
            self.sites[at as usize] = Site::default();
            self.add_to_index(hash, at);
            return at;
        }
        let at = keys.len() as u32;
        self.keys.push(key);
        self.add_to_index(hash, at);
        match &mut self.cohorts {
            Some(cohorts) => cohorts.add_site(),
            None => self.sites.push(Site::default()),
        }
        at
    }

    fn add_to_index(&mut self, hash: u64, at: u32) {
        let keys = &self.keys;
        let hash_at = |at: u32| hash_of(&keys[at as usize]);
        // Entries of folded sites stay in the table. They are removed before the table grows: otherwise all old entries of
        // a reused number would move to neighbouring slots, and searches would become slow.
        let n_used = keys.len() - self.unused.len();
        if self.index.is_full() && self.index.len() >= n_used {
            self.index = Index::with_room(2 * n_used);
            for (at, key) in (0..).zip(keys) {
                if *key != SiteKey::UNUSED {
                    self.index.insert(hash_of(key), at, hash_at);
                }
            }
            return;
        }
        self.index.insert(hash, at, hash_at);
    }

    pub fn key_and_sums(&self, site: u32) -> (SiteKey, Site) {
        (self.keys[site as usize], self.sites[site as usize])
    }

    pub fn stack_and_sums(&self, site: u32) -> (StackId, Site) {
        (self.keys[site as usize].stack, self.sites[site as usize])
    }

    /// Adds the sums of a site without live blocks to another one, and makes its number free. Must not be called with bins
    /// of time.
    pub fn fold(&mut self, site: u32, into: SiteKey) {
        let from = self.sites[site as usize];
        let share = from.peak_at(self.peak_number);
        let target = self.number_of(into);
        let sums = self.change(target);
        sums.total += from.total;
        sums.moment = sums.moment.wrapping_add(from.moment);
        sums.peak += share;
        self.keys[site as usize] = SiteKey::UNUSED;
        self.unused.push(site);
    }

    /// Counts blocks separately by the bin of time in which they are allocated.
    pub fn divide(&mut self, edges: Vec<u64>, now: u64) {
        let cohorts = Cohorts::new(edges, now, self.keys.len());
        self.cohorts = Some(Box::new(cohorts));
    }

    /// Returns the next edge between bins.
    pub fn next_edge(&self) -> Option<u64> {
        self.cohorts.as_ref()?.next_edge()
    }

    /// Passes the first edge.
    pub fn begin(&mut self) {
        if let Some(cohorts) = &mut self.cohorts {
            cohorts.begin(&mut self.sites);
        }
        self.temporary.clear();
    }

    /// Passes another edge.
    pub fn pass_edge(&mut self, is_pinned: impl Fn(u32) -> bool) {
        if let Some(cohorts) = &mut self.cohorts {
            cohorts.pass_edge(&mut self.sites, self.peak_number, is_pinned);
        }
    }

    /// Counts a temporary block that the thread of `stream` freed. Ignores blocks that another thread allocated: such a
    /// block may have the address of an earlier block of this thread.
    pub fn add_temporary(&mut self, number: u32, stream: u32, amount: Raw) {
        if !self.counts(number, stream) {
            return;
        }
        let site = self.owner(number);
        if self.temporary.len() <= site {
            self.temporary.resize(self.keys.len(), Raw::default());
        }
        self.temporary[site] += amount;
    }

    /// Undoes the free of a temporary block.
    pub fn take_temporary(&mut self, number: u32, stream: u32, amount: Raw) {
        if self.counts(number, stream) {
            let site = self.owner(number);
            if let Some(sum) = self.temporary.get_mut(site) {
                *sum -= amount;
            }
        }
    }

    /// Returns false for blocks allocated before the first edge or in another thread.
    fn counts(&self, number: u32, stream: u32) -> bool {
        let cohorts = self.cohorts.as_ref();
        let is_earlier = cohorts.is_some_and(|cohorts| cohorts.is_earlier(number));
        !is_earlier && self.keys[self.owner(number)].stream == stream
    }

    fn owner(&self, number: u32) -> usize {
        match &self.cohorts {
            Some(cohorts) => cohorts.owner(number) as usize,
            None => number as usize,
        }
    }

    /// Marks the current moment as the latest peak.
    #[inline(always)]
    pub fn mark_peak(&mut self) {
        self.peak_number += 1;
    }

    /// Returns a site for changing it. Saves its share of the latest peak first.
    #[inline(always)]
    pub fn change(&mut self, site: u32) -> &mut Site {
        let site = &mut self.sites[site as usize];
        if site.stamp < self.peak_number {
            site.peak = site.live;
            site.stamp = self.peak_number;
        }
        site
    }

    pub fn allocator(&self, number: u32) -> u8 {
        self.keys[self.owner(number)].allocator
    }

    pub fn mean(&self, number: u32) -> u16 {
        self.keys[self.owner(number)].mean
    }

    pub fn stack(&self, number: u32) -> StackId {
        self.keys[self.owner(number)].stack
    }

    /// Makes the counts of all sums fixed-point numbers. Bins of time must not have begun.
    pub fn make_fixed_point(&mut self) {
        for site in &mut self.sites {
            for amount in [&mut site.total, &mut site.live, &mut site.peak] {
                amount.make_fixed_point();
            }
        }
        self.temporary.iter_mut().for_each(Raw::make_fixed_point);
    }

    /// Returns all sites and their live amounts. Must not be called with bins of time.
    pub fn live(&self) -> impl Iterator<Item = (SiteKey, Raw)> + '_ {
        let sites = self.keys.iter().zip(&self.sites);
        sites.map(|(&key, site)| (key, site.live))
    }

    /// Returns all sites with their final share of the latest peak and their temporary amounts, and the lifetimes of their
    /// blocks by the same numbers. `blocks` converts an amount to a number of blocks.
    pub fn finish(
        mut self,
        end_time: u64,
        blocks: impl Fn(Raw) -> u64,
    ) -> (Vec<(SiteKey, Site, Raw)>, Lifetimes) {
        let mut lives = Lifetimes::default();
        match &mut self.cohorts {
            Some(cohorts) => {
                self.sites = cohorts.finish(&mut self.sites, self.peak_number, end_time, blocks);
                lives = std::mem::take(&mut cohorts.lives);
            }
            None => {
                for site in &mut self.sites {
                    site.peak = site.peak_at(self.peak_number);
                    let end_times = end_time.wrapping_mul(blocks(site.live));
                    site.moment = site.moment.wrapping_add(end_times);
                }
            }
        }
        self.temporary.resize(self.keys.len(), Raw::default());
        let sums = self.sites.into_iter().zip(self.temporary);
        let keyed = self.keys.into_iter().zip(sums);
        let keyed = keyed.map(|(key, (site, temporary))| (key, site, temporary));
        (keyed.collect(), lives)
    }

    pub fn len(&self) -> usize {
        self.sites.len()
    }

    /// Whether a site belongs to a job, or did.
    pub fn has_jobs(&self) -> bool {
        !self.unused.is_empty() || self.keys.iter().any(|key| key.job != JobKey::NONE)
    }

    /// Writes the sites, with the job and the sampling distance of each if requested.
    pub fn write(&self, out: &mut Encoder, with_jobs: bool, with_means: bool) {
        out.number(self.sites.len() as u64);
        for (key, site) in self.keys.iter().zip(&self.sites) {
            let is_unused = *key == SiteKey::UNUSED;
            out.number(if is_unused { 0 } else { key.stack.0.into() });
            out.number(key.stream.into());
            out.byte(key.allocator);
            if with_jobs {
                out.number(key.job.0.into());
            }
            if with_means {
                out.number(key.mean.into());
            }
            out.amount(site.total);
            out.amount(site.live);
            let is_settled = site.stamp == self.peak_number;
            out.amount(if is_settled { site.peak } else { site.live });
        }
    }

    /// Reads sites. `n_means` is 0 if they were written without sampling distances.
    pub fn read(
        input: &mut Decoder,
        n_stacks: usize,
        with_jobs: bool,
        n_means: usize,
    ) -> Option<Sites> {
        let n_sites = input.length(12)?;
        let mut sites = Sites::default();
        let mut unused = Vec::new();
        sites.keys.reserve_exact(n_sites);
        sites.sites.reserve_exact(n_sites);
        for _ in 0..n_sites {
            let key = SiteKey {
                stack: StackId(input.number32()?),
                stream: input.number32()?,
                allocator: input.byte()?,
                job: JobKey(if with_jobs { input.number32()? } else { 0 }),
                mean: match n_means {
                    0 => 0,
                    _ => u16::try_from(input.number()?).ok()?,
                },
            };
            if usize::from(key.mean) >= n_means.max(1) {
                return None;
            }
            let number = sites.sites.len();
            if with_jobs && key.allocator == 0 {
                for _ in 0..3 {
                    input.amount()?;
                }
                sites.keys.push(SiteKey::UNUSED);
                sites.sites.push(Site::default());
                unused.push(number as u32);
                continue;
            }
            if key.stack.0 as usize >= n_stacks || sites.intern(key) as usize != number {
                return None;
            }
            sites.sites[number] = Site {
                total: input.amount()?,
                live: input.amount()?,
                peak: input.amount()?,
                ..Site::default()
            };
        }
        // Set only now: while sites are read, each gets the next number.
        sites.unused = unused;
        Some(sites)
    }

    pub fn heap_bytes(&self) -> usize {
        self.keys.capacity() * size_of::<SiteKey>()
            + self.sites.capacity() * size_of::<Site>()
            + self.temporary.capacity() * size_of::<Raw>()
            + self.unused.capacity() * size_of::<u32>()
            + self.index.heap_bytes()
            + self
                .cohorts
                .as_ref()
                .map_or(0, |cohorts| cohorts.heap_bytes())
    }
}

fn hash_of(key: &SiteKey) -> u64 {
    hash(u64::from(key.stack.0) << 32 | u64::from(key.stream))
        ^ hash(u64::from(key.job.0) << 8 | u64::from(key.allocator))
        ^ u64::from(key.mean) << 48
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn key(stack: u32, job: JobKey) -> SiteKey {
        SiteKey {
            stack: StackId(stack),
            stream: 1,
            allocator: 1,
            job,
            mean: 0,
        }
    }

    #[test]
    fn searches_stay_short_although_numbers_of_folded_sites_are_used_again() {
        let mut sites = Sites::default();
        const N_JOBS: u32 = 20_000;
        for number in 1..=N_JOBS {
            let job = JobKey::of_job(number);
            let freed = sites.intern(key(1, job));
            sites.intern(key(2, job));
            sites.fold(freed, key(1, JobKey::of_name(1)));
        }
        let n_probes = Cell::new(0u64);
        for number in 1..=N_JOBS {
            let wanted = key(2, JobKey::of_job(number));
            let position = sites.index.find(hash_of(&wanted), |at| {
                n_probes.set(n_probes.get() + 1);
                sites.keys[at as usize] == wanted
            });
            assert!(position.is_some());
        }
        let mean = n_probes.get() / u64::from(N_JOBS);
        assert!(mean < 8, "{mean} probes per search");
    }
}
