//! The result of a tally: all sums, in total and per site.

use super::job_table::JobTable;
use super::{Tally, Wanted};
use crate::amount::{Amount, Raw, Weigher};
use crate::jobs::JobKey;
use crate::lifetimes::Lifetimes;
use crate::live_blocks::LiveBlocks;
use crate::series::HeapSeries;
use crate::stacks::{StackId, Stacks};
use heaptide_capture::Allocator;

/// The largest block that Python's pymalloc takes from its arenas. It takes larger ones from libc.
pub const MAX_PYMALLOC_BYTES: u64 = 512;

/// All sums of a capture.
pub struct Sums {
    pub stacks: Stacks,
    pub sites: Vec<SiteSums>,
    pub total: Amount,
    /// Temporary blocks; empty unless requested.
    pub temporary: Amount,
    /// Live on the heap at the end.
    pub live: Amount,
    /// Bytes of live blocks of Python's allocators that are larger than 512 bytes: Python takes them from libc. `None` if
    /// no single live block is known, as in a capture that ends with sums.
    pub large_python_bytes: Option<u64>,
    /// Live at the peak of the heap. All sites determine the time of the peak, also unwanted ones.
    pub peak: Amount,
    /// Clock units of the peak.
    pub peak_time: u64,
    /// Bytes of all sites, also unwanted ones, at the peak and after the last event.
    pub whole_peak_bytes: u64,
    pub whole_end_bytes: u64,
    /// Largest amount that was mapped from files at one time.
    pub mapped_files: Amount,
    /// Each size and its number of recorded allocations, grouped by sampling distance, smallest size first.
    pub sizes: Vec<(u64, u64)>,
    /// How many of `sizes` belong to each sampling distance.
    size_weighers: Vec<(usize, Weigher)>,
    pub heap: HeapSeries,
    /// In [`super::TallyOptions::exact_spans`]: clock units, and the highest number of bytes from then until the next step.
    pub heap_steps: Vec<(u64, u64)>,
    /// Lifetimes of blocks, if bins of time were requested.
    pub lives: Lifetimes,
    /// Clock units of the last event.
    pub last_time: u64,
    /// Clock units of the checkpoint, before which events are missing; 0 without one.
    pub first_time: u64,
    /// Recorded allocations and frees.
    pub n_events: u64,
    pub n_frees: u64,
    /// Frees of blocks whose allocation is not in the capture.
    pub n_unknown_frees: u64,
    /// Allocations at the address of a live block: a free is missing.
    pub n_overlaps: u64,
    /// False if the capture contains only sums of the peak and the end: totals and sizes are then 0.
    pub has_totals: bool,
    /// Sums of each job, if [`super::JobDetail::Each`] or `Between` was requested.
    pub jobs: JobTable,
}

/// The sums of one site. File mappings have only a total: they are not on the heap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteSums {
    pub stack: StackId,
    pub stream: u32,
    pub allocator: Allocator,
    /// The job of the site; [`super::TallyOptions::jobs`] selects how jobs are distinguished.
    pub job: JobKey,
    pub total: Amount,
    pub live: Amount,
    pub peak: Amount,
    /// Temporary blocks.
    pub temporary: Amount,
    /// Total lifetime of all blocks of `total`, in clock units; blocks live at the end count until then. `None` if a
    /// checkpoint hides their allocation times.
    pub block_time: Option<u64>,
}

impl Sums {
    /// Returns each size and the number of allocations of that size, estimated if they were sampled.
    pub fn weighed_sizes(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        let mut rest = &self.sizes[..];
        self.size_weighers.iter().flat_map(move |&(n, weigher)| {
            let (these, others) = rest.split_at(n.min(rest.len()));
            rest = others;
            let weigh =
                move |&(size, n): &(u64, u64)| (size, n as f64 * weigher.weight(size as f64));
            these.iter().map(weigh)
        })
    }
}

impl Tally {
    /// Returns the sums after the last event.
    pub fn finish(self) -> Sums {
        self.finish_wanted(&mut |_, _, _, _| true)
    }

    /// Returns the stacks and the sums of each job, without the sums of sites, of which there may be very many.
    pub fn finish_jobs(mut self) -> (Stacks, JobTable) {
        self.blocks = LiveBlocks::new();
        let jobs = JobTable::new(&mut self);
        (self.stacks, jobs)
    }

