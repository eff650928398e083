//! Sums over a capture's events: how much was allocated where, what is alive, and what was alive at the peak.
//!
//! A [`Tally`] takes events in the order in which they happened and forgets them; its memory grows with live blocks and
//! distinct call stacks, not with events. It runs afterwards, under every report, and inside a program whose capture
//! is bounded. In reading order: [`amount`] says what a recorded block stands for, `live` and `ranges` hold what is
//! alive, `sites` the sums and the trick that makes the peak exact, `sizes` and [`series`] the rest.
//!
//! Mappings of files are counted beside the heap, not in it: they are address space whose pages belong to the page
//! cache, so they are in the totals but neither in the peak nor in the heap over time.

pub mod amount;
mod checkpoint;
#[cfg(test)]
mod checkpoint_tests;
mod given;
mod index;
mod live;
mod ranges;
pub mod series;
mod sites;
mod sizes;
pub mod stacks;
#[cfg(test)]
mod tests;
mod threads;

use std::hint::black_box;
use std::ops::Range;

use crate::allocator::Allocator;
use crate::decode::{DecodedChunk, Op, OpKind};
use amount::{Raw, Weigher};
use live::{Block, LiveBlocks};
use ranges::Ranges;
use sites::{SiteKey, Sites};
use sizes::SizeCounts;
use threads::{LastFree, Thread, Threads};

pub use amount::Amount;
pub use given::Given;
pub use series::HeapSeries;
pub use stacks::{Stack, StackId, Stacks};

/// Which sites are wanted: a stack and the stream of a thread.
pub type Wanted<'a> = dyn FnMut(&Stacks, StackId, u32) -> bool + 'a;

/// How many operations are looked up ahead, so that their cache misses overlap.
const BATCH: usize = 16;

/// The state of all sums while events pass.
pub struct Tally {
    weigher: Weigher,
    stacks: Stacks,
    sites: Sites,
    blocks: LiveBlocks,
    ranges: Ranges,
    sizes: SizeCounts,
    threads: Threads,
    /// What is alive on the heap.
    now: Raw,
    peak: Raw,
    /// Clock units of `peak`.
    peak_time: u64,
    files_now: Raw,
    files_highest: Raw,
    series: HeapSeries,
    time: u64,
    /// Height of the heap when the clock last moved, and its highest since.
    bytes_before: u64,
    bytes_highest: u64,
    n_events: u64,
    n_frees: u64,
    n_unknown_frees: u64,
    n_overlaps: u64,
    /// False if only the peak and what is alive were given.
    has_totals: bool,
}

/// All sums of a capture.
pub struct Sums {
    pub stacks: Stacks,
    pub sites: Vec<SiteSums>,
    pub total: Amount,
    /// Alive on the heap at the end.
    pub live: Amount,
    /// Alive on the heap when it was largest; the moment is that of all sites, also of those that are not wanted.
    pub peak: Amount,
    /// Clock units at which that was.
    pub peak_time: u64,
    /// The most that was mapped from files at one time.
    pub mapped_files: Amount,
    /// Each size and how many allocations of it were recorded, smallest first.
    pub sizes: Vec<(u64, u64)>,
    pub heap: HeapSeries,
    /// Clock units of the last event.
    pub last_time: u64,
    /// Allocations and releases, as recorded.
    pub n_events: u64,
    pub n_frees: u64,
    /// Releases of blocks that the capture does not know.
    pub n_unknown_frees: u64,
    /// Allocations at an address that was still taken: a release is missing.
    pub n_overlaps: u64,
    /// False if the capture holds no more than the peak and what was alive at the end: totals and sizes are then 0.
    pub has_totals: bool,
    weigher: Weigher,
}

/// The sums of one site. Of mappings of files only the total is known: they are not on the heap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteSums {
    pub stack: StackId,
    pub stream: u32,
    pub allocator: Allocator,
    pub total: Amount,
    pub live: Amount,
    pub peak: Amount,
}

impl Sums {
    /// How many allocations one recorded allocation of this size stands for: 1 unless the capture is sampled.
    pub fn weight(&self, size: u64) -> f64 {
        self.weigher.weight(size as f64)
    }
}

impl Tally {
    /// `sample_bytes` as in the capture's header: 0 if every allocation was recorded.
    pub fn new(sample_bytes: u64) -> Tally {
        Tally {
            weigher: Weigher::new(sample_bytes),
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
            time: 0,
            bytes_before: 0,
            bytes_highest: 0,
            n_events: 0,
            n_frees: 0,
            n_unknown_frees: 0,
            n_overlaps: 0,
            has_totals: true,
        }
    }

    /// Takes some operations of a chunk. Chunks of several threads may alternate, those of one thread come in order.
    pub fn apply(&mut self, chunk: &DecodedChunk, ops: Range<usize>) {
        self.apply_wanted(chunk, ops, &mut |_, _, _| true);
    }

