//! The state of all sums while events are applied.
//!
//! A [`Tally`] takes events in the order in which they happened and does not keep them: its memory grows with live blocks
//! and distinct call stacks, not with events. In reading order: `amount` weighs a recorded block; `live_blocks` and
//! `ranges` hold live blocks and mappings; `step` applies one event to them. `sites` holds the sums and finds the exact
//! peak; `cohorts` and `lifetimes` record the times of allocations and frees; `sums` is the result.
//!
//! File mappings are address space whose pages belong to the page cache. They are therefore in the totals, but neither in
//! the peak nor in the heap over time.

mod checkpoint;
#[cfg(test)]
mod checkpoint_tests;
mod external_sums;
mod job_table;
#[cfg(test)]
mod job_tests;
mod jobs;
mod modes;
#[cfg(test)]
mod modes_tests;
#[cfg(test)]
mod options_tests;
mod snapshot;
mod step;
mod sums;
#[cfg(test)]
mod tests;

use std::hint::black_box;
use std::ops::Range;

use heaptide_capture::{Allocator, Capture, Damage, DecodedChunk, Op, OpAction, TimeMark};

use crate::amount::{Raw, Weigher};
use crate::heap_steps::HeapSteps;
use crate::jobs::{JobKey, JobStates};
use crate::live_blocks::LiveBlocks;
use crate::ranges::{self, Ranges};
use crate::series::HeapSeries;
use crate::sites::{SiteKey, Sites};
use crate::sizes::SizeCounts;
use crate::stacks::{StackId, Stacks};
use crate::threads::{LastFree, Thread, Threads};

pub use job_table::{JobTable, JobTotals};
pub use jobs::JobDetail;
use modes::Modes;
pub use snapshot::{LiveSite, Snapshot};
pub use sums::{MAX_PYMALLOC_BYTES, SiteSums, Sums};

/// Chooses sites by their stack, the stream of their thread, and their job.
pub type Wanted<'a> = dyn FnMut(&Stacks, StackId, u32, JobKey) -> bool + 'a;

/// Options of a tally: results in addition to sums and peak.
#[derive(Clone, Debug, Default)]
pub struct TallyOptions {
    /// Clock units, ascending: edges between bins of time. Blocks are counted separately by the bins of their
    /// allocation and their free. Only events between the first and the last edge count; blocks live at the first edge
    /// are on the heap and part of its peak. Without edges, the whole time counts, undivided.
    pub edges: Vec<u64>,
    /// A block is temporary if its thread frees it after at most this many other allocations. `None` disables the count.
    pub temporary: Option<u32>,
    pub stacks: StackDetail,
    /// Clock units, ascending and disjoint: spans in which the heap is recorded clock unit by clock unit.
    pub exact_spans: Vec<Range<u64>>,
    pub jobs: JobDetail,
    /// Expected number of jobs. A table that grows step by step would leave gaps in the heap as large as the table.
    pub n_jobs: usize,
}

/// The frames by which a tally distinguishes sites. Fewer frames are cheaper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackDetail {
    #[default]
    Whole,
    /// Stacks with the same innermost frame count as one.
    Innermost,
    /// All stacks count as one.
    Nothing,
}

/// Operations that are prefetched together, so that their cache misses overlap.
const BATCH: usize = 16;

/// The state of all sums while events are applied.
pub struct Tally {
    /// For the mode of the current operations.
    weigher: Weigher,
    modes: Modes,
    stacks: Stacks,
    sites: Sites,
    blocks: LiveBlocks,
    ranges: Ranges,
    sizes: SizeCounts,
    threads: Threads,
    /// Live on the heap.
    now: Raw,
    peak: Raw,
    /// Clock units of `peak`.
    peak_time: u64,
    files_now: Raw,
    files_highest: Raw,
    series: HeapSeries,
    steps: HeapSteps,
    time: u64,
    /// Clock units of the checkpoint with which the tally began; 0 without one.
    first_time: u64,
    /// Size of the heap when the clock last advanced, and its maximum since.
    bytes_before: u64,
    bytes_highest: u64,
    n_events: u64,
    n_frees: u64,
    n_unknown_frees: u64,
    n_overlaps: u64,
    /// False if the file contained only sums of the peak and the end.
    has_totals: bool,
    /// Number of allocations remembered per thread; 0 if temporary blocks are not counted.
    n_recent: usize,
    stack_detail: StackDetail,
    /// Clock units at which the next bin of time begins.
    next_edge: Option<u64>,
    /// Number of edges passed.
    epoch: u16,
    /// Whether the first edge is passed; nothing is counted before it.
    has_begun: bool,
    /// Whether the last edge is passed.
    is_over: bool,
    /// Whether the allocation times of all live blocks are known. False after reading a checkpoint with events.
    knows_births: bool,
    job_detail: JobDetail,
    /// The sums of each job, if wanted.
    jobs: Option<Box<JobStates>>,
}

