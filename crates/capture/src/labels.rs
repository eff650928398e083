//! The run and the labels of a process, which files store as facts, and the choice of processes by label.
//!
//! ```text
//! run=nightly-42            the run: all processes of one execution of a program, also on several hosts
//! label.role=celery worker  a label: role, component, queue, rank, service, version, or any that the user sets
//! ```

use std::fmt;
use std::str::FromStr;

use crate::glob;
use crate::identity::Facts;

/// The key of the fact that names the run.
pub const RUN: &str = "run";
/// The prefix of the keys of facts that are labels.
pub const PREFIX: &str = "label.";

/// The labels that name a process, the most specific first.
const NAMING: [&str; 2] = ["role", "component"];
const RANK: &str = "rank";

/// Options of the interpreter that take no value, and those that take one.
const FLAGS: &str = "BEIOPSbdiqsuvx";
const OPTIONS_WITH_VALUE: &str = "WX";

/// Keys and values.
pub type Labels = Vec<(String, String)>;

/// Returns the labels among the facts of a process.
pub fn of(facts: &[(String, String)]) -> Labels {
    let labels = facts.iter().filter_map(|(key, value)| {
        let key = key.strip_prefix(PREFIX)?;
        // A label that was removed has an empty value.
        (!value.is_empty()).then(|| (key.to_owned(), value.clone()))
    });
    labels.collect()
}

/// Returns the name of the run among the facts of a process; empty if it is unknown.
pub fn run(facts: &[(String, String)]) -> &str {
    let run = facts.iter().find(|(key, _)| key == RUN);
    run.map_or("", |(_, name)| name)
}

/// Sets a label and replaces an earlier value of the same key.
pub fn set(facts: &mut Facts, key: &str, value: &str) {
    let key = format!("{PREFIX}{key}");
    match facts.iter_mut().find(|(known, _)| *known == key) {
        Some((_, old)) => value.clone_into(old),
        None => facts.push((key, value.to_owned())),
    }
}

/// Returns the name of a process in lists: its role or its program, and its rank. Empty if nothing is known.
pub fn title(labels: &[(String, String)], command: &[String]) -> String {
    let value = |wanted: &str| labels.iter().find(|(key, _)| key == wanted);
    let named = NAMING.into_iter().find_map(value);
    let mut parts: Vec<String> = match named {
        Some((_, name)) => vec![name.clone()],
        None => program(command).into_iter().collect(),
    };
    if let Some((_, rank)) = value(RANK) {
        parts.push(format!("rank {rank}"));
    }
    parts.join(", ")
}

/// Returns the script or module of a command line, without the path to it. The command line of a child that started a
/// moment ago may begin with options of the interpreter.
fn program(command: &[String]) -> Option<String> {
    let mut words = command.iter().map(String::as_str);
    let mut first = words.next()?;
    while let Some(letters) = first
        .strip_prefix('-')
        .filter(|letters| !letters.is_empty())
    {
        let has_value = letters.starts_with(|letter| OPTIONS_WITH_VALUE.contains(letter));
        if !has_value && !letters.chars().all(|letter| FLAGS.contains(letter)) {
            break;
        }
        if has_value && letters.len() == 1 {
            words.next();
        }
        first = words.next()?;
    }
    let name = match first {
        "-m" => words.next()?,
        "-c" if command.iter().any(|word| word.contains("multiprocessing")) => {
            "multiprocessing child"
        }
        "-c" => "-c",
        path => path.rsplit('/').next()?,
    };
    (!name.is_empty()).then(|| name.to_owned())
}

/// A user's choice of processes by a label: `role=worker`, `queue=mail*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSelector {
    key: String,
    pattern: String,
}

impl LabelSelector {
    pub fn matches(&self, labels: &[(String, String)]) -> bool {
        // A worker that serves several queues has one label with all of them: `queue=mail,celery`.
        let fits = |(key, value): &(String, String)| {
            let mut values = value.split(',').chain([value.as_str()]);
            *key == self.key && values.any(|value| glob::matches(&self.pattern, value.trim()))
        };
        labels.iter().any(fits)
    }
}

impl FromStr for LabelSelector {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<LabelSelector, &'static str> {
        match text.split_once('=') {
            Some((key, pattern)) if !key.trim().is_empty() => Ok(LabelSelector {
                key: key.trim().to_owned(),
                pattern: pattern.trim().to_owned(),
            }),
            _ => Err("must be KEY=VALUE, such as role=worker; * and ? are wildcards in the value"),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}={}", self.key, self.pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs.iter();
        pairs
            .map(|&(key, value)| (key.into(), value.into()))
            .collect()
    }

    #[test]
    fn labels_and_run_are_found_among_other_facts() {
        let mut facts = pairs(&[("start", "5.00s"), ("run", "nightly"), ("label.role", "x")]);
        set(&mut facts, "queue", "mail");
        set(&mut facts, "role", "celery worker");
        set(&mut facts, "zone", "eu");
        set(&mut facts, "zone", "");
        assert_eq!(run(&facts), "nightly");
        let expected = pairs(&[("role", "celery worker"), ("queue", "mail")]);
        assert_eq!(of(&facts), expected);
        assert_eq!(run(&expected), "");
    }

    #[test]
    fn process_is_named_by_its_role_or_its_program() {
        let command =
            |words: &[&str]| -> Vec<String> { words.iter().map(|&word| word.into()).collect() };
        let job = command(&["/srv/etl/job.py", "--fast"]);
        assert_eq!(title(&[], &job), "job.py");
        assert_eq!(title(&[], &command(&["-m", "etl.load"])), "etl.load");
        let spawned = [
            "-uB",
            "-X",
            "dev",
            "-Wignore",
            "-c",
            "from multiprocessing.spawn import …",
        ];
        assert_eq!(title(&[], &command(&spawned)), "multiprocessing child");
        assert_eq!(title(&[], &command(&["-B", "job.py"])), "job.py");
        assert_eq!(title(&[], &command(&["-W", "ignore"])), "");
        assert_eq!(title(&[], &[]), "");
        assert_eq!(title(&[], &command(&["-", "x"])), "-");
        assert_eq!(title(&pairs(&[("rank", "3")]), &job), "job.py, rank 3");
        let labels = pairs(&[("component", "scheduler"), ("role", "celery worker")]);
        assert_eq!(title(&labels, &job), "celery worker");
        assert_eq!(title(&labels[..1], &job), "scheduler");
    }

    #[test]
    fn label_selector_compares_the_value_and_each_part_of_a_list_with_a_pattern() {
        let labels = pairs(&[("role", "celery worker"), ("queue", "mail")]);
        let matches = |text: &str| text.parse::<LabelSelector>().unwrap().matches(&labels);
        assert!(matches("role=celery worker") && matches("role=*worker") && matches("queue=mail"));
        assert!(!matches("role=worker") && !matches("queue=") && !matches("rank=*"));
        let labels = pairs(&[("queue", "mail, reports")]);
        let matches = |text: &str| text.parse::<LabelSelector>().unwrap().matches(&labels);
        assert!(matches("queue=mail") && matches("queue=rep*") && matches("queue=mail, reports"));
        assert!(!matches("queue=ail"));
        for text in ["", "role", "=x"] {
            assert!(text.parse::<LabelSelector>().is_err(), "{text}");
        }
    }
}
