//! The table of live blocks, and the accounts of jobs that are not settled yet. Independent of threads and of Python.

use std::collections::BTreeMap;

use heaptide_capture::Allocator;

use super::NOBODY;
use super::sites::{Sites, Words};
use crate::host::own_memory;

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub size: usize,
    pub job: u32,
    pub site: u32,
    /// Order of allocation.
    pub number: u32,
    pub allocator: Allocator,
}

#[derive(Default)]
pub(super) struct Account {
    is_open: bool,
    /// Live blocks that the job allocated.
    kept_bytes: u64,
    n_kept: u64,
    /// Blocks of earlier jobs that the job freed.
    pub released_bytes: u64,
    pub allocated_bytes: u64,
    pub n_allocated: u64,
}

#[derive(Default)]
pub struct Accounts {
    pub(super) blocks: Words<usize, Block>,
    /// Separate, since mappings may be unmapped in parts.
    pub(super) mappings: BTreeMap<usize, Block>,
    pub(super) jobs: Words<u32, Account>,
    by_token: Words<usize, u32>,
    n_jobs: u32,
    /// Blocks that could not be stored for lack of memory.
    pub(super) n_lost: u64,
    n_blocks: u32,
    pub sites: Sites,
}

impl Accounts {
    pub fn begin(&mut self, token: usize) -> u32 {
        self.n_jobs += 1;
        let account = Account {
            is_open: true,
            ..Account::default()
        };
        self.jobs.insert(self.n_jobs, account);
        self.by_token.insert(token, self.n_jobs);
        self.n_jobs
    }

    pub fn end(&mut self, job: u32) {
        if let Some(account) = self.jobs.get_mut(&job) {
            account.is_open = false;
        }
        self.by_token.retain(|_, of| *of != job);
    }

    /// Returns the number of the next block.
    pub fn next_number(&mut self) -> u32 {
        self.n_blocks = self.n_blocks.wrapping_add(1);
        self.n_blocks
    }

    pub fn job_of(&self, token: usize) -> u32 {
        self.by_token.get(&token).copied().unwrap_or(NOBODY)
    }

    pub fn allocated(&mut self, address: usize, block: Block) {
        let has_room = self.blocks.try_reserve(1).is_ok() && !own_memory::ran_out();
        if !has_room {
            self.n_lost += 1;
            return;
        }
        // An earlier block at this address was freed without an event.
        let before = if is_mapping(block.allocator) {
            self.mappings.insert(address, block)
        } else {
            self.blocks.insert(address, block)
        };
        if let Some(before) = before {
            self.take_from_owner(before);
        }
        if let Some(account) = self.jobs.get_mut(&block.job) {
            account.kept_bytes += block.size as u64;
            account.n_kept += 1;
            account.allocated_bytes += block.size as u64;
            account.n_allocated += 1;
        }
    }

    /// Removes a block that job `by` frees.
    pub fn released(&mut self, address: usize, by: u32) -> Option<Block> {
        let block = self.blocks.remove(&address)?;
        self.settle_release(block, by);
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
            self.settle_release(block, by);
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

    fn settle_release(&mut self, block: Block, by: u32) {
        self.take_from_owner(block);
        if self.is_left_by_another(block, by) {
            if let Some(account) = self.jobs.get_mut(&by) {
                account.released_bytes += block.size as u64;
            }
        }
    }

    /// Returns whether an ended job left this block. Blocks that no job allocated do not count: otherwise a job that
    /// consumes its message would seem to leave a negative number of bytes.
    fn is_left_by_another(&self, block: Block, by: u32) -> bool {
        let is_over = self.jobs.get(&block.job).is_none_or(|owner| !owner.is_open);
        block.job != NOBODY && block.job != by && is_over
    }

    fn take_from_owner(&mut self, block: Block) {
        if let Some(owner) = self.jobs.get_mut(&block.job) {
            owner.kept_bytes -= block.size as u64;
            owner.n_kept -= 1;
        }
    }

    fn put_back(&mut self, address: usize, block: Block, by: u32) {
        if let Some(owner) = self.jobs.get_mut(&block.job) {
            owner.kept_bytes += block.size as u64;
            owner.n_kept += 1;
        }
        if self.is_left_by_another(block, by) {
            if let Some(account) = self.jobs.get_mut(&by) {
                account.released_bytes = account.released_bytes.saturating_sub(block.size as u64);
            }
        }
        if is_mapping(block.allocator) {
            self.mappings.insert(address, block);
        } else {
            self.blocks.insert(address, block);
        }
    }

    /// Closes the account of an ended job. Its blocks stay in the table.
    pub fn settle(&mut self, job: u32) {
        self.end(job);
        self.jobs.remove(&job);
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
        let account = &accounts.jobs[&job];
        (account.kept_bytes, account.released_bytes)
    }

    #[test]
    fn account_of_a_job_holds_its_unreleased_blocks() {
        let mut accounts = Accounts::default();
        let job = accounts.begin(0x10);
        accounts.allocated(0x100, block(40, job));
        accounts.allocated(0x200, block(60, job));
        accounts.released(0x100, job);
        assert_eq!(sums(&accounts, job), (60, 0));
    }

    #[test]
    fn a_replacement_of_equal_size_leaves_nothing() {
        let mut accounts = Accounts::default();
        let first = accounts.begin(0x10);
        accounts.allocated(0x100, block(500, first));
        accounts.settle(first);
        let second = accounts.begin(0x20);
        accounts.released(0x100, second);
        accounts.allocated(0x100, block(500, second));
        assert_eq!(sums(&accounts, second), (500, 500));
    }

    #[test]
    fn freeing_a_block_of_a_running_job_is_not_a_release_of_an_earlier_job() {
        let mut accounts = Accounts::default();
        let (one, two) = (accounts.begin(0x10), accounts.begin(0x20));
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
        let earlier = accounts.begin(0x10);
        accounts.allocated(0x100, block(500, earlier));
        accounts.settle(earlier);
        let job = accounts.begin(0x20);
        let released = accounts.released(0x100, job).unwrap();
        assert_eq!(sums(&accounts, job), (0, 500));
        accounts.not_released(0x100, released, job);
        assert_eq!(sums(&accounts, job), (0, 0));
        assert!(accounts.blocks.contains_key(&0x100));
    }

    #[test]
    fn freeing_a_consumed_message_does_not_hide_blocks_that_the_job_keeps() {
        let mut accounts = Accounts::default();
        accounts.allocated(0x100, block(500, NOBODY));
        let job = accounts.begin(0x10);
        accounts.allocated(0x200, block(500, job));
        accounts.released(0x100, job);
        assert_eq!(sums(&accounts, job), (500, 0));
    }

    #[test]
    fn a_mapping_is_released_in_parts() {
        let mut accounts = Accounts::default();
        let job = accounts.begin(0x10);
        accounts.allocated(0x10000, mapping(0x4000, job));
        accounts.released_range(0x11000, 0x1000, job);
        assert_eq!(sums(&accounts, job).0, 0x3000);
        accounts.released_range(0x10000, 0x4000, job);
        assert_eq!(sums(&accounts, job).0, 0);
        assert!(accounts.mappings.is_empty());
    }

    #[test]
    fn a_token_leads_to_its_job_until_the_job_ends() {
        let mut accounts = Accounts::default();
        let job = accounts.begin(0x10);
        assert_eq!(accounts.job_of(0x10), job);
        accounts.end(job);
        assert_eq!(accounts.job_of(0x10), NOBODY);
    }
}
