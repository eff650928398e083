//! The processes of a run: the program and everything it starts, followed even when their parents are gone.
//!
//! Finding new ones means listing all processes of the machine, which is done only when somebody was born since the
//! last time, and within a budget. Those that are known are read from files that stay open: an open file belongs to the
//! process and not to its number, so a number that is used again confuses nobody.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use heaptide_timeline::Memory;

use crate::budget::Budget;
use crate::procfs::{self, Kept};
use crate::sys;

/// For finding processes, and for the sizes that cost much: shares of one core.
const FINDING_SHARE: f64 = 0.004;
const DEAR_SHARE: f64 = 0.01;
/// Beyond this many, files are opened anew at each look: others need descriptors too.
const MAX_KEPT: usize = 400;
/// A process that was just born may still show its parent's name: it is asked again at these looks.
const LOOKS_AT_NAME: [u32; 4] = [1, 3, 10, 50];

pub struct Member {
    pub number: usize,
    pub pid: u32,
    pub parent: u32,
    pub name: String,
    pub command: String,
    pub memory: Memory,
    start: u64,
    statm: Option<Kept>,
    n_looks: u32,
    dear_at: Option<Instant>,
}

/// What happened since the last look.
#[derive(Default)]
pub struct News {
    /// Numbers of those that are new, or have a new name.
    pub named: Vec<usize>,
    pub ended: Vec<usize>,
}

pub struct Tree {
    root: u32,
    leads_others: bool,
    pub members: Vec<Member>,
    n_ever: usize,
    /// Pids that were looked at and are not ours.
    foreign: HashSet<u32>,
    /// Pids that are or were ours.
    ours: HashSet<u32>,
    loadavg: Option<Kept>,
    last_pid: Option<u64>,
    finding: Budget,
    dear: Budget,
    page_len: u64,
}

impl Tree {
    /// `None` if there is no such process. A program that was there before us may lead a group of which others are part
    /// that it did not start, so its own group and session say nothing.
    pub fn new(root: u32, was_there_before: bool) -> Option<Tree> {
        let stat = procfs::stat(root)?;
        let mut tree = Tree {
            root,
            leads_others: was_there_before,
            members: Vec::new(),
            n_ever: 0,
            foreign: HashSet::new(),
            ours: HashSet::from([root]),
            loadavg: Kept::open("/proc/loadavg").ok(),
            last_pid: None,
            finding: Budget::new(FINDING_SHARE),
            dear: Budget::new(DEAR_SHARE),
            page_len: sys::page_len(),
        };
        tree.add(root, stat);
        Some(tree)
    }

    /// Looks at everything once.
    pub fn look(&mut self, now: Instant) -> News {
        let mut news = News::default();
        if self.finding.allows(now) && self.somebody_was_born() {
            let mut finding = std::mem::replace(&mut self.finding, Budget::new(FINDING_SHARE));
            finding.spend(now, || self.find());
            self.finding = finding;
        }
        self.read_sizes(&mut news);
        self.read_names(&mut news);
        self.read_dear(now);
        news
    }

