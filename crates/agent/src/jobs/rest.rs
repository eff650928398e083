//! The rest of a job: the memory that it allocated and did not free, by allocation site and by type.
//!
//! The types come from the content of the blocks. A block in the table may have been freed without an event, for
//! example because `tracemalloc.stop()` has restored the allocators from before the hooks. So no block is read that
//! is not in readable memory. If the memory of a freed block is still mapped, it contains another object or none: the
//! count of references of a freed object is 0, or the allocator has overwritten it.

use std::cell::Cell;
use std::ops::Range;

use heaptide_procfs::readable_ranges;

use super::NO_JOB;
use super::accounts::Accounts;
use super::objects::Types;
use super::sites::{Functions, Line, SiteFrame, Words};

/// The number of bytes of an object that are searched for pointers to memory that it owns.
const MAX_SEARCHED: usize = 256;

/// Live memory that was allocated on one stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSum {
    pub bytes: u64,
    pub n_blocks: u64,
    /// Innermost first.
    pub frames: Vec<SiteFrame>,
}

/// Live objects of one type. The bytes include memory that the objects own and that the same jobs allocated: a list's
/// items, a dict's table, a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeSum {
    /// Position of the type in the caller's list.
    pub number: u32,
    pub bytes: u64,
    pub n_objects: u64,
    /// Live objects of this type that any job allocated.
    pub n_of_all_jobs: u64,
}

/// The memory that jobs left.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    pub kept_bytes: u64,
    pub n_kept: u64,
    pub released_bytes: u64,
    /// The job's peak; 0 if the rest is of all jobs.
    pub peak_bytes: u64,
    /// Live bytes of the job and of earlier jobs of its name, if it has a name.
    pub name_bytes: Option<u64>,
    pub allocated_bytes: u64,
    pub n_allocated: u64,
    pub sites: Vec<SiteSum>,
    pub types: Vec<TypeSum>,
    /// Addresses of complete objects of the requested type, in the order of allocation.
    pub examples: Vec<usize>,
    /// Blocks that could not be stored for lack of memory.
    pub n_lost: u64,
}

/// The jobs whose rest is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobSelection {
    Job(u32),
    AllJobs,
}

/// The readable memory of this process.
struct Readable {
    ranges: Vec<Range<usize>>,
    /// The position of the range that was found last.
    last: Cell<usize>,
}

impl Readable {
    /// Nothing is readable if the kernel does not list the mappings.
    fn now() -> Readable {
        Readable {
            ranges: readable_ranges().unwrap_or_default(),
            last: Cell::new(0),
        }
    }

    /// Whether the part of a block that is searched is readable.
    fn contains(&self, address: usize, size: usize) -> bool {
        let end = address.saturating_add(size.min(MAX_SEARCHED));
        let has = |range: &Range<usize>| range.start <= address && end <= range.end;
        if self.ranges.get(self.last.get()).is_some_and(has) {
            return true;
        }
        let after = self.ranges.partition_point(|range| range.start <= address);
        self.last.set(after.saturating_sub(1));
        self.ranges.get(self.last.get()).is_some_and(has)
    }
}

