//! The processes of a run: the program and its descendants, also after their parents have ended.
//!
//! Finding new processes requires a listing of all processes of the machine. It is done only if a process was created
//! since the last listing, and within a budget. Known processes are read from files that stay open. An open file
//! belongs to the process and not to its pid, so a reused pid causes no confusion.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use heaptide_procfs::{self as procfs, KeptFile, Rollup, Stat};
use heaptide_timeline::{Backend, Memory};

use crate::budget::Budget;
use crate::command::{Hide, command_of};
use crate::sys;

/// Shares of one core for finding processes and for the expensive sizes. With the ticks of 64 processes, the total stays
/// below one percent.
const FINDING_SHARE: f64 = 0.003;
const EXPENSIVE_SHARE: f64 = 0.004;
/// The share if the expensive sizes were requested.
const REQUESTED_SHARE: f64 = 0.01;
/// The requested sizes of a new process are read immediately, unless earlier samples exceeded the budget by this much.
const MAX_OWED: Duration = Duration::from_secs(1);
/// After this time, the rest of a round of many large processes is read at the next tick.
const MAX_AT_ONCE: Duration = Duration::from_millis(40);
/// With more processes than this, files are opened again for each sample, to save descriptors.
const MAX_KEPT: usize = 400;
/// A new process may still have its parent's name: its name is read again at these samples.
const NAME_SAMPLES: [u32; 4] = [1, 3, 10, 50];

pub struct Member {
    pub number: usize,
    pub pid: u32,
    pub parent: u32,
    pub name: String,
    pub command: String,
    pub memory: Memory,
    pub start: u64,
    statm: Option<KeptFile>,
    n_samples: u32,
    expensive_at: Option<Instant>,
    /// Whether the process belongs to another user and was counted in [`Tree::n_of_other_users`].
    is_of_other_user: bool,
}

/// Changes since the last sample.
#[derive(Default)]
pub struct Changes {
    /// Numbers of processes that are new or have a new name.
    pub named: Vec<usize>,
    pub ended: Vec<usize>,
}

pub struct Tree {
    root: u32,
    /// Whether the group and the session of the root may contain processes that it did not start.
    may_share_group: bool,
    pub members: Vec<Member>,
    n_ever: usize,
    /// All processes of the machine at the last listing, ascending.
    listing: Vec<u32>,
    /// Pids that belong or belonged to the run.
    own_pids: HashSet<u32>,
    loadavg: Option<KeptFile>,
    last_pid: Option<u64>,
    finding_budget: Budget,
    expensive_budget: Budget,
    /// Whether the expensive sizes were requested. They are read for all processes together: a page that one process no
    /// longer shares counts for another, so sizes of different moments cannot be summed.
    is_expensive_requested: bool,
    /// Start of the unfinished round.
    round: Option<Instant>,
    page_len: u64,
    hide: Hide,
    /// Number of processes of other users. Only their resident size is readable.
    pub n_of_other_users: usize,
}

impl Tree {
    /// `before` are the processes that existed when the program started and cannot be its descendants. If it is empty,
    /// the program was already running. Then its group and session may contain processes that it did not start, so they
    /// are not used to find descendants. Returns `None` if there is no such process.
    pub fn new(root: u32, before: Vec<u32>, backend: Backend, hide: Hide) -> Option<Tree> {
        let stat = Stat::of(root)?;
        let mut tree = Tree {
            root,
            hide,
            may_share_group: before.is_empty(),
            members: Vec::new(),
            n_ever: 0,
            listing: before,
            own_pids: HashSet::from([root]),
            loadavg: KeptFile::loadavg().ok(),
            last_pid: None,
            finding_budget: Budget::new(FINDING_SHARE),
            expensive_budget: Budget::new(match backend {
                Backend::Rss => EXPENSIVE_SHARE,
                Backend::Pss | Backend::Uss => REQUESTED_SHARE,
            }),
            is_expensive_requested: backend != Backend::Rss,
            round: None,
            page_len: sys::page_len(),
            n_of_other_users: 0,
        };
        tree.add(root, stat);
        Some(tree)
    }

