//! The table of live blocks, and the accounts of jobs that are not settled yet. Independent of threads and of Python.

use std::collections::BTreeMap;

use heaptide_capture::Allocator;

use super::NO_JOB;
use super::blocks::{Blocks, NoRoom};
use super::charges::Part;
use super::open::{Account, OpenAccounts};
use super::sites::{Sites, Words};
use crate::host::own_memory;

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub size: usize,
    pub job: u32,
    pub site: u32,
    /// Position in the order of allocations.
    pub number: u32,
    pub allocator: Allocator,
}

/// The release of a block may change accounts of other jobs than the one that allocated it.
pub struct ChangesOthers;

/// A job with live blocks whose account is closed.
pub(super) struct Settled {
    pub group: u32,
    pub n_kept: u64,
}

/// With fewer entries of settled jobs, a search for jobs without blocks is not worthwhile.
const MIN_SETTLED: usize = 1024;

#[derive(Default)]
pub struct Accounts {
    pub(super) blocks: Blocks,
    /// Separate, since mappings may be unmapped in parts.
    pub(super) mappings: BTreeMap<usize, Block>,
    /// By the number of a block: the parts that were added by other jobs than the job of the block. Few blocks have such
    /// parts.
    pub(super) parts: Words<u32, Vec<Part>>,
    pub(super) jobs: OpenAccounts,
    by_token: Words<usize, u32>,
    pub(super) settled: Words<u32, Settled>,
    /// Number of entries at which `settled` is searched for jobs without blocks.
    n_settled_limit: usize,
    /// Live bytes of the settled jobs of each group.
    pub(super) group_bytes: Words<u32, u64>,
    /// Jobs that were begun for another thread.
    by_thread: Words<usize, u32>,
    n_jobs: u32,
    /// Blocks that could not be stored for lack of memory.
    pub(super) n_lost: u64,
    n_blocks: u32,
    pub sites: Sites,
}

impl Accounts {
    /// `group` is the number of the job's name, or 0.
    pub fn begin(&mut self, token: usize, group: u32) -> u32 {
        let job = self.open(group);
        self.by_token.insert(token, job);
        job
    }

    /// Begins a job for the thread with this `pthread_self`. Events belong to it where no job with a token runs.
    pub fn begin_in_thread(&mut self, thread: usize, group: u32) -> u32 {
        let job = self.open(group);
        self.by_thread.insert(thread, job);
        job
    }

    fn open(&mut self, group: u32) -> u32 {
        self.n_jobs += 1;
        self.jobs.insert(self.n_jobs, Account::new(group));
        self.n_jobs
    }

    pub fn end(&mut self, job: u32) {
        if let Some(account) = self.jobs.get_mut(job) {
            account.length.get_or_insert(account.begun.elapsed());
        }
        self.by_token.retain(|_, owner| *owner != job);
        self.by_thread.retain(|_, owner| *owner != job);
    }

    /// Returns how long a job ran, or has been running.
    pub fn seconds(&self, job: u32) -> Option<f64> {
        let account = self.jobs.get(job)?;
        let length = account.length.unwrap_or_else(|| account.begun.elapsed());
        Some(length.as_secs_f64())
    }

    /// Returns the number of the next block.
    pub fn next_number(&mut self) -> u32 {
        self.n_blocks = self.n_blocks.wrapping_add(1);
        self.n_blocks
    }

    pub fn job_of(&self, token: usize) -> u32 {
        self.by_token.get(&token).copied().unwrap_or(NO_JOB)
    }

    /// Returns the job that was begun for a thread. `thread` is only called if there are such jobs.
    pub fn job_of_thread(&self, thread: impl FnOnce() -> usize) -> u32 {
        if self.by_thread.is_empty() {
            return NO_JOB;
        }
        self.by_thread.get(&thread()).copied().unwrap_or(NO_JOB)
    }

    #[inline(always)]
    pub fn allocated(&mut self, address: usize, block: Block) {
        self.insert(address, block, None);
    }

    /// Records the new version of a block that [`Accounts::resizing`] returned as `old`.
    #[inline(never)]
    pub fn resized(&mut self, address: usize, block: Block, old: Block) {
        self.insert(address, block, Some(old));
    }

