//! The table of live blocks and the accounts of jobs that are not settled yet. Knows nothing of threads or of Python.

use std::collections::{BTreeMap, HashMap};

use heaptide_capture::Allocator;

use super::NOBODY;
use super::objects::Types;
use super::sites::{SiteFrame, Sites, Words};
use crate::host::own_memory;

/// So many bytes of an object are searched for pointers to memory behind it.
const MAX_LOOKED_AT: usize = 256;

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub size: usize,
    pub job: u32,
    pub site: u32,
    /// Of blocks that jobs allocated: which came first.
    pub number: u32,
    pub allocator: Allocator,
}

#[derive(Default)]
struct Account {
    is_open: bool,
    /// Of what the job allocated: what is alive.
    kept_bytes: u64,
    n_kept: u64,
    /// What the job released of others'.
    released_bytes: u64,
    allocated_bytes: u64,
    n_allocated: u64,
}

/// What one stack has allocated that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSum {
    pub bytes: u64,
    pub n_blocks: u64,
    /// Innermost first.
    pub frames: Vec<SiteFrame>,
}

/// Objects of one type that are alive, by the number that the type was passed under. Their bytes are those of the objects and
/// of the memory behind them that the same jobs allocated: a list's items, a dict's table, a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeSum {
    pub number: u32,
    pub bytes: u64,
    pub n_objects: u64,
}

/// What jobs have left behind.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    pub kept_bytes: u64,
    pub n_kept: u64,
    pub released_bytes: u64,
    pub allocated_bytes: u64,
    pub n_allocated: u64,
    pub sites: Vec<SiteSum>,
    pub types: Vec<TypeSum>,
    /// Addresses of complete objects of the type that was asked for, in the order in which they were allocated.
    pub examples: Vec<usize>,
    /// Blocks that there was no memory to write down.
    pub n_lost: u64,
}

/// Whose rest is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Job(u32),
    AllJobs,
}

#[derive(Default)]
pub struct Accounts {
    blocks: Words<usize, Block>,
    /// Mappings may be released in parts.
    mappings: BTreeMap<usize, Block>,
    jobs: Words<u32, Account>,
    by_token: Words<usize, u32>,
    n_jobs: u32,
    n_lost: u64,
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

    /// A number for the next block of a job.
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
        // What stood there was released in a way that was not seen.
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

    /// `by` is the job that releases it.
    pub fn released(&mut self, address: usize, by: u32) -> Option<Block> {
        let block = self.blocks.remove(&address)?;
        self.settle_release(block, by);
        Some(block)
    }

