//! Restricts a session to chosen modules, threads, jobs, processes or a time span.
//!
//! A filter applies once, while captures are read, so that all reports use the same sums and need not know the filter.
//! A filter of modules, threads or jobs does not move the peak. The peak remains that of the whole process, and the
//! filter chooses which part of it to show. So a row has the same numbers with and without such a filter. A time span
//! has its own peak.

mod jobs;
mod pattern;
mod sites;

use std::fmt;

use heaptide_capture::{
    Capture, Identity, LabelSelector, ProcessSelector, ThreadInfo, glob, identity,
};

pub use pattern::Pattern;
pub(crate) use sites::SiteFilter;

/// An empty filter passes everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Includes only stacks with a frame that matches one of these patterns.
    pub include: Vec<Pattern>,
    /// Excludes stacks with a frame that matches one of these patterns.
    pub exclude: Vec<Pattern>,
    /// Threads by name or number; `main` is the main thread.
    pub threads: Vec<String>,
    pub processes: Vec<ProcessSelector>,
    /// Patterns of jobs: a name, `name[key]`, or `#number`, with `*` and `?`.
    pub jobs: Vec<String>,
    /// Only processes of a host that matches one of these patterns.
    pub hosts: Vec<String>,
    /// Only processes with all of these labels.
    pub labels: Vec<LabelSelector>,
    /// Whether to hide frames of Python's import system.
    pub hide_imports: bool,
    /// Whether to hide native frames.
    pub hide_native: bool,
    /// The counted time span in nanoseconds since the session's start: from `from_ns` until before `to_ns`.
    pub from_ns: Option<u64>,
    pub to_ns: Option<u64>,
}

impl Filter {
    /// Whether the filter chooses sites, so that sums cover only a part of the program.
    pub fn chooses_sites(&self) -> bool {
        !(self.include.is_empty()
            && self.exclude.is_empty()
            && self.threads.is_empty()
            && self.jobs.is_empty())
    }

    pub fn chooses_time(&self) -> bool {
        self.from_ns.is_some() || self.to_ns.is_some()
    }

    /// The filter as command-line options; empty if it passes everything.
    pub fn describe(&self) -> Vec<String> {
        let patterns = |name: &str, patterns: &[Pattern]| -> Vec<String> {
            let all = patterns.iter();
            all.map(|pattern| format!("--{name} {pattern}")).collect()
        };
        let mut words = patterns("include", &self.include);
        words.extend(patterns("exclude", &self.exclude));
        words.extend(self.threads.iter().map(|name| format!("--thread {name}")));
        let processes = self.processes.iter();
        words.extend(processes.map(|process| format!("--process {process}")));
        words.extend(self.jobs.iter().map(|job| format!("--job {job}")));
        words.extend(self.hosts.iter().map(|host| format!("--host {host}")));
        words.extend(self.labels.iter().map(|label| format!("--label {label}")));
        let times = [("from", self.from_ns), ("to", self.to_ns)];
        let times = times.into_iter().filter_map(|(name, ns)| Some((name, ns?)));
        words.extend(times.map(|(name, ns)| format!("--{name} {}", seconds(ns))));
        if self.hide_imports {
            words.push("--hide-imports".to_owned());
        }
        if self.hide_native {
            words.push("--hide-native".to_owned());
        }
        words
    }

    /// Keeps the captures of the chosen processes. Refuses a process ID that several processes have.
    pub fn choose_processes(&self, captures: Vec<Capture>) -> Result<Vec<Capture>, NoMatch> {
        let captures = self.choose_by_host_and_label(captures)?;
        if self.processes.is_empty() {
            return Ok(captures);
        }
        let processes = captures.iter().map(|capture| capture.header.identity());
        let processes: Vec<Identity> = processes.collect();
        let titles: Vec<String> = captures
            .iter()
            .map(|capture| capture.header.title())
            .collect();
        let mut is_wanted = vec![false; captures.len()];
        for selector in &self.processes {
            match selector.choose(&processes, &titles) {
                Ok(chosen) => chosen.into_iter().for_each(|at| is_wanted[at] = true),
                Err(none) if none.is_empty() => {}
                Err(matches) => {
                    let wanted = selector.to_string();
                    return Err(NoMatch::Ambiguous { wanted, matches });
                }
            }
        }
        if !is_wanted.contains(&true) {
            let names = identity::names(&processes).into_iter().zip(&titles);
            let mut known: Vec<String> =
                names.map(|(name, title)| with_title(name, title)).collect();
            known.dedup();
            return Err(NoMatch::Process { known });
        }
        let captures = captures.into_iter().zip(is_wanted);
        let chosen = captures.filter_map(|(capture, is_wanted)| is_wanted.then_some(capture));
        Ok(chosen.collect())
    }

