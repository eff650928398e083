//! The identity of a process: a process ID alone is not unique.
//!
//! Every container has a process 1, other hosts have the same process IDs, and a host reuses them. So a process is
//! identified by its host name and boot ID, its pid namespace, its process ID and its start time. Files store
//! the process ID, the host name, and the other parts as *facts*: a list of keys and values that later releases can extend.
//! Files of older releases have fewer facts. A part that is unknown for one of two processes is not compared.

use std::fmt;
use std::str::FromStr;

use crate::glob;

/// Facts about a process, as files store them.
pub type Facts = Vec<(String, String)>;

/// Keys of facts. `procfs::process_facts` reads their values.
pub const BOOT_ID: &str = "boot_id";
pub const PID_NAMESPACE: &str = "pid_namespace";
pub const START: &str = "start";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub pid: u32,
    /// Empty if unknown, like the next three fields.
    pub host: String,
    /// Start of the process in seconds since boot, such as `83456.12s`. Two decimals are the kernel's resolution.
    pub start: String,
    pub pid_namespace: String,
    pub boot_id: String,
}

impl Identity {
    pub fn new(pid: u32, host: &str, facts: &[(String, String)]) -> Identity {
        let value = |wanted: &str| {
            let fact = facts.iter().find(|(key, _)| key == wanted);
            fact.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        Identity {
            pid,
            host: host.to_owned(),
            start: value(START),
            pid_namespace: value(PID_NAMESPACE),
            boot_id: value(BOOT_ID),
        }
    }

    /// The parts that distinguish processes with the same ID, the most readable first.
    fn parts(&self) -> [&str; 4] {
        [&self.host, &self.start, &self.pid_namespace, &self.boot_id]
    }

    /// The parts by their names in JSON; `None` if unknown.
    pub fn named_parts(&self) -> [(&'static str, Option<&str>); 4] {
        let names = ["host", START, PID_NAMESPACE, BOOT_ID];
        let parts = self.parts();
        [0, 1, 2, 3].map(|at| (names[at], Some(parts[at]).filter(|part| !part.is_empty())))
    }

    /// Whether all parts that are known for both processes are equal.
    pub fn is_same(&self, other: &Identity) -> bool {
        let mut parts = self.parts().into_iter().zip(other.parts());
        self.pid == other.pid && !parts.any(|(one, another)| differ(one, another))
    }

    /// Whether both processes get their IDs from the same kernel and pid namespace.
    pub fn shares_pids_with(&self, other: &Identity) -> bool {
        !differ(&self.host, &other.host)
            && !differ(&self.boot_id, &other.boot_id)
            && !differ(&self.pid_namespace, &other.pid_namespace)
    }

    /// The shortest text that selects this process and none of the others: `4711`, `1@web-2`, `4711@83456.12s`.
    /// [`ProcessSelector`] parses it.
    pub fn name_among<'a>(&self, others: impl IntoIterator<Item = &'a Identity>) -> String {
        let others = others.into_iter();
        let mut rivals: Vec<&Identity> = others
            .filter(|other| other.pid == self.pid && !self.is_same(other))
            .collect();
        let mut name = self.pid.to_string();
        for (at, part) in self.parts().into_iter().enumerate() {
            let n_before = rivals.len();
            rivals.retain(|rival| !differ(part, rival.parts()[at]));
            if rivals.len() < n_before {
                name += "@";
                name += part;
            }
        }
        name
    }
}

/// Returns the name of each process, distinct for distinct processes.
pub fn names(processes: &[Identity]) -> Vec<String> {
    let name = |process: &Identity| process.name_among(processes);
    processes.iter().map(name).collect()
}

fn differ(one: &str, other: &str) -> bool {
    !one.is_empty() && !other.is_empty() && one != other
}

/// A user's choice of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessSelector {
    /// One process: its ID, and further parts of its identity if the ID is ambiguous: `1`, `1@web-2`, `4711@83456.12s`.
    One { pid: u32, parts: Vec<String> },
    /// All processes whose role or program matches a pattern: `celery*`.
    Titled(String),
}

impl ProcessSelector {
    fn matches(&self, process: &Identity, title: &str) -> bool {
        match self {
            ProcessSelector::One { pid, parts } => {
                let has_part = |part: &String| process.parts().contains(&part.as_str());
                *pid == process.pid && parts.iter().all(has_part)
            }
            ProcessSelector::Titled(pattern) => glob::matches(pattern, title),
        }
    }

    /// Returns the indices of the selected processes. `titles` are in the order of `processes`. Fails with the names of all
    /// matches if a process ID is ambiguous, and with an empty list if nothing matches.
    pub fn choose(
        &self,
        processes: &[Identity],
        titles: &[String],
    ) -> Result<Vec<usize>, Vec<String>> {
        let matching = processes.iter().zip(titles).enumerate();
        let matching: Vec<(usize, &Identity)> = matching
            .filter(|(_, (process, title))| self.matches(process, title))
            .map(|(at, (process, _))| (at, process))
            .collect();
        if matches!(self, ProcessSelector::Titled(_)) && !matching.is_empty() {
            return Ok(matching.into_iter().map(|(at, _)| at).collect());
        }
        let mut distinct: Vec<&Identity> = Vec::new();
        for (_, process) in &matching {
            if !distinct.iter().any(|known| known.is_same(process)) {
                distinct.push(process);
            }
        }
        match distinct.len() {
            1 => Ok(matching.into_iter().map(|(at, _)| at).collect()),
            _ => Err(distinct
                .iter()
                .map(|process| process.name_among(processes))
                .collect()),
        }
    }
}