    #[inline(always)]
    fn insert(&mut self, address: usize, block: Block, old: Option<Block>) {
        // If the address already has a block, that block was freed without an event.
        let before = if own_memory::ran_out() {
            Err(NoRoom)
        } else if is_mapping(block.allocator) {
            Ok(self.mappings.insert(address, block))
        } else {
            self.blocks.insert(address, block)
        };
        match before {
            Ok(None) => {}
            Ok(Some(before)) => self.forget(before),
            Err(NoRoom) => {
                self.n_lost += 1;
                return;
            }
        }
        // If other jobs have no part of the old version, only the job that resized the block is charged for the new one.
        let shared = old.filter(|old| old.job != block.job || !self.parts.is_empty());
        if let Some(account) = self.jobs.get_mut(block.job) {
            account.allocated_bytes += block.size as u64;
            account.n_allocated += 1;
            if shared.is_none() {
                account.keep(block.size);
            }
        }
        if let Some(old) = shared {
            self.keep_parts(block, old);
            self.charge(block);
        }
    }

    #[cold]
    #[inline(never)]
    fn forget(&mut self, block: Block) {
        self.discharge(block, NO_JOB);
        self.parts.remove(&block.number);
    }

    /// Removes a block if only the account of the job that allocated it changes. Otherwise it returns `false`, and
    /// [`Accounts::released_after`] must remove the block. `newest` is the job of the block that the thread's previous event
    /// allocated, if it allocated one.
    #[inline(always)]
    pub fn try_release(&mut self, newest: Option<u32>, address: usize) -> bool {
        self.try_remove(newest, address).is_ok()
    }

    /// Removes a block that is resized, if only the account of the job that allocated it changes. Otherwise it returns
    /// [`ChangesOthers`], and [`Accounts::resizing`] must remove the block.
    #[inline(always)]
    pub fn try_resizing(&mut self, address: usize) -> Result<Option<Block>, ChangesOthers> {
        self.try_remove(None, address)
    }

    #[inline(always)]
    fn try_remove(
        &mut self,
        newest: Option<u32>,
        address: usize,
    ) -> Result<Option<Block>, ChangesOthers> {
        if !self.parts.is_empty() {
            return Err(ChangesOthers);
        }
        let jobs = &mut self.jobs;
        let mut is_refused = false;
        let block = self.blocks.remove_if(address, |block| {
            if block.job == NO_JOB {
                return true;
            }
            // If another job allocated the newest block, that block may be the new version of this one (`replaced`).
            let account = match newest {
                Some(job) if job != block.job => None,
                _ => jobs.get_mut(block.job),
            };
            is_refused = account.is_none();
            account
                .map(|account| account.drop_kept(block.size))
                .is_some()
        });
        match is_refused {
            true => Err(ChangesOthers),
            false => Ok(block),
        }
    }

    /// Removes a block that job `by` frees.
    pub fn released(&mut self, address: usize, by: u32) {
        self.released_after(0, address, by);
    }

    /// Removes a block that job `by` frees. The thread's previous event allocated the block at `newest`, which may replace
    /// it.
    pub fn released_after(&mut self, newest: usize, address: usize, by: u32) {
        if let Some(block) = self.resizing(address, by) {
            self.replaced(newest, block, by);
            self.parts.remove(&block.number);
        }
    }

    /// Removes a block that job `by` resizes. [`Accounts::resized`] or [`Accounts::not_released`] must follow.
    pub fn resizing(&mut self, address: usize, by: u32) -> Option<Block> {
        let block = self.blocks.remove(address)?;
        self.discharge(block, by);
        Some(block)
    }

    /// Removes the part of mappings in a range that job `by` unmaps. Returns a mapping that lies completely in the range.
    pub fn released_range(
        &mut self,
        address: usize,
        length: usize,
        by: u32,
    ) -> Option<(usize, Block)> {
        let end = address.saturating_add(length);
        let mut whole = None;
        // In descending order, because only the first of the affected mappings can start before the range.
        while let Some((&start, &block)) = self.mappings.range(..end).next_back() {
            let block_end = start.saturating_add(block.size.next_multiple_of(4096));
            if block_end <= address {
                break;
            }
            self.mappings.remove(&start);
            self.discharge(block, by);
            if start >= address && block_end <= end {
                whole = Some((start, block));
            }
            for (from, to) in [(start, address), (end, block_end)] {
                if start <= from && from < to && to <= block_end {
                    self.put_back(
                        from,
                        Block {
                            size: to - from,
                            ..block
                        },
                        by,
                    );
                }
            }
        }
        whole
    }