    fn choose_by_host_and_label(&self, captures: Vec<Capture>) -> Result<Vec<Capture>, NoMatch> {
        let is_host = |host: &str| {
            let mut patterns = self.hosts.iter();
            self.hosts.is_empty() || patterns.any(|pattern| glob::matches(pattern, host))
        };
        let (captures, others): (Vec<Capture>, Vec<Capture>) = captures
            .into_iter()
            .partition(|capture| is_host(&capture.header.host));
        if captures.is_empty() && !others.is_empty() {
            let hosts = others.into_iter().map(|capture| capture.header.host);
            let known = distinct(hosts.collect());
            return Err(NoMatch::Host { known });
        }
        let has_labels = |capture: &Capture| {
            let labels = capture.header.labels();
            let mut wanted = self.labels.iter();
            wanted.all(|selector| selector.matches(&labels))
        };
        let (captures, others): (Vec<Capture>, Vec<Capture>) =
            captures.into_iter().partition(has_labels);
        if captures.is_empty() && !others.is_empty() {
            let labels = others.iter().flat_map(|capture| capture.header.labels());
            let labels = labels.map(|label| identity::fact_text(&label));
            let known = distinct(labels.collect());
            return Err(NoMatch::Label { known });
        }
        Ok(captures)
    }

    /// Returns an error if the filter names threads and no capture has one of them. Called before events are replayed.
    pub fn check_threads(&self, captures: &[Capture]) -> Result<(), NoMatch> {
        let threads = captures.iter().flat_map(|capture| {
            let main_thread = capture.header.main_thread;
            let threads = capture.registry.threads.iter();
            threads.map(move |thread| (thread, main_thread))
        });
        let threads: Vec<_> = threads.collect();
        let mut all = threads.iter();
        if threads.is_empty() || all.any(|(thread, main)| self.wants_thread(thread, *main)) {
            return Ok(());
        }
        let name = |thread: &ThreadInfo| match &thread.name {
            Some(name) => format!("{name} ({})", thread.os_id),
            None => thread.os_id.to_string(),
        };
        let known = threads.iter().map(|(thread, _)| name(thread)).collect();
        Err(NoMatch::Thread { known })
    }

    pub fn wants_thread(&self, thread: &ThreadInfo, main_thread: u32) -> bool {
        let is_match = |wanted: &String| {
            thread.name.as_ref() == Some(wanted)
                || wanted.parse() == Ok(thread.os_id)
                || (wanted == "main" && thread.os_id == main_thread)
        };
        self.threads.is_empty() || self.threads.iter().any(is_match)
    }
}

/// The name of a process with its title: `4711 (celery worker)`.
pub fn with_title(name: String, title: &str) -> String {
    match title {
        "" => name,
        title => format!("{name} ({title})"),
    }
}

/// Like [`with_title`], with the host unless the name has it: `4711 (celery worker, web-1)`.
pub fn shown_name(name: String, title: &str, host: Option<&str>) -> String {
    let host = host.filter(|host| !host.is_empty() && !name.contains(&format!("@{host}")));
    match host {
        Some(host) if title.is_empty() => with_title(name, host),
        Some(host) => with_title(name, &format!("{title}, {host}")),
        None => with_title(name, title),
    }
}

fn distinct(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}

/// A time as a user would type it: `1.5s`.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}s")
}

/// The error of a filter that matches nothing, or more processes than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoMatch {
    Process {
        known: Vec<String>,
    },
    /// Several processes have the chosen ID.
    Ambiguous {
        wanted: String,
        matches: Vec<String>,
    },
    Thread {
        known: Vec<String>,
    },
    /// No job has a name that matches.
    Job {
        known: Vec<String>,
    },
    Host {
        known: Vec<String>,
    },
    Label {
        known: Vec<String>,
    },
    /// The filter as command-line options.
    Nothing {
        filters: Vec<String>,
    },
}

/// Longer lists of names do not help.
const MAX_NAMED: usize = 8;

impl fmt::Display for NoMatch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            NoMatch::Process { known } => {
                write!(
                    f,
                    "no capture is from this process; there are captures from {}",
                    listed(known)
                )
            }
            NoMatch::Ambiguous { wanted, matches } => write!(
                f,
                "process {wanted} matches {} processes; use one of: {}",
                matches.len(),
                listed(matches)
            ),
            NoMatch::Thread { known } => {
                write!(f, "no thread has this name; there are {}", listed(known))
            }
            NoMatch::Job { known } if known.is_empty() => {
                f.write_str("the capture has no jobs; mark them with heaptide.job, or omit --job")
            }
            NoMatch::Job { known } => {
                write!(f, "no job has this name; there are {}", listed(known))
            }
            NoMatch::Host { known } => {
                write!(
                    f,
                    "no capture is from this host; there are captures from {}",
                    listed(known)
                )
            }
            NoMatch::Label { known } if known.is_empty() => {
                write!(
                    f,
                    "no process has a label; set labels with HEAPTIDE_LABELS or heaptide.label"
                )
            }
            NoMatch::Label { known } => {
                write!(
                    f,
                    "no process has these labels; there are {}",
                    listed(known)
                )
            }
            NoMatch::Nothing { filters } => write!(
                f,
                "no recorded event passes {}; widen the filter or omit it",
                filters.join(" ")
            ),
        }
    }
}

impl std::error::Error for NoMatch {}

fn listed(names: &[String]) -> String {
    let mut text = names[..names.len().min(MAX_NAMED)].join(", ");
    if names.len() > MAX_NAMED {
        text += &format!(" and {} more", names.len() - MAX_NAMED);
    }
    text
}