impl FromStr for ProcessSelector {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ProcessSelector, &'static str> {
        let mut words = text.split('@').map(str::trim);
        let pid = words.next().and_then(|word| word.parse().ok());
        let parts: Vec<String> = words.map(str::to_owned).collect();
        match pid {
            Some(pid) if parts.iter().all(|part| !part.is_empty()) => {
                Ok(ProcessSelector::One { pid, parts })
            }
            None if !text.contains('@') && text.contains(char::is_alphabetic) => {
                Ok(ProcessSelector::Titled(text.trim().to_owned()))
            }
            _ => Err(
                "must be a process ID, such as 4711, a process ID and a host: 1@web-2, or the role or program: celery*",
            ),
        }
    }
}

impl fmt::Display for ProcessSelector {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            ProcessSelector::One { pid, parts } => {
                write!(f, "{pid}")?;
                parts.iter().try_for_each(|part| write!(f, "@{part}"))
            }
            ProcessSelector::Titled(pattern) => f.write_str(pattern),
        }
    }
}

/// A fact as one text, as files store it.
pub fn fact_text((key, value): &(String, String)) -> String {
    format!("{key}={value}")
}

/// Parses the text of a fact; `None` if it has no key.
pub fn parse_fact(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, host: &str, namespace: &str, start: &str) -> Identity {
        let facts = [(PID_NAMESPACE, namespace), (START, start)];
        let facts = facts.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Identity::new(pid, host, &facts)
    }

    fn select(text: &str, processes: &[Identity]) -> Result<Vec<usize>, Vec<String>> {
        let titles: Vec<String> = processes
            .iter()
            .map(|process| format!("worker of {}", process.host))
            .collect();
        let selector: ProcessSelector = text.parse().unwrap();
        selector.choose(processes, &titles)
    }

    #[test]
    fn name_contains_only_the_parts_that_distinguish_the_process() {
        let all = [
            process(1, "web-1", "11", "5.00s"),
            process(1, "web-2", "12", "9.00s"),
            process(7, "web-1", "11", "6.00s"),
            process(7, "web-1", "11", "8.25s"),
            process(8, "web-1", "11", "6.50s"),
            process(9, "web-1", "13", "7.00s"),
            process(9, "web-1", "14", "7.00s"),
        ];
        let expected = [
            "1@web-1", "1@web-2", "7@6.00s", "7@8.25s", "8", "9@13", "9@14",
        ];
        assert_eq!(names(&all), expected);
        for (at, name) in expected.iter().enumerate() {
            assert_eq!(select(name, &all), Ok(vec![at]), "{name}");
        }
    }

    #[test]
    fn ambiguous_process_id_is_refused_with_all_matches() {
        let all = [
            process(1, "web-1", "11", "5.00s"),
            process(1, "web-2", "12", "9.00s"),
        ];
        let both = vec!["1@web-1".to_owned(), "1@web-2".to_owned()];
        assert_eq!(select("1", &all), Err(both));
        assert_eq!(select("2", &all), Err(Vec::new()));
        assert_eq!(select("1@web-3", &all), Err(Vec::new()));
        assert_eq!(select("1@9.00s", &all), Ok(vec![1]));
        assert_eq!(select("worker*", &all), Ok(vec![0, 1]));
        assert_eq!(select("* web-2", &all), Ok(vec![1]));
        assert_eq!(select("scheduler", &all), Err(Vec::new()));
    }

    #[test]
    fn two_captures_of_one_process_are_both_selected() {
        let one = process(7, "web-1", "11", "6.00s");
        let of_older_release = Identity::new(7, "web-1", &[]);
        assert_eq!(
            select("7", &[one.clone(), one.clone(), of_older_release]),
            Ok(vec![0, 1, 2])
        );
        assert_eq!(names(&[one.clone(), one]), ["7", "7"]);
    }

    #[test]
    fn malformed_selectors_are_invalid_and_valid_ones_survive_a_round_trip() {
        for text in ["", "*", "@web-1", "1@", "-1", "1@@x"] {
            assert!(text.parse::<ProcessSelector>().is_err(), "{text}");
        }
        let selector: ProcessSelector = "1@web-1@5.00s".parse().unwrap();
        assert_eq!(selector.to_string(), "1@web-1@5.00s");
    }

    #[test]
    fn facts_survive_a_round_trip_as_text() {
        let fact = ("key".to_owned(), "a=b c".to_owned());
        assert_eq!(parse_fact(&fact_text(&fact)), Some(fact));
        assert_eq!(parse_fact("no separator"), None);
        assert_eq!(parse_fact("=value"), None);
    }
}
