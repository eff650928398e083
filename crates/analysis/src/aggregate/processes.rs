//! Groups of processes: single processes, or those of the same host or with the same value of a label.

use std::collections::BTreeMap;

use crate::load::{Process, Session};
use crate::model::ProcessGroup;

/// The property that the processes of a group share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessGrouping {
    /// Each process is a group.
    Process,
    Host,
    /// The label with this key.
    Label(String),
}

impl ProcessGrouping {
    /// Parses `process`, `host`, or `label:role` for a label. `None` for any other text.
    pub fn parse(text: &str) -> Option<ProcessGrouping> {
        match text.split_once(':') {
            None if text == "process" => Some(ProcessGrouping::Process),
            None if text == "host" => Some(ProcessGrouping::Host),
            Some(("label", key)) if !key.is_empty() => Some(ProcessGrouping::Label(key.to_owned())),
            _ => None,
        }
    }

    /// The name of the process's group, or a name in angle brackets if the process is in no group.
    pub fn group_of(&self, session: &Session, process: &Process) -> String {
        match self {
            ProcessGrouping::Process => format!("process {}", session.shown_name(process)),
            ProcessGrouping::Host if process.header.host.is_empty() => "<unknown host>".to_owned(),
            ProcessGrouping::Host => process.header.host.clone(),
            ProcessGrouping::Label(key) => {
                let labels = process.header.labels();
                let value = labels.into_iter().find(|(known, _)| known == key);
                value.map_or_else(|| format!("<no {key}>"), |(_, value)| value)
            }
        }
    }
}

/// Returns the sums of each group, the largest peak first.
pub fn process_groups(session: &Session, grouping: &ProcessGrouping) -> Vec<ProcessGroup> {
    let mut groups: BTreeMap<String, ProcessGroup> = BTreeMap::new();
    for process in &session.processes {
        let name = grouping.group_of(session, process);
        let group = groups.entry(name).or_default();
        group.n_processes += 1;
        group.allocated += process.sums.total;
        group.peak += process.sums.peak;
        group.live += process.sums.live;
    }
    let groups = groups.into_iter();
    let mut groups: Vec<ProcessGroup> = groups
        .map(|(name, group)| ProcessGroup { name, ..group })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.peak.bytes));
    groups
}