impl Accounts {
    /// Returns the rest of one job or of all jobs: sums, the largest stacks, all types, and the objects of one type.
    ///
    /// # Safety
    /// The caller holds the lock around the accounts, and the GIL. No memory that is readable now becomes unreadable as
    /// long as the lock is held: its blocks are alive, since a release is reported before it happens, or Python's
    /// allocators have it, which need the GIL to unmap it.
    pub unsafe fn rest(
        &self,
        selection: JobSelection,
        types: &Types,
        n_sites: usize,
        example_type: Option<u32>,
    ) -> Rest {
        let mut rest = Rest {
            n_lost: self.n_lost,
            ..Rest::default()
        };
        if let JobSelection::Job(job) = selection {
            if let Some(account) = self.jobs.get(job) {
                rest.released_bytes = account.released_bytes;
                rest.peak_bytes = account.peak_bytes;
                rest.name_bytes = self.live_bytes_of_name(job);
                rest.allocated_bytes = account.allocated_bytes;
                rest.n_allocated = account.n_allocated;
            }
        }
        let is_requested = |job: u32| match selection {
            JobSelection::Job(requested) => job == requested,
            JobSelection::AllJobs => job != NO_JOB,
        };
        let mut by_site: Words<u32, (u64, u64)> = Words::default();
        let mut objects = Vec::new();
        let mut n_of_others: Words<u32, u64> = Words::default();
        // Blocks without an object: items, tables, buffers.
        let mut owned: Words<usize, usize> = Words::default();
        let readable = Readable::now();
        let mappings = self.mappings.iter().map(|(&at, block)| (at, block));
        for (address, block) in self.blocks.iter().chain(mappings) {
            let mut size = 0;
            for part in self.parts_of(block).filter(|part| is_requested(part.job)) {
                size += part.size;
                rest.n_kept += 1;
                let sum = by_site.entry(part.site).or_default();
                sum.0 += part.size as u64;
                sum.1 += 1;
            }
            rest.kept_bytes += size as u64;
            let object_in_block = || {
                let is_read =
                    block.allocator.is_pythons() && readable.contains(address, block.size);
                // SAFETY: the part of the block that may contain an object's head is readable, and stays so.
                is_read.then(|| unsafe { types.object_in(address, block.size) })?
            };
            if !is_requested(block.job) {
                // An object belongs to the job that resized it last.
                owned.extend((size > 0).then_some((address, size)));
                if let Some(object) = (block.job != NO_JOB).then(object_in_block).flatten() {
                    *n_of_others.entry(object.type_number).or_default() += 1;
                }
                continue;
            }
            match object_in_block() {
                Some(object) => objects.push((address, block, size, object)),
                None => {
                    owned.insert(address, size);
                }
            }
        }
        let mut by_type: Words<u32, TypeSum> = Words::default();
        let mut examples = Vec::new();
        for (address, block, size, object) in objects {
            let sum = by_type.entry(object.type_number).or_default();
            sum.number = object.type_number;
            sum.bytes += size as u64;
            sum.n_objects += 1;
            for at in (address..address + block.size.min(MAX_SEARCHED) / 8 * 8).step_by(8) {
                // SAFETY: the words are readable, as was checked before the search for the object, and aligned,
                // because an object's block starts at a multiple of 8. Volatile, because some may never have been
                // written, and a thread without the GIL may write others meanwhile.
                let pointer = unsafe { (at as *const usize).read_volatile() };
                sum.bytes += owned.remove(&pointer).unwrap_or(0) as u64;
            }
            // SAFETY: as above: the object's header is in the searched part of the block.
            if example_type == Some(object.type_number) && unsafe { object.is_complete() } {
                examples.push((block.number, object.address));
            }
        }
        examples.sort_unstable();
        rest.examples = examples.into_iter().map(|(_, object)| object).collect();
        rest.types = by_type.into_values().collect();
        for sum in &mut rest.types {
            sum.n_of_all_jobs = sum.n_objects + n_of_others.get(&sum.number).copied().unwrap_or(0);
        }
        rest.types
            .sort_unstable_by_key(|sum| (std::cmp::Reverse(sum.bytes), sum.number));
        rest.sites = self.largest_sites(by_site, n_sites);
        rest
    }

    fn largest_sites(&self, by_site: Words<u32, (u64, u64)>, n_sites: usize) -> Vec<SiteSum> {
        let Some(last) = n_sites.checked_sub(1) else {
            return Vec::new();
        };
        // Reports show one location for all instructions of a line.
        let mut by_lines: Words<Vec<Line>, (u32, u64, u64)> = Words::default();
        let mut functions = Functions::default();
        for (site, (bytes, n_blocks)) in by_site {
            let lines = self.sites.lines(site, &mut functions);
            let sum = by_lines.entry(lines).or_insert((site, 0, 0));
            sum.1 += bytes;
            sum.2 += n_blocks;
        }
        let mut sums: Vec<(u32, u64, u64)> = by_lines.into_values().collect();
        sums.sort_unstable_by_key(|&(_, bytes, _)| std::cmp::Reverse(bytes));
        // The texts decide between sites of equal bytes. Only the sites that may be among the largest need them.
        let least = sums.get(last).map_or(0, |&(_, bytes, _)| bytes);
        let largest = sums.into_iter().filter(|&(_, bytes, _)| bytes >= least);
        let mut sites: Vec<_> = largest
            .map(|(site, bytes, n_blocks)| SiteSum {
                bytes,
                n_blocks,
                frames: self.sites.describe(site),
            })
            .collect();
        sites.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.frames.cmp(&b.frames)));
        sites.truncate(n_sites);
        sites
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::tables;
    use crate::jobs::accounts::Block;
    use heaptide_capture::Allocator;

    #[test]
    fn block_in_unmapped_memory_is_not_read() {
        let mut accounts = Accounts::default();
        let job = accounts.begin(0x10, 1);
        for address in [0x1000, usize::MAX - 0xfff] {
            let block = Block {
                size: 64,
                job,
                site: 0,
                number: 0,
                allocator: Allocator::PymallocMalloc,
            };
            accounts.allocated(address, block);
        }
        let types = Types::new(&[], tables::v3_12::LAYOUT.version);
        // SAFETY: the test has the only accounts, and nothing of Python.
        let rest = unsafe { accounts.rest(JobSelection::Job(job), &types, 1, None) };
        assert_eq!((rest.kept_bytes, rest.n_kept), (128, 2));
        assert!(rest.types.is_empty());
    }

    #[test]
    fn block_is_readable_if_its_searched_part_is_in_one_range() {
        let readable = Readable {
            ranges: vec![0x1000..0x2000, 0x3000..0x4000],
            last: Cell::new(0),
        };
        for (address, size, is_readable) in [
            (0x1000, 0x1000, true),
            (0x3f00, MAX_SEARCHED, true),
            (0x3f00, 1 << 20, true),
            (0x3f10, MAX_SEARCHED, false),
            (0x3f10, 16, true),
            (0x1ff8, 16, false),
            (0x2000, 8, false),
            (0xff8, 16, false),
            (usize::MAX, 8, false),
        ] {
            assert_eq!(
                readable.contains(address, size),
                is_readable,
                "{address:#x}"
            );
        }
    }
}