    fn somebody_was_born(&mut self) -> bool {
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

    fn find(&mut self) {
        let Ok(pids) = procfs::pids() else { return };
        let mut pids: Vec<u32> = pids.collect();
        let there: HashSet<u32> = pids.iter().copied().collect();
        self.foreign.retain(|pid| there.contains(pid));
        let members: HashSet<u32> = self.members.iter().map(|member| member.pid).collect();
        pids.retain(|pid| !members.contains(pid) && !self.foreign.contains(pid));
        let unknown: HashMap<u32, procfs::Stat> = pids
            .iter()
            .filter_map(|&pid| Some((pid, procfs::stat(pid)?)))
            .collect();
        // Parents mostly have the smaller numbers, but numbers wrap round: ancestors are followed to the end instead.
        let mut decided: Vec<u32> = pids
            .into_iter()
            .filter(|pid| unknown.contains_key(pid))
            .collect();
        decided.sort_unstable_by_key(|pid| unknown[pid].start);
        for pid in decided {
            let stat = &unknown[&pid];
            let is_ours = pid != std::process::id()
                && (self.ours.contains(&stat.parent)
                    // Its parent may be gone before anybody looked; a daemon still has its parent's group or session.
                    || self.is_led_by_ours(stat.group)
                    || self.is_led_by_ours(stat.session));
            if !is_ours {
                self.foreign.insert(pid);
            } else if !matches!(stat.state, b'Z' | b'X') {
                self.ours.insert(pid);
                self.add(pid, stat.clone());
            }
        }
    }

    fn is_led_by_ours(&self, leader: u32) -> bool {
        self.ours.contains(&leader) && !(self.leads_others && leader == self.root)
    }

    fn add(&mut self, pid: u32, stat: procfs::Stat) {
        let keeps = self.members.len() < MAX_KEPT;
        self.members.push(Member {
            number: self.n_ever,
            pid,
            parent: stat.parent,
            name: stat.name,
            command: procfs::command_of(pid).unwrap_or_default(),
            memory: Memory::default(),
            start: stat.start,
            statm: keeps.then(|| Kept::open(&statm_path(pid)).ok()).flatten(),
            n_looks: 0,
            dear_at: None,
        });
        self.n_ever += 1;
    }

    fn read_sizes(&mut self, news: &mut News) {
        let page_len = self.page_len;
        self.members.retain_mut(|member| {
            let pages = member.resident_pages();
            match pages {
                Some(pages) if pages > 0 => {
                    member.memory.resident = pages * page_len;
                    member.n_looks += 1;
                    if member.n_looks == 1 {
                        news.named.push(member.number);
                    }
                    true
                }
                _ => {
                    // One that was never seen alive was never written down.
                    if member.n_looks > 0 {
                        news.ended.push(member.number);
                    }
                    false
                }
            }
        });
    }

    fn read_names(&mut self, news: &mut News) {
        for member in &mut self.members {
            if !LOOKS_AT_NAME.contains(&member.n_looks) || member.n_looks == 1 {
                continue;
            }
            let Some(stat) = procfs::stat(member.pid).filter(|stat| stat.start == member.start)
            else {
                continue;
            };
            let command = procfs::command_of(member.pid).unwrap_or_default();
            if (&stat.name, &command) != (&member.name, &member.command) {
                (member.name, member.command) = (stat.name, command);
                news.named.push(member.number);
            }
        }
    }

    /// The one that was not looked at for longest comes first; those never looked at before all.
    fn read_dear(&mut self, now: Instant) {
        for _ in 0..self.members.len() {
            if !self.dear.allows(now) {
                return;
            }
            let Some(member) = self.members.iter_mut().min_by_key(|member| member.dear_at) else {
                return;
            };
            if member.dear_at == Some(now) {
                return;
            }
            member.dear_at = Some(now);
            let sizes = self.dear.spend(now, || procfs::dear_sizes(member.pid));
            if let Some([proportional, unique, swap]) = sizes {
                member.memory.proportional = Some(proportional);
                member.memory.unique = Some(unique);
                member.memory.swap = Some(swap);
            }
        }
    }

    /// Whether the program itself is still there.
    pub fn has_root(&self) -> bool {
        self.members
            .first()
            .is_some_and(|member| member.pid == self.root && member.number == 0)
    }
}

impl Member {
    fn resident_pages(&self) -> Option<u64> {
        let mut buffer = [0; 256];
        match &self.statm {
            Some(file) => procfs::resident_pages(file.read(&mut buffer).ok()?),
            None => {
                let file = Kept::open(&statm_path(self.pid)).ok()?;
                procfs::resident_pages(file.read(&mut buffer).ok()?)
            }
        }
    }
}

fn statm_path(pid: u32) -> String {
    format!("/proc/{pid}/statm")
}
