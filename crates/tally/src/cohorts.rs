//! The blocks of a site by the bin of time in which they were allocated.
//!
//! A live block stores only a number. To derive the time of allocation from it, a site gets a new number in each
//! bin. The blocks of one site and one bin are a cohort. When its last block is freed, its number is reused, so that
//! the number of cohorts grows with live blocks and sites, not with bins.

use crate::amount::Raw;
use crate::lifetimes::{Lifetime, Lifetimes};
use crate::sites::Site;

const NONE: u32 = u32::MAX;
/// The bin before the first edge.
const EARLIER: u16 = u16::MAX;

/// Sums of cohorts that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Folded {
    pub total: Raw,
    pub peak: Raw,
    /// Number of the peak that `peak` describes.
    stamp: u64,
    pub moment: u64,
}

pub(crate) struct Cohorts {
    /// The site of each cohort; `NONE` if the number is free.
    owners: Vec<u32>,
    births: Vec<u16>,
    /// Bytes and count that were live at the last edge or allocated since.
    before: Vec<(u64, u64)>,
    free: Vec<u32>,
    /// The cohort of each site in the current bin.
    current: Vec<u32>,
    pub folded: Vec<Folded>,
    pub lives: Lifetimes,
    /// The current bin; `EARLIER` before the first edge.
    bin: u16,
}

impl Cohorts {
    /// Starts with sites that were counted without bins so far: each becomes one cohort of the current bin.
    pub fn new(edges: Vec<u64>, now: u64, n_sites: usize) -> Cohorts {
        let n_passed = edges.iter().filter(|&&edge| edge <= now).count();
        let last = edges.len().saturating_sub(2);
        let bin = n_passed.checked_sub(1);
        let bin = bin.map_or(EARLIER, |bin| bin.min(last) as u16);
        let numbers: Vec<u32> = (0..n_sites as u32).collect();
        Cohorts {
            owners: numbers.clone(),
            births: vec![bin; n_sites],
            before: vec![(0, 0); n_sites],
            free: Vec::new(),
            current: numbers,
            folded: vec![Folded::default(); n_sites],
            lives: Lifetimes {
                edges,
                entries: Vec::new(),
            },
            bin,
        }
    }

    pub fn add_site(&mut self) {
        self.current.push(NONE);
        self.folded.push(Folded::default());
    }

    pub fn owner(&self, cohort: u32) -> u32 {
        self.owners[cohort as usize]
    }

    pub fn is_earlier(&self, cohort: u32) -> bool {
        self.births[cohort as usize] == EARLIER
    }

    /// Returns the number under which blocks of a site are counted now.
    pub fn of_site(&mut self, site: u32, sites: &mut Vec<Site>) -> u32 {
        let known = self.current[site as usize];
        if known != NONE {
            return known;
        }
        let cohort = self.free.pop().unwrap_or_else(|| {
            self.owners.push(NONE);
            self.births.push(0);
            self.before.push((0, 0));
            sites.push(Site::default());
            sites.len() as u32 - 1
        });
        let at = cohort as usize;
        sites[at] = Site::default();
        self.owners[at] = site;
        self.births[at] = self.bin;
        self.before[at] = (0, 0);
        self.current[site as usize] = cohort;
        cohort
    }

    /// Returns the next edge.
    pub fn next_edge(&self) -> Option<u64> {
        let next = if self.bin == EARLIER { 0 } else { self.bin + 1 };
        self.lives.edges.get(usize::from(next)).copied()
    }

    /// Passes the first edge. Everything after it counts; earlier blocks count only if they are live at the peak.
    pub fn begin(&mut self, sites: &mut [Site]) {
        self.bin = 0;
        for site in sites.iter_mut() {
            site.total = Raw::default();
        }
        for folded in &mut self.folded {
            folded.total = Raw::default();
            folded.moment = 0;
        }
        self.current.fill(NONE);
    }