    /// The same; sizes are counted of the sites that are wanted only. All sites are on the heap, whose peak is theirs together:
    /// [`Tally::finish_wanted`] chooses among them.
    pub fn apply_wanted(&mut self, chunk: &DecodedChunk, ops: Range<usize>, wanted: &mut Wanted) {
        if chunk.ops.get(ops.clone()).is_none_or(<[Op]>::is_empty) {
            return;
        }
        let slot = self.threads.slot(chunk.head.stream);
        let mut thread = self.threads.take(slot);
        self.threads.map_chunk(&mut thread, chunk);
        // The clock stands still between two marks.
        let mut at = ops.start;
        let passed = |op: usize| move |mark: &crate::decode::TimeMark| mark.first_op as usize <= op;
        let mut next_mark = chunk.times.partition_point(passed(at));
        if let Some(mark) = next_mark.checked_sub(1).and_then(|n| chunk.times.get(n)) {
            self.set_time(mark.time);
        }
        while at < ops.end {
            let mark = chunk.times.get(next_mark);
            let until = mark.map_or(ops.end, |mark| (mark.first_op as usize).clamp(at, ops.end));
            self.run(chunk, at..until, &mut thread, wanted);
            at = until;
            if let Some(mark) = mark.filter(|_| at < ops.end) {
                self.set_time(mark.time);
                next_mark += 1;
            }
        }
        if ops.end == chunk.ops.len() {
            self.threads.forget_chunk(&mut thread);
        }
        self.threads.put_back(slot, thread);
    }

    fn set_time(&mut self, time: u64) {
        if time > self.time {
            // Before the first event there is no height to note.
            if self.n_events > 0 {
                self.note_height();
            }
            self.time = time;
        }
    }