impl Tally {
    /// Takes `sample_bytes` from the capture's header: 0 if every allocation was recorded.
    pub fn new(sample_bytes: u64) -> Tally {
        Tally {
            weigher: Weigher::new(sample_bytes),
            modes: Modes::default(),
            stacks: Stacks::default(),
            sites: Sites::default(),
            blocks: LiveBlocks::new(),
            ranges: Ranges::default(),
            sizes: SizeCounts::new(),
            threads: Threads::default(),
            now: Raw::default(),
            peak: Raw::default(),
            peak_time: 0,
            files_now: Raw::default(),
            files_highest: Raw::default(),
            series: HeapSeries::default(),
            steps: HeapSteps::default(),
            time: 0,
            first_time: 0,
            bytes_before: 0,
            bytes_highest: 0,
            n_events: 0,
            n_frees: 0,
            n_unknown_frees: 0,
            n_overlaps: 0,
            has_totals: true,
            n_recent: 0,
            stack_detail: StackDetail::Whole,
            next_edge: None,
            epoch: 0,
            has_begun: true,
            is_over: false,
            knows_births: true,
            job_detail: JobDetail::Nothing,
            jobs: None,
        }
    }

    /// Returns the tally to which the events of a capture are added: the tally of its checkpoint, the sums of a foreign
    /// file without events, or an empty tally.
    pub fn for_capture(capture: &Capture) -> Result<Tally, Damage> {
        if let Some(foreign) = capture.foreign_events() {
            let mut sums = Tally::without_totals();
            if foreign.sums(&mut sums) {
                return Ok(sums);
            }
        }
        let Some(checkpoint) = &capture.checkpoint else {
            return Ok(Tally::empty_for(capture));
        };
        let tally = Tally::from_bytes(&capture.read_checkpoint()?);
        let mut tally = tally.ok_or_else(|| checkpoint.wrong_record())?;
        tally.take_modes_of(capture);
        Ok(tally)
    }

    /// Sets the options. Call it once, before the first event.
    pub fn configure(&mut self, options: TallyOptions) {
        self.n_recent = options.temporary.map_or(0, |n| n as usize + 1);
        if !(self.modes.are_mixed() && options.stacks == StackDetail::Nothing) {
            self.stack_detail = options.stacks;
        }
        self.steps = HeapSteps::new(options.exact_spans);
        self.first_time = self.time;
        self.job_detail = options.jobs;
        if self.job_detail.has_sums() {
            self.jobs.get_or_insert_default().reserve(options.n_jobs);
            return;
        }
        self.jobs = None;
        // Sums of a file without events have no times.
        if options.edges.is_empty() || !self.has_totals {
            return;
        }
        self.has_begun = options
            .edges
            .first()
            .is_some_and(|&first| first <= self.time);
        self.sites.divide(options.edges, self.time);
        self.next_edge = self.sites.next_edge();
        self.is_over = self.next_edge.is_none();
    }

    /// Takes some operations of a chunk. Chunks of several threads may alternate; those of one thread are in order.
    pub fn apply(&mut self, chunk: &DecodedChunk, ops: Range<usize>) {
        self.apply_wanted(chunk, ops, &mut |_, _, _, _| true);
    }