    /// Ends the current bin. `is_pinned` selects cohorts with a free that may still be undone.
    pub fn pass_edge(
        &mut self,
        sites: &mut [Site],
        peak_number: u64,
        is_pinned: impl Fn(u32) -> bool,
    ) {
        for cohort in 0..sites.len() as u32 {
            self.settle(cohort, &mut sites[cohort as usize]);
            let site = &mut sites[cohort as usize];
            let owner = self.owner(cohort);
            if owner != NONE && site.live.count == 0 && !is_pinned(cohort) {
                self.fold(cohort, site, peak_number);
                self.owners[cohort as usize] = NONE;
                self.free.push(cohort);
            }
        }
        self.current.fill(NONE);
        self.bin += 1;
        // Only after an even number of bins, so that whole bins are merged.
        if self.bin % 2 == 0 && self.lives.is_too_long() {
            self.lives.halve();
            self.bin /= 2;
            for birth in self.births.iter_mut().filter(|birth| **birth != EARLIER) {
                *birth /= 2;
            }
        }
    }

    /// Records the frees of the current bin.
    fn settle(&mut self, cohort: u32, site: &mut Site) {
        let at = cohort as usize;
        let (owner, birth) = (self.owners[at], self.births[at]);
        if owner == NONE || birth == EARLIER {
            return;
        }
        let before = &mut self.before[at];
        before.0 = before.0.wrapping_add(site.total.bytes);
        before.1 = before.1.wrapping_add(site.total.count);
        self.folded[owner as usize].total += site.total;
        site.total = Raw::default();
        self.lives.add(Lifetime {
            site: owner,
            birth,
            death: self.bin,
            bytes: before.0.wrapping_sub(site.live.bytes) as i64,
            count: before.1.wrapping_sub(site.live.count) as i64,
        });
        *before = (site.live.bytes, site.live.count);
    }

    /// Adds the sums of a cohort to the sums of its site. The cohort's share of the peak is final.
    fn fold(&mut self, cohort: u32, site: &Site, peak_number: u64) {
        let owner = self.owner(cohort) as usize;
        let folded = &mut self.folded[owner];
        if folded.stamp < peak_number {
            folded.peak = Raw::default();
            folded.stamp = peak_number;
        }
        folded.peak += site.peak_at(peak_number);
        if self.births[cohort as usize] != EARLIER {
            folded.moment = folded.moment.wrapping_add(site.moment);
        }
    }

    /// Ends the last bin. Returns for each site the sums of all its cohorts.
    pub fn finish(
        &mut self,
        sites: &mut [Site],
        peak_number: u64,
        end_time: u64,
        blocks: impl Fn(Raw) -> u64,
    ) -> Vec<Site> {
        let n_bins = self.lives.n_bins() as u16;
        let mut live = vec![Raw::default(); self.folded.len()];
        for cohort in 0..sites.len() as u32 {
            self.settle(cohort, &mut sites[cohort as usize]);
            let site = &mut sites[cohort as usize];
            let (owner, birth) = (self.owner(cohort), self.births[cohort as usize]);
            if owner == NONE {
                continue;
            }
            if birth != EARLIER {
                live[owner as usize] += site.live;
                let alive_since = end_time.wrapping_mul(blocks(site.live));
                site.moment = site.moment.wrapping_add(alive_since);
                self.lives.add(Lifetime {
                    site: owner,
                    birth,
                    death: n_bins,
                    bytes: site.live.bytes as i64,
                    count: site.live.count as i64,
                });
            }
            self.fold(cohort, site, peak_number);
        }
        self.lives.merge();
        let finished = self.folded.iter().zip(live);
        let finished = finished.map(|(folded, live)| Site {
            total: folded.total,
            live,
            peak: if folded.stamp == peak_number {
                folded.peak
            } else {
                Raw::default()
            },
            moment: folded.moment,
            ..Site::default()
        });
        finished.collect()
    }

    pub fn heap_bytes(&self) -> usize {
        self.owners.capacity() * (size_of::<u32>() + size_of::<u16>() + size_of::<(u64, u64)>())
            + self.free.capacity() * size_of::<u32>()
            + self.current.capacity() * size_of::<u32>()
            + self.folded.capacity() * size_of::<Folded>()
            + self.lives.heap_bytes()
    }
}