    fn note_height(&mut self) {
        self.series
            .add(self.time, self.bytes_before, self.bytes_highest);
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
                match op.kind {
                    OpKind::Alloc => {
                        let op = &self.as_seen(thread, *op);
                        let (site, is_wanted) = self.site_of(chunk, thread, op, wanted);
                        if is_wanted {
                            self.sizes.count(op.size);
                        }
                        self.alloc(site, op.allocator, op.address, op.size);
                    }
                    OpKind::Free => self.free(thread, op.address),
                    OpKind::FreeRange => self.free_range(thread, op.address, op.size),
                    OpKind::Unfree => self.unfree(thread),
                }
            }
        }
    }

    /// A mapping of a file that the kernel resized or moved is still one: what the thread released just before tells.
    #[inline(always)]
    fn as_seen(&self, thread: &Thread, mut op: Op) -> Op {
        if op.allocator == Allocator::Mremap as u8 {
            if let LastFree::Pieces(pieces) = &thread.last_free {
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
            Some(slot) if slot.allocator == op.allocator => (slot.site, slot.is_wanted),
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
        let stack = thread.stack_of(op.node, chunk, &mut self.stacks);
        let site = self.sites.intern(SiteKey {
            stack,
            stream: thread.stream,
            allocator: op.allocator,
        });
        let is_wanted = wanted(&self.stacks, stack, thread.stream);
        if let Some(slot) = thread.nodes.get_mut(op.node as usize) {
            slot.site = site;
            slot.allocator = op.allocator;
            slot.is_wanted = is_wanted;
        }
        (site, is_wanted)
    }

    #[inline(always)]
    fn alloc(&mut self, site: u32, allocator: u8, address: u64, size: u64) {
        let amount = self.weigher.weigh(size);
        if is_range(allocator) {
            return self.map(site, allocator, address, size, amount);
        }
        if address == 0 {
            return;
        }
        if let Some(before) = self.blocks.insert(address, Block { size, site }) {
            self.n_overlaps += 1;
            self.leave(before.site, self.weigher.weigh(before.size));
        }
        let sums = self.sites.change(site);
        sums.total += amount;
        sums.live += amount;
        self.rise(amount);
    }

    #[inline(always)]
    fn rise(&mut self, amount: Raw) {
        self.now += amount;
        self.bytes_highest = self.bytes_highest.max(self.now.bytes);
    }

    /// Takes an amount off the heap. The peak can only be now, before that.
    #[inline(always)]
    fn leave(&mut self, site: u32, amount: Raw) {
        self.mark_peak();
        self.sites.change(site).live -= amount;
        self.now -= amount;
    }

    #[inline(always)]
    fn mark_peak(&mut self) {
        if self.now.bytes > self.peak.bytes {
            self.peak = self.now;
            self.peak_time = self.time;
            self.sites.mark_peak();
        }
    }

    #[inline(always)]
    fn free(&mut self, thread: &mut Thread, address: u64) {
        self.n_frees += 1;
        let Some(block) = self.blocks.remove(address) else {
            self.n_unknown_frees += 1;
            thread.last_free = LastFree::Nothing;
            return;
        };
        self.leave(block.site, self.weigher.weigh(block.size));
        thread.last_free = LastFree::Block { address, block };
    }

    fn map(&mut self, site: u32, allocator: u8, start: u64, size: u64, amount: Raw) {
        if size == 0 || start == u64::MAX {
            return;
        }
        // The kernel replaces what a fixed mapping covers without a word.
        self.release(start, size);
        self.ranges.insert(start, size, site, amount);
        let sums = self.sites.change(site);
        sums.total += amount;
        sums.live += amount;
        if allocator == Allocator::MmapFile as u8 {
            self.files_now += amount;
            if self.files_now.bytes > self.files_highest.bytes {
                self.files_highest = self.files_now;
            }
        } else {
            self.rise(amount);
        }
    }

    fn release(&mut self, start: u64, length: u64) -> Vec<ranges::Released> {
        let released = self.ranges.release(start, length, &self.weigher);
        for piece in &released {
            if self.sites.allocator(piece.site) == Allocator::MmapFile as u8 {
                self.sites.change(piece.site).live -= piece.amount;
                self.files_now -= piece.amount;
            } else {
                self.leave(piece.site, piece.amount);
            }
        }
        released
    }

    fn free_range(&mut self, thread: &mut Thread, start: u64, length: u64) {
        self.n_frees += 1;
        let released = self.release(start, length);
        self.n_unknown_frees += u64::from(released.is_empty());
        thread.last_free = LastFree::Pieces(released);
    }

    fn unfree(&mut self, thread: &mut Thread) {
        match std::mem::take(&mut thread.last_free) {
            LastFree::Nothing => return,
            LastFree::Block { address, block } => {
                if let Some(before) = self.blocks.insert(address, block) {
                    self.n_overlaps += 1;
                    self.leave(before.site, self.weigher.weigh(before.size));
                }
                let amount = self.weigher.weigh(block.size);
                self.sites.change(block.site).live += amount;
                self.rise(amount);
            }
            LastFree::Pieces(released) => {
                for piece in &released {
                    self.release(piece.start, piece.length);
                    self.ranges.restore(piece);
                    self.sites.change(piece.site).live += piece.amount;
                    if self.sites.allocator(piece.site) == Allocator::MmapFile as u8 {
                        self.files_now += piece.amount;
                    } else {
                        self.rise(piece.amount);
                    }
                }
            }
        }
        self.n_frees -= 1;
    }

    /// Bytes of memory that the tally holds.
    pub fn heap_bytes(&self) -> usize {
        self.stacks.heap_bytes()
            + self.sites.heap_bytes()
            + self.blocks.heap_bytes()
            + self.ranges.heap_bytes()
            + self.sizes.heap_bytes()
            + self.threads.heap_bytes()
    }

    /// The sums, after the last event.
    pub fn finish(self) -> Sums {
        self.finish_wanted(&mut |_, _, _| true)
    }

    /// The sums of the sites that are wanted. When the peak was is decided by all of them.
    pub fn finish_wanted(mut self, wanted: &mut Wanted) -> Sums {
        // What is alive may be most of a report's memory, and is not needed any more.
        self.blocks = LiveBlocks::new();
        self.mark_peak();
        if self.n_events > 0 {
            self.note_height();
        }
        let weigher = self.weigher;
        let (mut total, mut live, mut peak) = (Raw::default(), Raw::default(), Raw::default());
        let mut sites = Vec::new();
        for (key, site) in self.sites.finish() {
            let Some(allocator) = Allocator::from_number(key.allocator) else {
                continue;
            };
            if !wanted(&self.stacks, key.stack, key.stream) {
                continue;
            }
            let on_heap = |amount: Raw| match allocator {
                Allocator::MmapFile => Raw::default(),
                _ => amount,
            };
            total += site.total;
            live += on_heap(site.live);
            peak += on_heap(site.peak);
            sites.push(SiteSums {
                stack: key.stack,
                stream: key.stream,
                allocator,
                total: weigher.finish(site.total),
                live: weigher.finish(on_heap(site.live)),
                peak: weigher.finish(on_heap(site.peak)),
            });
        }
        Sums {
            stacks: self.stacks,
            sites,
            total: weigher.finish(total),
            live: weigher.finish(live),
            peak: weigher.finish(peak),
            peak_time: self.peak_time,
            mapped_files: weigher.finish(self.files_highest),
            sizes: self.sizes.finish(),
            heap: self.series,
            last_time: self.time,
            n_events: self.n_events,
            n_frees: self.n_frees,
            n_unknown_frees: self.n_unknown_frees,
            n_overlaps: self.n_overlaps,
            has_totals: self.has_totals,
            weigher,
        }
    }
}

#[inline(always)]
fn is_range(allocator: u8) -> bool {
    Allocator::from_number(allocator).is_some_and(Allocator::is_range)
}
