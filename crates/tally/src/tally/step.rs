//! Applies one event: adds and removes blocks and mappings, and marks the peak just before memory is removed.
//!
//! This is the hottest code of every report: functions called for each event are inlined into the loop of [`Tally::apply`].

use super::Tally;
use crate::amount::Raw;
use crate::live_blocks::Block;
use crate::ranges;
use crate::threads::{LastFree, Thread};
use heaptide_capture::Allocator;

impl Tally {
    #[inline(always)]
    pub(super) fn alloc(&mut self, site: u32, allocator: u8, address: u64, size: u64) {
        let amount = self.weigher.weigh(size);
        if is_range(allocator) {
            return self.map(site, allocator, address, size, amount);
        }
        if address == 0 {
            return;
        }
        if let Some(before) = self.blocks.insert(address, Block { size, site }) {
            self.n_overlaps += 1;
            self.shrink(before.site, self.weigh_block(&before));
        }
        let moment = self.moment(amount);
        let sums = self.sites.change(site);
        let before = sums.live.bytes;
        sums.total += amount;
        sums.live += amount;
        sums.moment = sums.moment.wrapping_sub(moment);
        if let Some(jobs) = &mut self.jobs {
            jobs.grow(site, before, amount, true);
        }
        self.grow(amount);
    }

    /// Returns the current time multiplied by the number of blocks in an amount.
    #[inline(always)]
    fn moment(&self, amount: Raw) -> u64 {
        self.time.wrapping_mul(self.weigher.blocks(amount))
    }

    #[inline(always)]
    fn grow(&mut self, amount: Raw) {
        self.now += amount;
        self.bytes_highest = self.bytes_highest.max(self.now.bytes);
    }

    /// Subtracts an amount from the heap. Marks the peak first, because the heap is at its highest just before it shrinks.
    #[inline(always)]
    fn shrink(&mut self, site: u32, amount: Raw) {
        self.mark_peak();
        let moment = self.moment(amount);
        let sums = self.sites.change(site);
        let before = sums.live.bytes;
        sums.live -= amount;
        sums.moment = sums.moment.wrapping_add(moment);
        if let Some(jobs) = &mut self.jobs {
            jobs.shrink(site, before, amount, self.time);
        }
        self.now -= amount;
    }

    #[inline(always)]
    pub(super) fn mark_peak(&mut self) {
        if self.now.bytes > self.peak.bytes {
            self.peak = self.now;
            self.peak_time = self.time;
            self.sites.mark_peak();
        }
    }

    #[inline(always)]
    pub(super) fn free(&mut self, thread: &mut Thread, address: u64) {
        self.n_frees += 1;
        let Some(block) = self.blocks.remove(address) else {
            self.count_unknown_free();
            thread.last_free = LastFree::Nothing;
            return;
        };
        let amount = self.weigh_block(&block);
        self.shrink(block.site, amount);
        let mut recent_position = None;
        if self.n_recent > 0 {
            recent_position = thread.recent.take(address);
            if recent_position.is_some() {
                self.sites.add_temporary(block.site, thread.stream, amount);
            }
        }
        thread.last_free = LastFree::Block {
            address,
            block,
            recent_position,
        };
    }

    fn map(&mut self, site: u32, allocator: u8, start: u64, size: u64, amount: Raw) {
        if size == 0 || start == u64::MAX {
            return;
        }
        // A fixed mapping silently replaces the mappings in its range.
        self.release(start, size);
        self.ranges.insert(start, size, site, amount);
        let moment = self.moment(amount);
        let sums = self.sites.change(site);
        let before = sums.live.bytes;
        sums.total += amount;
        sums.live += amount;
        sums.moment = sums.moment.wrapping_sub(moment);
        let is_file = allocator == Allocator::MmapFile as u8;
        if let Some(jobs) = self.jobs.as_mut().filter(|_| !is_file) {
            jobs.grow(site, before, amount, true);
        }
        if is_file {
            self.files_now += amount;
            if self.files_now.bytes > self.files_highest.bytes {
                self.files_highest = self.files_now;
            }
        } else {
            self.grow(amount);
        }
    }

