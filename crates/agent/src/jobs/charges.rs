//! Charges each job for the blocks that it allocated. If several jobs extend a block, each is charged for the bytes that it
//! added.
//!
//! A job is charged as long as the block is alive. The numbers of a settled job are final. If another job frees a block of
//! a settled job, the bytes count as `released_bytes` of the job that frees it.
//!
//! Two events extend a block: a `realloc`, and the replacement of a table by a larger one ([`Accounts::replaced`]).
//! ```text
//! job 1 allocates 100 bytes   block: size 100, job 1
//! job 2 resizes them to 130   block: size 130, job 2; parts: job 1, 100 bytes   (job 2 is charged for 30)
//! ```

use super::NO_JOB;
use super::accounts::{Accounts, Block};

/// The bytes of a block that one job added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub job: u32,
    pub site: u32,
    pub size: usize,
}

/// Yields the parts of other jobs, oldest first, and the rest of the block, which the job of the block added.
fn split<'a>(block: &Block, others: &'a [Part]) -> impl Iterator<Item = Part> + use<'a> {
    let size_of_others = others.iter().map(|part| part.size).sum();
    let own = Part {
        job: block.job,
        site: block.site,
        size: block.size.saturating_sub(size_of_others),
    };
    let has_own = own.size > 0 || others.is_empty();
    others.iter().copied().chain(has_own.then_some(own))
}

impl Accounts {
    /// Yields the part of each job that is charged for a block.
    pub(super) fn parts_of(&self, block: &Block) -> impl Iterator<Item = Part> {
        split(
            block,
            self.parts.get(&block.number).map_or(&[], Vec::as_slice),
        )
    }

    fn for_each_part(&mut self, block: Block, mut change: impl FnMut(&mut Accounts, Part)) {
        let others = match self.parts.is_empty() {
            true => Vec::new(),
            false => self.parts.remove(&block.number).unwrap_or_default(),
        };
        for part in split(&block, &others) {
            change(self, part);
        }
        if !others.is_empty() {
            self.parts.insert(block.number, others);
        }
    }

    /// Charges jobs for a new block.
    pub(super) fn charge(&mut self, block: Block) {
        self.for_each_part(block, |accounts, part| {
            if let Some(account) = accounts.jobs.get_mut(part.job) {
                account.keep(part.size);
            }
        });
    }

    /// Stops charging jobs for a block that job `by` releases.
    pub(super) fn discharge(&mut self, block: Block, by: u32) {
        self.for_each_part(block, |accounts, part| accounts.discharge_part(part, by));
    }

    #[inline]
    fn discharge_part(&mut self, part: Part, by: u32) {
        if let Some(owner) = self.jobs.get_mut(part.job) {
            owner.drop_kept(part.size);
        } else if part.job != NO_JOB {
            self.discharge_settled(part, by);
        }
    }

    /// Not inlined, because most blocks are freed by the job that allocated them. Blocks that no job allocated do not
    /// count: otherwise a job that consumes its message would seem to leave a negative number of bytes.
    #[cold]
    fn discharge_settled(&mut self, part: Part, by: u32) {
        if let Some(owner) = self.settled.get_mut(&part.job) {
            owner.n_kept = owner.n_kept.saturating_sub(1);
            let bytes = self.group_bytes.entry(owner.group).or_default();
            *bytes = bytes.saturating_sub(part.size as u64);
        }
        if let Some(account) = self.jobs.get_mut(by) {
            account.released_bytes += part.size as u64;
        }
    }

    /// Undoes [`Accounts::discharge`].
    pub(super) fn charge_again(&mut self, block: Block, by: u32) {
        self.for_each_part(block, |accounts, part| {
            if let Some(owner) = accounts.jobs.get_mut(part.job) {
                owner.keep(part.size);
                return;
            }
            if let Some(owner) = accounts.settled.get_mut(&part.job) {
                owner.n_kept += 1;
                *accounts.group_bytes.entry(owner.group).or_default() += part.size as u64;
            }
            if part.job == NO_JOB {
                return;
            }
            if let Some(account) = accounts.jobs.get_mut(by) {
                account.released_bytes = account.released_bytes.saturating_sub(part.size as u64);
            }
        });
    }