    pub fn released_range(
        &mut self,
        address: usize,
        length: usize,
        by: u32,
    ) -> Option<(usize, Block)> {
        let end = address.saturating_add(length);
        let mut whole = None;
        // From the last one backwards: only the first one in question can begin before the range.
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

    /// What a job that is over has left. What nobody's job allocated does not count: a job that consumes the message it was
    /// given would otherwise seem to leave less than nothing.
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

    /// What a job, or all jobs, have left: sums, the largest stacks, all types, and examples of objects of one type.
    ///
    /// # Safety
    /// Every block in the table is alive as long as the lock around the accounts is held, since a release is announced before it
    /// happens; the caller holds that lock and the GIL.
    pub unsafe fn rest(
        &self,
        whose: Whose,
        types: &Types,
        n_sites: usize,
        example_type: Option<(u32, bool)>,
    ) -> Rest {
        let mut rest = Rest {
            n_lost: self.n_lost,
            ..Rest::default()
        };
        if let Whose::Job(job) = whose {
            if let Some(account) = self.jobs.get(&job) {
                rest.released_bytes = account.released_bytes;
                rest.allocated_bytes = account.allocated_bytes;
                rest.n_allocated = account.n_allocated;
            }
        }
        let is_asked_for = |block: &Block| match whose {
            Whose::Job(job) => block.job == job,
            Whose::AllJobs => block.job != NOBODY,
        };
        let mut by_site: Words<u32, (u64, u64)> = Words::default();
        let mut objects = Vec::new();
        // Memory that is no object itself: items, tables, buffers.
        let mut behind: Words<usize, usize> = Words::default();
        for (&address, block) in self.blocks.iter().chain(&self.mappings) {
            if !is_asked_for(block) {
                continue;
            }
            rest.kept_bytes += block.size as u64;
            rest.n_kept += 1;
            let sum = by_site.entry(block.site).or_default();
            sum.0 += block.size as u64;
            sum.1 += 1;
            // SAFETY: as the caller says.
            let object = unsafe { types.object_in(address, block.size) };
            match object.filter(|_| is_of_python(block.allocator)) {
                Some((kind, object)) => objects.push((address, block, kind, object)),
                None => {
                    behind.insert(address, block.size);
                }
            }
        }
        let mut by_type: Words<u32, TypeSum> = Words::default();
        let mut examples = Vec::new();
        for (address, block, kind, object) in objects {
            let sum = by_type.entry(kind).or_default();
            sum.number = kind;
            sum.bytes += block.size as u64;
            sum.n_objects += 1;
            for place in (address..address + block.size.min(MAX_LOOKED_AT) / 8 * 8).step_by(8) {
                // SAFETY: as the caller says; the block begins at a multiple of 8 and has these words. Volatile, because
                // some may never have been written, and a thread without the GIL may write others meanwhile.
                let pointer = unsafe { (place as *const usize).read_volatile() };
                sum.bytes += behind.remove(&pointer).unwrap_or(0) as u64;
            }
            if let Some((wanted, is_collected)) = example_type {
                // SAFETY: as above; objects of this type have the collector's header if the caller says so.
                let is_complete = !is_collected || unsafe { super::objects::is_followed(object) };
                if wanted == kind && is_complete {
                    examples.push((block.number, object));
                }
            }
        }
        examples.sort_unstable();
        rest.examples = examples.into_iter().map(|(_, object)| object).collect();
        rest.types = by_type.into_values().collect();
        rest.types
            .sort_unstable_by_key(|sum| (std::cmp::Reverse(sum.bytes), sum.number));
        // Instructions of one line are one place for a reader.
        let mut by_frames: HashMap<Vec<SiteFrame>, (u64, u64)> = HashMap::new();
        for (site, (bytes, n_blocks)) in by_site {
            let sum = by_frames.entry(self.sites.describe(site)).or_default();
            sum.0 += bytes;
            sum.1 += n_blocks;
        }
        let mut sites: Vec<_> = by_frames
            .into_iter()
            .map(|(frames, (bytes, n_blocks))| SiteSum {
                bytes,
                n_blocks,
                frames,
            })
            .collect();
        sites.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.frames.cmp(&b.frames)));
        sites.truncate(n_sites);
        rest.sites = sites;
        rest
    }

    /// The job is over and was looked at: its blocks stay in the table, its account is closed.
    pub fn settle(&mut self, job: u32) {
        self.end(job);
        self.jobs.remove(&job);
    }
}

fn is_mapping(allocator: Allocator) -> bool {
    matches!(allocator, Allocator::Mmap | Allocator::Mremap)
}

fn is_of_python(allocator: Allocator) -> bool {
    matches!(
        allocator,
        Allocator::PymallocMalloc | Allocator::PymallocCalloc | Allocator::PymallocRealloc
    )
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

    /// Kept and released.
    fn sums(accounts: &Accounts, job: u32) -> (u64, u64) {
        let account = &accounts.jobs[&job];
        (account.kept_bytes, account.released_bytes)
    }

    #[test]
    fn a_job_keeps_what_it_allocated_and_did_not_release() {
        let mut accounts = Accounts::default();
        let job = accounts.begin(0x10);
        accounts.allocated(0x100, block(40, job));
        accounts.allocated(0x200, block(60, job));
        accounts.released(0x100, job);
        assert_eq!(sums(&accounts, job), (60, 0));
    }

    #[test]
    fn what_is_replaced_by_something_of_equal_size_leaves_nothing() {
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
    fn garbage_of_a_job_that_runs_beside_is_not_released_by_who_happens_to_collect_it() {
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
    fn a_release_that_did_not_happen_changes_nothing() {
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
    fn a_message_that_a_job_consumes_does_not_hide_what_it_keeps() {
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
