//! Sums per site: a call stack, in a thread, with an allocator.
//!
//! The peak of the whole heap is a moment, and each site's share of it is wanted. Copying all sites at every new peak
//! would cost far too much, so the copy is made site by site, when a site first changes after the moment: peaks are
//! numbered, and a site whose stamp is older than the last number still stands as it stood at that peak.

use super::amount::Raw;
use super::checkpoint::{Decoder, Encoder};
use super::index::{Index, hash};
use super::stacks::StackId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SiteKey {
    pub stack: StackId,
    pub stream: u32,
    pub allocator: u8,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Site {
    pub total: Raw,
    pub live: Raw,
    pub peak: Raw,
    /// Number of the peak that `peak` describes.
    stamp: u64,
}

#[derive(Default)]
pub(super) struct Sites {
    keys: Vec<SiteKey>,
    sites: Vec<Site>,
    index: Index,
    /// Number of the latest peak.
    peak_number: u64,
}

impl Sites {
    pub fn intern(&mut self, key: SiteKey) -> u32 {
        let hash = hash_of(&key);
        let keys = &self.keys;
        if let Some(at) = self.index.find(hash, |at| keys[at as usize] == key) {
            return at;
        }
        let at = keys.len() as u32;
        self.index
            .insert(hash, at, |at| hash_of(&keys[at as usize]));
        self.keys.push(key);
        self.sites.push(Site::default());
        at
    }

    /// The present moment is a new peak.
    #[inline(always)]
    pub fn mark_peak(&mut self) {
        self.peak_number += 1;
    }

    /// A site, about to be changed.
    #[inline(always)]
    pub fn change(&mut self, site: u32) -> &mut Site {
        let site = &mut self.sites[site as usize];
        if site.stamp < self.peak_number {
            site.peak = site.live;
            site.stamp = self.peak_number;
        }
        site
    }

    pub fn allocator(&self, site: u32) -> u8 {
        self.keys[site as usize].allocator
    }

    /// All sites with their share of the latest peak settled.
    pub fn finish(&mut self) -> impl Iterator<Item = (SiteKey, Site)> + '_ {
        for at in 0..self.sites.len() as u32 {
            self.change(at);
        }
        self.keys.iter().copied().zip(self.sites.iter().copied())
    }

    pub fn len(&self) -> usize {
        self.sites.len()
    }

    pub fn write(&self, out: &mut Encoder) {
        out.number(self.sites.len() as u64);
        for (key, site) in self.keys.iter().zip(&self.sites) {
            out.number(key.stack.0.into());
            out.number(key.stream.into());
            out.byte(key.allocator);
            out.amount(site.total);
            out.amount(site.live);
            let is_settled = site.stamp == self.peak_number;
            out.amount(if is_settled { site.peak } else { site.live });
        }
    }

    pub fn read(input: &mut Decoder, n_stacks: usize) -> Option<Sites> {
        let n_sites = input.length(12)?;
        let mut sites = Sites::default();
        sites.keys.reserve_exact(n_sites);
        sites.sites.reserve_exact(n_sites);
        for _ in 0..n_sites {
            let key = SiteKey {
                stack: StackId(input.number32()?),
                stream: input.number32()?,
                allocator: input.byte()?,
            };
            let number = sites.sites.len();
            if key.stack.0 as usize >= n_stacks || sites.intern(key) as usize != number {
                return None;
            }
            sites.sites[number] = Site {
                total: input.amount()?,
                live: input.amount()?,
                peak: input.amount()?,
                stamp: 0,
            };
        }
        Some(sites)
    }

    pub fn heap_bytes(&self) -> usize {
        self.keys.capacity() * size_of::<SiteKey>()
            + self.sites.capacity() * size_of::<Site>()
            + self.index.heap_bytes()
    }
}

fn hash_of(key: &SiteKey) -> u64 {
    hash(u64::from(key.stack.0) << 32 | u64::from(key.stream)) ^ hash(u64::from(key.allocator))
}