    /// Puts a block back whose release failed.
    pub fn not_released(&mut self, address: usize, block: Block, by: u32) {
        self.put_back(address, block, by);
    }

    fn put_back(&mut self, address: usize, block: Block, by: u32) {
        self.charge_again(block, by);
        if is_mapping(block.allocator) {
            self.mappings.insert(address, block);
        } else if self.blocks.insert(address, block).is_err() {
            self.n_lost += 1;
        }
    }

    /// Closes the account of an ended job. Its blocks stay in the table.
    pub fn settle(&mut self, job: u32) {
        self.end(job);
        let Some(account) = self.jobs.remove(job) else {
            return;
        };
        if account.n_kept == 0 || account.group == NO_JOB {
            return;
        }
        if self.settled.len() >= self.n_settled_limit.max(MIN_SETTLED) {
            self.settled.retain(|_, job| job.n_kept > 0);
            self.n_settled_limit = 2 * self.settled.len();
        }
        *self.group_bytes.entry(account.group).or_default() += account.kept_bytes;
        let entry = Settled {
            group: account.group,
            n_kept: account.n_kept,
        };
        self.settled.insert(job, entry);
    }

    /// Returns the live bytes of a job and of all settled jobs of its name; `None` if the job has no name or its
    /// account is closed.
    pub fn live_bytes_of_name(&self, job: u32) -> Option<u64> {
        let account = self
            .jobs
            .get(job)
            .filter(|account| account.group != NO_JOB)?;
        let settled = self.group_bytes.get(&account.group).copied();
        Some(settled.unwrap_or(0) + account.kept_bytes)
    }
}