    /// Counts the free of a block whose allocation is not in the capture. After a change of the mode such frees are expected:
    /// the agent records the first free at each address, even if it did not record the allocation.
    #[cold]
    fn count_unknown_free(&mut self) {
        self.n_unknown_frees += u64::from(!self.modes.are_mixed());
    }

    pub(super) fn release(&mut self, start: u64, length: u64) -> Vec<ranges::Released> {
        let (sites, means, weigher) = (&self.sites, self.modes.means(), self.weigher);
        let weigher_of = |site| match means.get(usize::from(sites.mean(site))) {
            Some(&mean) => weigher.with_mean(mean),
            None => weigher,
        };
        let released = self.ranges.release(start, length, weigher_of);
        for piece in &released {
            if self.sites.allocator(piece.site) == Allocator::MmapFile as u8 {
                let moment = self.moment(piece.amount);
                let sums = self.sites.change(piece.site);
                sums.live -= piece.amount;
                sums.moment = sums.moment.wrapping_add(moment);
                self.files_now -= piece.amount;
            } else {
                self.shrink(piece.site, piece.amount);
            }
        }
        released
    }

    pub(super) fn free_range(&mut self, thread: &mut Thread, start: u64, length: u64) {
        self.n_frees += 1;
        let released = self.release(start, length);
        if released.is_empty() {
            self.count_unknown_free();
        }
        let mut recent_position = None;
        // One whole mapping.
        if let [piece] = released[..] {
            if self.n_recent > 0 && piece.is_whole() {
                recent_position = thread.recent.take(piece.start);
                if recent_position.is_some() {
                    self.sites
                        .add_temporary(piece.site, thread.stream, piece.amount);
                }
            }
        }
        thread.last_free = LastFree::Pieces {
            pieces: released,
            recent_position,
        };
    }

    pub(super) fn unfree(&mut self, thread: &mut Thread) {
        match std::mem::take(&mut thread.last_free) {
            LastFree::Nothing => return,
            LastFree::Block {
                address,
                block,
                recent_position,
            } => {
                if let Some(before) = self.blocks.insert(address, block) {
                    self.n_overlaps += 1;
                    self.shrink(before.site, self.weigh_block(&before));
                }
                let amount = self.weigh_block(&block);
                self.restore(block.site, amount);
                self.grow(amount);
                if let Some(recent_position) = recent_position {
                    thread.recent.put_back(recent_position, address);
                    self.sites.take_temporary(block.site, thread.stream, amount);
                }
            }
            LastFree::Pieces {
                pieces,
                recent_position,
            } => {
                if let (Some(recent_position), [piece]) = (recent_position, &pieces[..]) {
                    thread.recent.put_back(recent_position, piece.start);
                    self.sites
                        .take_temporary(piece.site, thread.stream, piece.amount);
                }
                for piece in &pieces {
                    self.release(piece.start, piece.length);
                    self.ranges.restore(piece);
                    self.restore(piece.site, piece.amount);
                    if self.sites.allocator(piece.site) == Allocator::MmapFile as u8 {
                        self.files_now += piece.amount;
                    } else {
                        self.grow(piece.amount);
                    }
                }
            }
        }
        self.n_frees -= 1;
    }

    fn restore(&mut self, site: u32, amount: Raw) {
        let moment = self.moment(amount);
        let is_file = self.sites.allocator(site) == Allocator::MmapFile as u8;
        let sums = self.sites.change(site);
        let before = sums.live.bytes;
        sums.live += amount;
        sums.moment = sums.moment.wrapping_sub(moment);
        if let Some(jobs) = self.jobs.as_mut().filter(|_| !is_file) {
            jobs.grow(site, before, amount, false);
        }
    }
}

#[inline(always)]
pub(super) fn is_range(allocator: u8) -> bool {
    Allocator::from_number(allocator).is_some_and(Allocator::is_range)
}
