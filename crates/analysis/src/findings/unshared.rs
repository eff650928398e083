//! A forked child that has copied the memory it shared with its parent.

use heaptide_capture::MemoryPart;

use super::{MAX_PER_CHECK, kept_free};
use crate::load::{Process, Session};
use crate::model::finding::SentenceValue::{self, Bytes};
use crate::model::{Finding, Sentence};

struct Unshared {
    /// The names of the child and its parent.
    names: [String; 2],
    pid: u32,
    parent_pid: u32,
    /// Bytes shared at the fork, and the part of these that was still shared at the end.
    inherited_bytes: u64,
    shared_bytes: u64,
}

impl Unshared {
    fn unshared_bytes(&self) -> u64 {
        self.inherited_bytes - self.shared_bytes
    }
}

pub fn find(session: &Session) -> Vec<Finding> {
    let all = &session.processes;
    let forks = all.iter().filter_map(|process| unshared(session, process));
    let mut forks: Vec<Unshared> = forks
        .filter(|fork| fork.unshared_bytes() >= kept_free::MIN_BYTES)
        .collect();
    forks.sort_by_key(|fork| std::cmp::Reverse(fork.unshared_bytes()));
    forks.truncate(MAX_PER_CHECK);
    forks.iter().map(finding).collect()
}

/// `None` unless the process was forked from one that was also recorded.
fn unshared(session: &Session, process: &Process) -> Option<Unshared> {
    let parent_pid = process.header.parent_pid;
    let mut parents = session.processes.iter();
    let identity = process.header.identity();
    let parent = parents.find(|parent| {
        parent.header.pid == parent_pid && parent.header.identity().shares_pids_with(&identity)
    })?;
    // A child that executed another program shares nothing with its parent.
    let is_fork = parent.header.mode.follow_fork && parent.header.session == process.header.session;
    let memory = &process.registry.memory;
    let inherited_bytes = *memory.get(&MemoryPart::AnonymousAtStart)?;
    let shared_bytes = *memory.get(&MemoryPart::SharedAnonymous)?;
    is_fork.then(|| Unshared {
        names: [session.shown_name(process), session.shown_name(parent)],
        pid: process.header.pid,
        parent_pid,
        inherited_bytes,
        shared_bytes: shared_bytes.min(inherited_bytes),
    })
}

fn finding(fork: &Unshared) -> Finding {
    Finding {
        name: "unshared",
        location: None,
        caller: None,
        user: None,
        headline: Sentence::new(
            "process {} no longer shares the memory it inherited from process {}",
            fork.names.clone().map(SentenceValue::Process),
        ),
        evidence: vec![Sentence::new(
            "of {} shared at the fork, {} were still shared at the end; {} were copied or freed",
            [
                Bytes(fork.inherited_bytes),
                Bytes(fork.shared_bytes),
                Bytes(fork.unshared_bytes()),
            ],
        )],
        advice: "writing to an object, including its reference count, copies its page: load less before the fork, or call \
                 gc.freeze() before it",
        numbers: vec![
            ("pid", fork.pid.into()),
            ("parent_pid", fork.parent_pid.into()),
            ("inherited_bytes", fork.inherited_bytes.into()),
            ("shared_bytes", fork.shared_bytes.into()),
        ],
        measure: None,
    }
}