    /// Keeps the parts that unsettled jobs added to the old version of a block, as far as the new version has room for
    /// them. The job that resizes the block is charged for the rest. The rest includes the parts of settled jobs, which
    /// this job released.
    pub(super) fn keep_parts(&mut self, block: Block, old: Block) {
        let parts = self.parts.remove(&old.number).unwrap_or_default();
        let mut others: Vec<Part> = split(&old, &parts).collect();
        let mut room = block.size;
        others.retain_mut(|part| {
            part.size = part.size.min(room);
            let is_kept = self.is_kept(*part, block.job);
            room -= if is_kept { part.size } else { 0 };
            is_kept
        });
        if !others.is_empty() {
            self.parts.insert(block.number, others);
        }
    }

    /// Treats the block at `newest` as the new version of `old` if jobs share the old block. A table that grows is copied
    /// to a larger block, and the smaller block is freed next. Without this, the jobs whose entries are in the table
    /// would seem to have freed them, and the job that adds one entry would seem to have allocated all of them.
    pub(super) fn replaced(&mut self, newest: usize, old: Block, by: u32) {
        // Most blocks are freed by the only job that is charged for them.
        if newest == 0 || old.job == by && self.parts.is_empty() {
            return;
        }
        let Some(block) = self.blocks.get(newest).copied() else {
            return;
        };
        let is_larger_table =
            block.allocator.is_pythons() && old.allocator.is_pythons() && block.size >= old.size;
        let mut parts = self.parts_of(&old);
        if is_larger_table && parts.any(|part| self.is_kept(part, block.job)) {
            drop(parts);
            self.discharge(block, block.job);
            self.keep_parts(block, old);
            self.charge(block);
        }
    }

    /// Returns whether the job of a part stays charged for it when job `by` resizes the block.
    fn is_kept(&self, part: Part, by: u32) -> bool {
        part.size > 0 && part.job != by && self.jobs.contains(part.job)
    }
}

#[cfg(test)]
mod tests {
    use heaptide_capture::Allocator;

    use super::*;

    fn block(size: usize, job: u32, number: u32) -> Block {
        Block {
            size,
            job,
            site: job,
            number,
            allocator: Allocator::PymallocRealloc,
        }
    }

    /// Returns the bytes that a job kept, the bytes that it released, and the number of blocks that it kept.
    fn sums(accounts: &Accounts, job: u32) -> (u64, u64, u64) {
        let account = accounts.jobs.get(job).unwrap();
        (account.kept_bytes, account.released_bytes, account.n_kept)
    }

    fn resize(accounts: &mut Accounts, address: usize, block: Block) {
        let old = accounts.resizing(address, block.job).unwrap();
        accounts.resized(address, block, old);
    }

    /// Three jobs: the first allocated 100 bytes, the second extended them to 130, the third to 190.
    fn extended_by_three() -> (Accounts, [u32; 3]) {
        let mut accounts = Accounts::default();
        let jobs = [0x10, 0x20, 0x30].map(|token| accounts.begin(token, 1));
        accounts.allocated(0x100, block(100, jobs[0], 1));
        resize(&mut accounts, 0x100, block(130, jobs[1], 2));
        resize(&mut accounts, 0x100, block(190, jobs[2], 3));
        (accounts, jobs)
    }

    #[test]
    fn each_job_is_charged_for_the_bytes_by_which_it_extended_a_block() {
        let (mut accounts, [one, two, three]) = extended_by_three();
        assert_eq!(sums(&accounts, one), (100, 0, 1));
        assert_eq!(sums(&accounts, two), (30, 0, 1));
        assert_eq!(sums(&accounts, three), (60, 0, 1));
        assert_eq!(accounts.jobs.get(two).unwrap().allocated_bytes, 130);
        assert_eq!(accounts.jobs.get(two).unwrap().peak_bytes, 30);
        // A job that extends the block once more has one part.
        resize(&mut accounts, 0x100, block(200, one, 4));
        assert_eq!(sums(&accounts, one), (110, 0, 1));
        assert_eq!(
            accounts
                .parts_of(accounts.blocks.get(0x100).unwrap())
                .count(),
            3
        );
    }