    /// Reads the requested sizes for every sample, without a limit on the time it takes.
    pub fn without_budget(mut self) -> Tree {
        if self.is_expensive_requested {
            self.expensive_budget = Budget::new(f64::INFINITY);
        }
        self
    }

    /// Samples all processes once.
    pub fn sample(&mut self, now: Instant) -> Changes {
        let mut changes = Changes::default();
        if self.finding_budget.allows(now) && self.may_have_new_processes() {
            let before = sys::cpu_time();
            self.find();
            self.finding_budget
                .pay(now, sys::cpu_time().saturating_sub(before));
        }
        self.read_sizes(&mut changes);
        self.read_names(&mut changes);
        if self.is_expensive_requested {
            self.read_round(now);
        } else {
            self.read_expensive(now);
        }
        changes
    }

    fn may_have_new_processes(&mut self) -> bool {
        let mut buffer = [0; 256];
        let text = self
            .loadavg
            .as_ref()
            .and_then(|file| file.read(&mut buffer).ok());
        let last = text.and_then(procfs::last_pid);
        let is_same = last.is_some() && last == self.last_pid;
        self.last_pid = last;
        !is_same
    }

    /// Finds new members. Only processes that were not in the last listing are read.
    fn find(&mut self) {
        let listing = procfs::pids();
        let mut unknown: Vec<(u32, Stat)> = listing
            .iter()
            .filter(|pid| self.listing.binary_search(pid).is_err())
            .filter_map(|&pid| Some((pid, Stat::of(pid)?)))
            .collect();
        // Parents are older than their children; pids may wrap around, so they do not give the order.
        unknown.sort_by_key(|(pid, stat)| (stat.start, *pid));
        for (pid, stat) in unknown {
            let is_in_run = pid != std::process::id()
                && pid != self.root
                && (self.own_pids.contains(&stat.parent)
                    // Its parent may have ended before Heaptide saw the process; a daemon still has its parent's group
                    // or session.
                    || self.is_led_by_run(stat.group)
                    || self.is_led_by_run(stat.session));
            if is_in_run && !matches!(stat.state, b'Z' | b'X') {
                self.own_pids.insert(pid);
                self.add(pid, stat);
            }
        }
        self.listing = listing;
    }

    fn is_led_by_run(&self, leader: u32) -> bool {
        self.own_pids.contains(&leader) && !(self.may_share_group && leader == self.root)
    }

    fn add(&mut self, pid: u32, stat: Stat) {
        let keeps_open = self.members.len() < MAX_KEPT;
        let command = command_of(pid, self.hide).unwrap_or_default();
        let is_fork = self
            .members
            .iter()
            .any(|member| member.pid == stat.parent && member.command == command);
        self.members.push(Member {
            number: self.n_ever,
            pid,
            parent: stat.parent,
            name: stat.name,
            command,
            memory: self.first_memory(is_fork),
            start: stat.start,
            statm: keeps_open.then(|| KeptFile::statm(pid).ok()).flatten(),
            n_samples: 0,
            expensive_at: None,
            is_of_other_user: false,
        });
        self.n_ever += 1;
    }

    /// Until its sizes are read, a process counts with its resident size. A forked child shares all its pages with its
    /// parent, where they are already counted.
    fn first_memory(&self, is_fork: bool) -> Memory {
        let shared = (is_fork && self.is_expensive_requested).then_some(0);
        Memory {
            proportional: shared,
            unique: shared,
            swap: shared,
            ..Memory::default()
        }
    }

