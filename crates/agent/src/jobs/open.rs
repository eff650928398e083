//! The accounts that are not settled yet, by the number of their job.
//!
//! Nearly every event changes one account, that of the current job. So a cache has the positions of accounts by the lowest
//! bits of the job's number. Jobs are numbered in order, so jobs that run at the same time seldom share these bits.

use std::time::{Duration, Instant};

use super::NO_JOB;
use super::sites::Words;

const N_CACHED: usize = 64;

pub(super) struct Account {
    /// Jobs of the same name are a group.
    pub group: u32,
    pub begun: Instant,
    /// `None` while the job runs.
    pub length: Option<Duration>,
    /// Live blocks that the job allocated.
    pub kept_bytes: u64,
    pub n_kept: u64,
    /// The high-water mark of `kept_bytes`.
    pub peak_bytes: u64,
    /// Blocks of earlier jobs that the job freed.
    pub released_bytes: u64,
    pub allocated_bytes: u64,
    pub n_allocated: u64,
}

impl Account {
    pub fn new(group: u32) -> Account {
        Account {
            group,
            begun: Instant::now(),
            length: None,
            kept_bytes: 0,
            n_kept: 0,
            peak_bytes: 0,
            released_bytes: 0,
            allocated_bytes: 0,
            n_allocated: 0,
        }
    }

    /// Charges the job for a block, or for a part of one.
    #[inline(always)]
    pub fn keep(&mut self, size: usize) {
        self.kept_bytes += size as u64;
        self.n_kept += 1;
        self.peak_bytes = self.peak_bytes.max(self.kept_bytes);
    }

    /// Undoes [`Account::keep`], except that the peak stays.
    #[inline(always)]
    pub fn drop_kept(&mut self, size: usize) {
        self.kept_bytes = self.kept_bytes.saturating_sub(size as u64);
        self.n_kept = self.n_kept.saturating_sub(1);
    }
}

/// The account of one job; that of `NO_JOB` is unused.
struct Open {
    job: u32,
    account: Account,
}

pub(super) struct OpenAccounts {
    accounts: Vec<Open>,
    by_job: Words<u32, u32>,
    unused: Vec<u32>,
    cached: [u32; N_CACHED],
}

impl Default for OpenAccounts {
    fn default() -> OpenAccounts {
        OpenAccounts {
            accounts: Vec::new(),
            by_job: Words::default(),
            unused: Vec::new(),
            cached: [0; N_CACHED],
        }
    }
}

impl OpenAccounts {
    pub fn insert(&mut self, job: u32, account: Account) {
        let open = Open { job, account };
        let at = match self.unused.pop() {
            Some(at) => {
                self.accounts[at as usize] = open;
                at
            }
            None => {
                self.accounts.push(open);
                self.accounts.len() as u32 - 1
            }
        };
        self.by_job.insert(job, at);
    }

    pub fn get(&self, job: u32) -> Option<&Account> {
        let at = self.by_job.get(&job)?;
        Some(&self.accounts[*at as usize].account)
    }

    pub fn contains(&self, job: u32) -> bool {
        self.by_job.contains_key(&job)
    }

    #[inline(always)]
    pub fn get_mut(&mut self, job: u32) -> Option<&mut Account> {
        if job == NO_JOB {
            return None;
        }
        let cached = self.cached[job as usize % N_CACHED] as usize;
        let at = match self.accounts.get(cached) {
            Some(open) if open.job == job => cached,
            _ => self.find(job)?,
        };
        Some(&mut self.accounts[at].account)
    }

    #[cold]
    #[inline(never)]
    fn find(&mut self, job: u32) -> Option<usize> {
        let at = *self.by_job.get(&job)?;
        self.cached[job as usize % N_CACHED] = at;
        Some(at as usize)
    }

    pub fn remove(&mut self, job: u32) -> Option<Account> {
        let at = self.by_job.remove(&job)?;
        let unused = Open {
            job: NO_JOB,
            account: Account::new(NO_JOB),
        };
        self.unused.push(at);
        Some(std::mem::replace(&mut self.accounts[at as usize], unused).account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_share_a_position_of_the_cache_keep_separate_accounts() {
        let mut accounts = OpenAccounts::default();
        let jobs = [1, 1 + N_CACHED as u32, 1 + 2 * N_CACHED as u32];
        for job in jobs {
            accounts.insert(job, Account::new(job));
        }
        for _ in 0..2 {
            for job in jobs {
                assert_eq!(
                    accounts.get_mut(job).map(|account| account.group),
                    Some(job)
                );
            }
        }
        assert!(accounts.remove(jobs[1]).is_some());
        assert!(accounts.get_mut(jobs[1]).is_none());
        // The next job takes the position of the one that was removed.
        accounts.insert(2, Account::new(2));
        assert!(accounts.get_mut(jobs[1]).is_none());
        assert_eq!(accounts.get_mut(2).map(|account| account.group), Some(2));
        assert_eq!(
            accounts.get(jobs[2]).map(|account| account.group),
            Some(jobs[2])
        );
    }

    #[test]
    fn there_is_no_account_without_a_job() {
        let mut accounts = OpenAccounts::default();
        accounts.insert(1, Account::new(0));
        accounts.remove(1);
        assert!(accounts.get_mut(NO_JOB).is_none());
    }
}