    /// Does the same as [`Tally::apply`], but counts sizes of wanted sites only. The peak depends on all sites;
    /// [`Tally::finish_wanted`] selects the wanted ones.
    pub fn apply_wanted(&mut self, chunk: &DecodedChunk, ops: Range<usize>, wanted: &mut Wanted) {
        if self.is_over || chunk.ops.get(ops.clone()).is_none_or(<[Op]>::is_empty) {
            return;
        }
        if !self.is_in_mode(chunk.head.generation) {
            self.enter_mode(chunk.head.generation);
        }
        let slot = self.threads.slot(chunk.head.stream);
        let mut thread = self.threads.take(slot);
        self.threads.map_chunk(&mut thread, chunk);
        // Operations between two time marks have the same time.
        let mut at = ops.start;
        let passed = |op: usize| move |mark: &TimeMark| mark.first_op as usize <= op;
        let mut next_mark = chunk.times.partition_point(passed(at));
        if let Some(mark) = next_mark.checked_sub(1).and_then(|n| chunk.times.get(n)) {
            self.set_time(mark.time, &thread);
        }
        let mut next_job = self.enter_job(chunk, &mut thread, at);
        while at < ops.end && !self.is_over {
            let mark = chunk.times.get(next_mark);
            let mut until =
                mark.map_or(ops.end, |mark| (mark.first_op as usize).clamp(at, ops.end));
            // Operations between two job marks have the same job.
            let job = chunk.jobs.get(next_job).map(|job| job.first_op as usize);
            if let Some(first_op) = job.filter(|&first_op| first_op < until) {
                until = first_op.max(at);
                self.run(chunk, at..until, &mut thread, wanted);
                at = until;
                next_job = self.enter_job(chunk, &mut thread, at);
                continue;
            }
            self.run(chunk, at..until, &mut thread, wanted);
            at = until;
            if let Some(mark) = mark.filter(|_| at < ops.end) {
                self.set_time(mark.time, &thread);
                next_mark += 1;
            }
        }
        if ops.end == chunk.ops.len() && chunk.is_last {
            self.threads.forget_chunk(&mut thread);
        }
        self.threads.put_back(slot, thread);
    }

    fn set_time(&mut self, time: u64, thread: &Thread) {
        if time > self.time {
            // Before the first event the heap has no size.
            if self.n_events > 0 {
                self.note_heap_size();
            }
            while let Some(edge) = self.next_edge.filter(|&edge| edge <= time) {
                self.pass_edge(edge, thread);
            }
            if !self.is_over {
                self.time = time;
            }
        }
    }

    /// Passes the edges up to this time, although no event follows.
    pub fn advance(&mut self, time: u64) {
        self.set_time(time, &Thread::default());
    }

    /// Returns whether the last edge is passed, so that no further event counts.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    #[cold]
    fn pass_edge(&mut self, edge: u64, thread: &Thread) {
        if self.has_begun {
            let others = self.threads.with_undoable_frees();
            let mut pinned: Vec<u32> = others.chain(thread.last_free.numbers()).collect();
            pinned.sort_unstable();
            self.sites
                .pass_edge(|number| pinned.binary_search(&number).is_ok());
        } else {
            self.has_begun = true;
            self.sites.begin();
            self.sizes = SizeCounts::new();
            self.modes.forget_sizes();
            // The search for the peak begins again here.
            self.peak = self.now;
            self.peak_time = edge;
            self.sites.mark_peak();
        }
        self.epoch += 1;
        self.next_edge = self.sites.next_edge();
        self.is_over = self.next_edge.is_none();
        self.time = edge;
    }

    fn note_heap_size(&mut self) {
        let (before, highest) = (self.bytes_before, self.bytes_highest);
        self.series.add(self.time, before, highest);
        if self.steps.is_wanted() {
            self.steps.add(self.time, before, highest, self.now.bytes);
        }
        self.bytes_before = self.now.bytes;
        self.bytes_highest = self.now.bytes;
    }