    fn read_sizes(&mut self, changes: &mut Changes) {
        let page_len = self.page_len;
        self.members.retain_mut(|member| {
            let pages = member.resident_pages();
            match pages {
                Some(pages) if pages > 0 => {
                    member.memory.resident = pages * page_len;
                    member.n_samples += 1;
                    if member.n_samples == 1 {
                        changes.named.push(member.number);
                    }
                    true
                }
                _ => {
                    // A process that was never seen alive was never recorded.
                    if member.n_samples > 0 {
                        changes.ended.push(member.number);
                    }
                    false
                }
            }
        });
    }

    fn read_names(&mut self, changes: &mut Changes) {
        for member in &mut self.members {
            if !NAME_SAMPLES.contains(&member.n_samples) || member.n_samples == 1 {
                continue;
            }
            let Some(stat) = Stat::of(member.pid).filter(|stat| stat.start == member.start) else {
                continue;
            };
            let command = command_of(member.pid, self.hide).unwrap_or_default();
            if (&stat.name, &command) != (&member.name, &member.command) {
                (member.name, member.command) = (stat.name, command);
                changes.named.push(member.number);
            }
        }
    }

    /// Reads the expensive sizes of the processes whose sizes are oldest, as long as the budget allows it.
    fn read_expensive(&mut self, now: Instant) {
        for _ in 0..self.members.len() {
            if !self.expensive_budget.allows(now) {
                return;
            }
            let Some(member) = self
                .members
                .iter_mut()
                .min_by_key(|member| member.expensive_at)
            else {
                return;
            };
            if member.expensive_at == Some(now) {
                return;
            }
            let before = sys::cpu_time();
            self.n_of_other_users += usize::from(member.read_expensive(now));
            self.expensive_budget
                .pay(now, sys::cpu_time().saturating_sub(before));
        }
    }

    /// Reads the expensive sizes of all processes in turn, when the budget allows it or a process is new.
    fn read_round(&mut self, now: Instant) {
        let has_new_process = self
            .members
            .iter()
            .any(|member| member.expensive_at.is_none());
        let is_due = self.expensive_budget.allows(now)
            || has_new_process && self.expensive_budget.owed(now) < MAX_OWED;
        if self.round.is_none() && !is_due {
            return;
        }
        let round = *self.round.get_or_insert(now);
        let before = sys::cpu_time();
        let mut cost = Duration::ZERO;
        let left = self
            .members
            .iter_mut()
            .filter(|member| member.expensive_at < Some(round));
        let mut is_whole = true;
        for member in left {
            if cost >= MAX_AT_ONCE {
                is_whole = false;
                break;
            }
            self.n_of_other_users += usize::from(member.read_expensive(now));
            cost = sys::cpu_time().saturating_sub(before);
        }
        if is_whole {
            self.round = None;
        }
        self.expensive_budget.pay(now, cost);
    }

    /// Returns whether the program itself still exists.
    pub fn has_root(&self) -> bool {
        self.members
            .first()
            .is_some_and(|member| member.pid == self.root && member.number == 0)
    }
}

impl Member {
    /// Reads the expensive sizes. Returns whether this call found that the process belongs to another user, so that
    /// they are not readable.
    fn read_expensive(&mut self, now: Instant) -> bool {
        self.expensive_at = Some(now);
        if let Some(rollup) = Rollup::of(self.pid) {
            self.memory.proportional = Some(rollup.proportional);
            self.memory.unique = Some(rollup.unique);
            self.memory.swap = Some(rollup.swapped);
            return false;
        }
        let is_found = !self.is_of_other_user && procfs::is_rollup_forbidden(self.pid);
        self.is_of_other_user |= is_found;
        is_found
    }

    fn resident_pages(&self) -> Option<u64> {
        let mut buffer = [0; 256];
        match &self.statm {
            Some(file) => procfs::resident_pages(file.read(&mut buffer).ok()?),
            None => {
                let file = KeptFile::statm(self.pid).ok()?;
                procfs::resident_pages(file.read(&mut buffer).ok()?)
            }
        }
    }
}