    /// Returns the sums of the wanted sites. All sites determine the time of the peak.
    pub fn finish_wanted(mut self, wanted: &mut Wanted) -> Sums {
        let large_python_bytes = self.large_python_bytes();
        // Live blocks may be most of a report's memory, and are not needed any more.
        self.blocks = LiveBlocks::new();
        self.mark_peak();
        if self.n_events > 0 {
            self.note_heap_size();
        }
        let weigher = self.weigher;
        let jobs = JobTable::new(&mut self);
        let (mut total, mut live, mut peak) = (Raw::default(), Raw::default(), Raw::default());
        let mut all_temporary = Raw::default();
        let mut sites = Vec::new();
        let blocks = |amount| weigher.blocks(amount);
        let (sums, mut lives) = self.sites.finish(self.time, blocks);
        let knows_births = self.knows_births && self.has_totals;
        let mut number_of = vec![None; sums.len()];
        for (number, (key, site, temporary)) in sums.into_iter().enumerate() {
            let Some(allocator) = Allocator::from_number(key.allocator) else {
                continue;
            };
            // If recording ended before the first edge, nothing counts.
            if !self.has_begun || !wanted(&self.stacks, key.stack, key.stream, key.job) {
                continue;
            }
            let on_heap = |amount: Raw| match allocator {
                Allocator::MmapFile => Raw::default(),
                _ => amount,
            };
            number_of[number] = Some(sites.len() as u32);
            total += site.total;
            all_temporary += temporary;
            live += on_heap(site.live);
            peak += on_heap(site.peak);
            sites.push(SiteSums {
                stack: key.stack,
                stream: key.stream,
                allocator,
                job: key.job,
                total: weigher.finish(site.total),
                live: weigher.finish(on_heap(site.live)),
                peak: weigher.finish(on_heap(site.peak)),
                temporary: weigher.finish(temporary),
                block_time: knows_births.then_some(site.moment),
            });
        }
        let (sizes, size_weighers) = self.modes.finish_sizes(self.sizes, weigher);
        finish_lives(&mut lives, &number_of, &sites, weigher);
        Sums {
            stacks: self.stacks,
            sites,
            total: weigher.finish(total),
            temporary: weigher.finish(all_temporary),
            live: weigher.finish(live),
            large_python_bytes,
            peak: weigher.finish(peak),
            peak_time: self.peak_time,
            whole_peak_bytes: self.peak.bytes,
            whole_end_bytes: self.now.bytes,
            mapped_files: weigher.finish(self.files_highest),
            sizes,
            size_weighers,
            heap: self.series,
            heap_steps: self.steps.finish(self.now.bytes),
            lives,
            last_time: self.time,
            first_time: self.first_time,
            n_events: self.n_events,
            n_frees: self.n_frees,
            n_unknown_frees: self.n_unknown_frees,
            n_overlaps: self.n_overlaps,
            has_totals: self.has_totals,
            jobs,
        }
    }
}

impl Tally {
    fn large_python_bytes(&self) -> Option<u64> {
        // The last checkpoint of a bounded capture has no blocks.
        self.blocks.iter().next()?;
        let large = self.blocks.iter();
        let large = large.filter(|block| block.size > MAX_PYMALLOC_BYTES);
        let of_python = large.filter(|block| {
            let allocator = Allocator::from_number(self.sites.allocator(block.site));
            allocator.is_some_and(Allocator::is_pythons)
        });
        let bytes = of_python.map(|block| self.weigh_block(&block).bytes);
        Some(bytes.fold(0, u64::saturating_add))
    }
}

/// Renumbers the sites by their position among the wanted ones. File mappings are allocated, but never on the heap.
fn finish_lives(
    lives: &mut Lifetimes,
    number_of: &[Option<u32>],
    sites: &[SiteSums],
    weigher: Weigher,
) {
    lives
        .entries
        .retain(|life| number_of[life.site as usize].is_some());
    for life in &mut lives.entries {
        life.site = number_of[life.site as usize].unwrap_or(0);
        life.count = weigher.finish_count(life.count);
        if sites[life.site as usize].allocator == Allocator::MmapFile {
            life.death = life.birth;
        }
    }
    lives.merge();
}