    #[test]
    fn freeing_a_shared_block_frees_the_parts_of_all_jobs() {
        let (mut accounts, jobs) = extended_by_three();
        accounts.released(0x100, jobs[1]);
        for job in jobs {
            assert_eq!(sums(&accounts, job), (0, 0, 0));
        }
        assert!(accounts.parts.is_empty());
    }

    #[test]
    fn shrinking_a_shared_block_takes_the_bytes_of_the_job_that_shrinks_it_first() {
        let (mut accounts, [one, two, three]) = extended_by_three();
        resize(&mut accounts, 0x100, block(140, three, 4));
        assert_eq!(sums(&accounts, three), (10, 0, 1));
        resize(&mut accounts, 0x100, block(110, three, 5));
        assert_eq!(sums(&accounts, three), (0, 0, 0));
        assert_eq!(sums(&accounts, two), (10, 0, 1));
        assert_eq!(sums(&accounts, one), (100, 0, 1));
    }

    #[test]
    fn extending_a_block_of_a_settled_job_releases_its_part() {
        let (mut accounts, [one, two, three]) = extended_by_three();
        accounts.settle(one);
        resize(&mut accounts, 0x100, block(250, two, 4));
        // The second job released the 100 bytes of the settled job. 60 bytes belong to the third job, which runs.
        assert_eq!(sums(&accounts, two), (190, 100, 1));
        assert_eq!(sums(&accounts, three), (60, 0, 1));
        assert_eq!(accounts.live_bytes_of_name(two), Some(190));
    }

    #[test]
    fn a_block_of_an_unsettled_job_that_another_frees_is_subtracted_once() {
        let mut accounts = Accounts::default();
        let (one, two) = (accounts.begin(0x10, 1), accounts.begin(0x20, 1));
        accounts.allocated(0x100, block(500, one, 1));
        accounts.end(one);
        accounts.released(0x100, two);
        assert_eq!(sums(&accounts, one), (0, 0, 0));
        assert_eq!(sums(&accounts, two), (0, 0, 0));
    }

    #[test]
    fn a_failed_resize_of_a_shared_block_changes_nothing() {
        let (mut accounts, jobs) = extended_by_three();
        let before = jobs.map(|job| sums(&accounts, job));
        let old = accounts.resizing(0x100, jobs[0]).unwrap();
        accounts.not_released(0x100, old, jobs[0]);
        assert_eq!(jobs.map(|job| sums(&accounts, job)), before);
        accounts.released(0x100, jobs[0]);
        assert_eq!(jobs.map(|job| sums(&accounts, job)), [(0, 0, 0); 3]);
    }

    #[test]
    fn a_table_that_is_copied_to_a_larger_block_keeps_the_parts_of_running_jobs() {
        let mut accounts = Accounts::default();
        let (one, two) = (accounts.begin(0x10, 1), accounts.begin(0x20, 1));
        accounts.allocated(0x100, block(500, one, 1));
        accounts.allocated(0x900, block(1000, two, 2));
        accounts.released_after(0x900, 0x100, two);
        assert_eq!(sums(&accounts, one), (500, 0, 1));
        assert_eq!(sums(&accounts, two), (500, 0, 1));
        // The second job copies its own table, which holds entries of the first.
        accounts.allocated(0x100, block(2000, two, 3));
        accounts.released_after(0x100, 0x900, two);
        assert_eq!(sums(&accounts, one), (500, 0, 1));
        assert_eq!(sums(&accounts, two), (1500, 0, 1));
    }

    #[test]
    fn a_smaller_block_does_not_replace_a_table() {
        let mut accounts = Accounts::default();
        let (one, two) = (accounts.begin(0x10, 1), accounts.begin(0x20, 1));
        accounts.allocated(0x100, block(500, one, 1));
        accounts.allocated(0x900, block(100, two, 2));
        accounts.released_after(0x900, 0x100, two);
        assert_eq!(sums(&accounts, one), (0, 0, 0));
        assert_eq!(sums(&accounts, two), (100, 0, 1));
    }
}
