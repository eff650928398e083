//! The rest of a job: the memory that it allocated and did not free, by allocation site and by type.

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

impl Accounts {
    /// Returns the rest of one job or of all jobs: sums, the largest stacks, all types, and the objects of one type.
    ///
    /// # Safety
    /// The caller holds the lock around the accounts, and the GIL. Every block in the table is alive as long as the lock
    /// is held, since a release is reported before it happens.
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
            // SAFETY: the caller keeps the blocks of the table alive.
            let object_in_block = || unsafe {
                let is_pythons = block.allocator.is_pythons();
                is_pythons.then(|| types.object_in(address, block.size))?
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
                // SAFETY: the block is alive, starts at a multiple of 8 and has these words. Volatile, because some may
                // never have been written, and a thread without the GIL may write others meanwhile.
                let pointer = unsafe { (at as *const usize).read_volatile() };
                sum.bytes += owned.remove(&pointer).unwrap_or(0) as u64;
            }
            // SAFETY: the caller keeps the blocks of the table alive.
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