    fn run(
        &mut self,
        chunk: &DecodedChunk,
        ops: Range<usize>,
        thread: &mut Thread,
        wanted: &mut Wanted,
    ) {
        let ops = &chunk.ops[ops];
        self.n_events += ops.len() as u64;
        for batch in ops.chunks(BATCH) {
            if !self.blocks.is_small() {
                let touch = |sum: u64, op: &Op| sum ^ self.blocks.touch(op.address);
                black_box(batch.iter().fold(0, touch));
            }
            for op in batch {
                match op.action {
                    OpAction::Alloc => {
                        let op = &self.with_real_allocator(thread, *op);
                        let (site, is_wanted) = self.site_of(chunk, thread, op, wanted);
                        if is_wanted {
                            self.sizes.count(op.size);
                        }
                        if self.n_recent > 0 {
                            thread.recent.push(op.address, self.n_recent);
                        }
                        self.alloc(site, op.allocator, op.address, op.size);
                    }
                    OpAction::Free => self.free(thread, op.address),
                    OpAction::FreeRange => self.free_range(thread, op.address, op.size),
                    OpAction::Unfree => self.unfree(thread),
                    OpAction::JobEnd => {
                        self.n_events -= 1;
                        self.end_job(op.address);
                        if thread.job.job().map(u64::from) == Some(op.address) {
                            thread.job = JobKey::NONE;
                        }
                    }
                }
            }
        }
    }

    /// Returns the operation with its real allocator. A mapping that the kernel resized or moved is a file mapping if the
    /// thread has just unmapped a file mapping.
    #[inline(always)]
    fn with_real_allocator(&self, thread: &Thread, mut op: Op) -> Op {
        if op.allocator == Allocator::Mremap as u8 {
            if let LastFree::Pieces { pieces, .. } = &thread.last_free {
                let is_file = |piece: &ranges::Released| {
                    self.sites.allocator(piece.site) == Allocator::MmapFile as u8
                };
                if pieces.iter().any(is_file) {
                    op.allocator = Allocator::MmapFile as u8;
                }
            }
        }
        op
    }

    #[inline(always)]
    fn site_of(
        &mut self,
        chunk: &DecodedChunk,
        thread: &mut Thread,
        op: &Op,
        wanted: &mut Wanted,
    ) -> (u32, bool) {
        match thread.nodes.get(op.node as usize) {
            Some(slot)
                if slot.allocator == op.allocator
                    && slot.epoch == self.epoch
                    && slot.job == thread.job =>
            {
                (slot.site, slot.is_wanted)
            }
            _ => self.new_site_of(chunk, thread, op, wanted),
        }
    }

    #[cold]
    fn new_site_of(
        &mut self,
        chunk: &DecodedChunk,
        thread: &mut Thread,
        op: &Op,
        wanted: &mut Wanted,
    ) -> (u32, bool) {
        let stack = match self.stack_detail {
            StackDetail::Whole => thread.stack_of(op.node, chunk, &mut self.stacks),
            StackDetail::Innermost => match chunk.nodes.get(op.node as usize) {
                Some(node) if op.node != 0 => self.stacks.intern(StackId::EMPTY, node.frame),
                _ => StackId::EMPTY,
            },
            StackDetail::Nothing => StackId::EMPTY,
        };
        let site = self.sites.intern(SiteKey {
            stack,
            stream: thread.stream,
            allocator: op.allocator,
            job: thread.job,
            mean: self.modes.current_mean(),
        });
        self.add_job_site(site, thread.job);
        let is_wanted = wanted(&self.stacks, stack, thread.stream, thread.job);
        if let Some(slot) = thread.nodes.get_mut(op.node as usize) {
            slot.site = site;
            slot.allocator = op.allocator;
            slot.is_wanted = is_wanted;
            slot.epoch = self.epoch;
            slot.job = thread.job;
        }
        (site, is_wanted)
    }

    /// Returns the bytes of memory that the tally holds.
    pub fn heap_bytes(&self) -> usize {
        self.stacks.heap_bytes()
            + self.sites.heap_bytes()
            + self.blocks.heap_bytes()
            + self.ranges.heap_bytes()
            + self.sizes.heap_bytes()
            + self.threads.heap_bytes()
            + self.jobs.as_ref().map_or(0, |jobs| jobs.heap_bytes())
    }
}