fn is_mapping(allocator: Allocator) -> bool {
    matches!(allocator, Allocator::Mmap | Allocator::Mremap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(size: usize, job: u32) -> Block {
        Block {
            size,
            job,
            site: 0,
            number: 0,
            allocator: Allocator::Malloc,
        }
    }

    fn mapping(size: usize, job: u32) -> Block {
        Block {
            allocator: Allocator::Mmap,
            ..block(size, job)
        }
    }

    /// Returns the bytes that a job kept and released.
    fn sums(accounts: &Accounts, job: u32) -> (u64, u64) {
        let account = accounts.jobs.get(job).unwrap();
        (account.kept_bytes, account.released_bytes)
    }

    #[test]
    fn account_of_a_job_holds_its_unreleased_blocks() {
        let mut accounts = Accounts::default();
        let job = accounts.begin(0x10, 1);
        accounts.allocated(0x100, block(40, job));
        accounts.allocated(0x200, block(60, job));
        accounts.released(0x100, job);
        assert_eq!(sums(&accounts, job), (60, 0));
    }

    #[test]
    fn peak_of_a_job_is_the_most_that_it_held_at_once() {
        let mut accounts = Accounts::default();
        let (job, other) = (accounts.begin(0x10, 1), accounts.begin(0x20, 1));
        accounts.allocated(0x100, block(300, job));
        accounts.allocated(0x200, block(5000, job));
        accounts.allocated(0x300, block(7000, other));
        accounts.released(0x200, job);
        accounts.allocated(0x400, block(4000, job));
        assert_eq!(accounts.jobs.get(job).unwrap().peak_bytes, 5300);
        assert_eq!(accounts.jobs.get(other).unwrap().peak_bytes, 7000);
        // A release that failed does not raise the peak.
        let released = accounts.resizing(0x400, job).unwrap();
        accounts.not_released(0x400, released, job);
        assert_eq!(accounts.jobs.get(job).unwrap().peak_bytes, 5300);
    }

    #[test]
    fn a_replacement_of_equal_size_leaves_nothing() {
        let mut accounts = Accounts::default();
        let first = accounts.begin(0x10, 1);
        accounts.allocated(0x100, block(500, first));
        accounts.settle(first);
        let second = accounts.begin(0x20, 1);
        accounts.released(0x100, second);
        accounts.allocated(0x100, block(500, second));
        assert_eq!(sums(&accounts, second), (500, 500));
    }

    #[test]
    fn freeing_a_block_of_a_running_job_is_not_a_release_of_an_earlier_job() {
        let mut accounts = Accounts::default();
        let (one, two) = (accounts.begin(0x10, 1), accounts.begin(0x20, 1));
        accounts.allocated(0x100, block(500, one));
        accounts.released(0x100, two);
        assert_eq!(
            (sums(&accounts, one), sums(&accounts, two)),
            ((0, 0), (0, 0))
        );
    }

    #[test]
    fn a_failed_release_changes_nothing() {
        let mut accounts = Accounts::default();
        let earlier = accounts.begin(0x10, 1);
        accounts.allocated(0x100, block(500, earlier));
        accounts.settle(earlier);
        let job = accounts.begin(0x20, 1);
        let released = accounts.resizing(0x100, job).unwrap();
        assert_eq!(sums(&accounts, job), (0, 500));
        accounts.not_released(0x100, released, job);
        assert_eq!(sums(&accounts, job), (0, 0));
        assert!(accounts.blocks.get(0x100).is_some());
    }

    #[test]
    fn freeing_a_consumed_message_does_not_hide_blocks_that_the_job_keeps() {
        let mut accounts = Accounts::default();
        accounts.allocated(0x100, block(500, NO_JOB));
        let job = accounts.begin(0x10, 1);
        accounts.allocated(0x200, block(500, job));
        accounts.released(0x100, job);
        assert_eq!(sums(&accounts, job), (500, 0));
    }

    #[test]
    fn a_mapping_is_released_in_parts() {
        let mut accounts = Accounts::default();
        let job = accounts.begin(0x10, 1);
        accounts.allocated(0x10000, mapping(0x4000, job));
        accounts.released_range(0x11000, 0x1000, job);
        assert_eq!(sums(&accounts, job).0, 0x3000);
        accounts.released_range(0x10000, 0x4000, job);
        assert_eq!(sums(&accounts, job).0, 0);
        assert!(accounts.mappings.is_empty());
    }

    #[test]
    fn a_thread_leads_to_the_job_that_was_begun_for_it() {
        let mut accounts = Accounts::default();
        assert_eq!(accounts.job_of_thread(|| unreachable!()), NO_JOB);
        let job = accounts.begin_in_thread(0x7000, 1);
        assert_eq!(accounts.job_of_thread(|| 0x7000), job);
        assert_eq!(accounts.job_of_thread(|| 0x8000), NO_JOB);
        accounts.end(job);
        assert_eq!(accounts.job_of_thread(|| 0x7000), NO_JOB);
    }

    #[test]
    fn live_bytes_of_a_name_exclude_blocks_that_were_freed_later() {
        let mut accounts = Accounts::default();
        let (mail, other) = (1, 2);
        let first = accounts.begin(0x10, mail);
        accounts.allocated(0x100, block(300, first));
        accounts.allocated(0x200, block(50, first));
        assert_eq!(accounts.live_bytes_of_name(first), Some(350));
        accounts.settle(first);
        // The result of the first job is freed outside of any job.
        accounts.released(0x200, NO_JOB);
        let second = accounts.begin(0x20, mail);
        accounts.allocated(0x300, block(50, second));
        assert_eq!(accounts.live_bytes_of_name(second), Some(350));
        let stranger = accounts.begin(0x30, other);
        assert_eq!(accounts.live_bytes_of_name(stranger), Some(0));
        let nameless = accounts.begin(0x40, NO_JOB);
        assert_eq!(accounts.live_bytes_of_name(nameless), None);
    }

    #[test]
    fn entries_of_jobs_that_left_nothing_are_removed() {
        let mut accounts = Accounts::default();
        for number in 0..10 * MIN_SETTLED {
            let job = accounts.begin(number, 1);
            accounts.allocated(0x100, block(10, job));
            accounts.settle(job);
            accounts.released(0x100, NO_JOB);
        }
        assert!(accounts.settled.len() <= 2 * MIN_SETTLED);
        let job = accounts.begin(0x20, 1);
        assert_eq!(accounts.live_bytes_of_name(job), Some(0));
    }

    #[test]
    fn time_of_a_job_stops_at_its_end() {
        let mut accounts = Accounts::default();
        let job = accounts.begin(0x10, 1);
        accounts.end(job);
        let seconds = accounts.seconds(job).unwrap();
        accounts.end(job);
        assert_eq!(accounts.seconds(job), Some(seconds));
        accounts.settle(job);
        assert_eq!(accounts.seconds(job), None);
    }

    #[test]
    fn a_token_leads_to_its_job_until_the_job_ends() {
        let mut accounts = Accounts::default();
        let job = accounts.begin(0x10, 1);
        assert_eq!(accounts.job_of(0x10), job);
        accounts.end(job);
        assert_eq!(accounts.job_of(0x10), NO_JOB);
    }
}
