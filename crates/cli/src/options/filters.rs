//! The filters of all commands that read captures.

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use heaptide_analysis::filter::Pattern;
use heaptide_analysis::{Filter, JobView, Request};
use heaptide_capture::{LabelSelector, ProcessSelector};

use crate::options::metrics;

const HEADING: &str = "Filters";

/// The filters of reports.
pub(crate) fn arguments() -> Vec<Arg> {
    let mut arguments = vec![
        pattern("include")
            .help("only allocations below a frame of this module or file")
            .long_help(
                "only allocations below a frame of this module or file: a name (pandas, pandas.core), the end of a path \
                 (etl/load.py), or a pattern with * and ?; repeatable",
            ),
        pattern("exclude").help("no allocations below a frame of this module or file"),
    ];
    arguments.extend(of_records());
    arguments.push(
        Arg::new("jobs")
            .long("job")
            .value_name("PATTERN")
            .action(ArgAction::Append)
            .help_heading(HEADING)
            .hide_short_help(true)
            .help("only allocations of this job; repeatable")
            .long_help(
                "only allocations of this job: a name (import), a name with its key (import[2024-01]), both with * and ?, or a \
                 number (#7); repeatable",
            ),
    );
    arguments.push(
        Arg::new("hide_imports")
            .long("hide-imports")
            .action(ArgAction::SetTrue)
            .help_heading(HEADING)
            .hide_short_help(true)
            .help("hide the frames of Python's import system"),
    );
    arguments.push(
        Arg::new("hide_native")
            .long("hide-native")
            .action(ArgAction::SetTrue)
            .help_heading(HEADING)
            .hide_short_help(true)
            .help("hide native frames (C, C++, Rust)"),
    );
    arguments
}

/// The filters that also apply to single records.
pub(crate) fn of_records() -> Vec<Arg> {
    vec![
        Arg::new("threads")
            .long("thread")
            .value_name("NAME")
            .action(ArgAction::Append)
            .help_heading(HEADING)
            .hide_short_help(true)
            .help("only this thread: name, number, or main; repeatable"),
        Arg::new("processes")
            .long("process")
            .value_name("PROCESS")
            .value_parser(value_parser!(ProcessSelector))
            .action(ArgAction::Append)
            .help_heading(HEADING)
            .hide_short_help(true)
            .help("only this process: ID, or role or program; repeatable")
            .long_help(
                "only the capture of this process; repeatable. Where several processes have the same ID, add the host or the \
                 start: 1@web-2, 4711@83456.12s. A role or a program chooses all of its processes: \"celery worker\", etl*",
            ),
        Arg::new("hosts")
            .long("host")
            .value_name("PATTERN")
            .action(ArgAction::Append)
            .help_heading(HEADING)
            .hide_short_help(true)
            .help("only processes of this host; repeatable"),
        Arg::new("labels")
            .long("label")
            .value_name("KEY=VALUE")
            .value_parser(value_parser!(LabelSelector))
            .action(ArgAction::Append)
            .help_heading(HEADING)
            .hide_short_help(true)
            .help("only processes with this label, such as role=worker; repeatable")
            .long_help(
                "only processes with this label, such as role=worker or queue=mail*; with several, a process must have all",
            ),
        time("from").help("only events from this time on, since the start: 90s, 1.5m, 2h")
            .long_help(
                "only events from this time on, since the start of the first process: 500ms, 90s, 1.5m, 2h, or seconds. The \
                 peak is the high-water mark from then on; leaks are blocks allocated since then and alive at the end",
            ),
        time("to").help("only events before this time")
            .long_help(
                "only events before this time, as if the program had ended then: --to 2m --leaks shows the heap two minutes \
                 after the start",
            ),
    ]
}

/// `--by job`, for reports that can show a row per job name.
pub(crate) fn by_job() -> Arg {
    Arg::new("by")
        .long("by")
        .value_name("GROUP")
        .value_parser(["job"])
        .help_heading(HEADING)
        .hide_short_help(true)
        .help("group by job")
}

/// How a report shows jobs: at the root of stacks with `--by job`, otherwise as the report usually does.
pub(crate) fn job_view(matches: &ArgMatches, usual: JobView) -> JobView {
    let by = matches.try_get_one::<String>("by").ok().flatten();
    match by.is_some_and(|by| by == "job") {
        true => JobView::AtRoot,
        false => usual,
    }
}

/// Whether `--job` restricts the report to some jobs.
pub(crate) fn chooses_jobs(matches: &ArgMatches) -> bool {
    !all::<String>(matches, "jobs").is_empty()
}

fn pattern(name: &'static str) -> Arg {
    let parse = |text: &str| Pattern::new(text).ok_or_else(|| "must not be empty".to_owned());
    Arg::new(name)
        .long(name)
        .value_name("PATTERN")
        .value_parser(parse)
        .action(ArgAction::Append)
        .help_heading(HEADING)
        .hide_short_help(true)
}

fn time(name: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("TIME")
        .value_parser(nanoseconds)
        .help_heading(HEADING)
        .hide_short_help(true)
}

/// Parses a time: `500ms`, `90`, `90s`, `1.5m`, `2h`.
fn nanoseconds(text: &str) -> Result<u64, String> {
    let units = [
        ("ms", 1e6),
        ("us", 1e3),
        ("s", 1e9),
        ("m", 60e9),
        ("min", 60e9),
        ("h", 3600e9),
    ];
    let number_end = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(number_end.unwrap_or(text.len()));
    let scale = match unit {
        "" => Some(1e9),
        unit => units
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|&(_, ns)| ns),
    };
    let number = number.trim().parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    match (number, scale) {
        (Some(number), Some(scale)) => Ok((number * scale).round() as u64),
        _ => Err("must be a number of seconds, or a number with ms, s, m or h".to_owned()),
    }
}

/// Returns the request of a report that needs no lifetimes.
pub(crate) fn request(matches: &ArgMatches) -> Request {
    Request {
        filter: filter(matches),
        temporary: Some(metrics::temporary_threshold(matches)),
        lives: false,
        jobs: job_view(matches, JobView::Hidden),
    }
}

/// Reads the filters. Arguments that a command does not have count as not given.
pub(crate) fn filter(matches: &ArgMatches) -> Filter {
    Filter {
        include: all(matches, "include"),
        exclude: all(matches, "exclude"),
        threads: all(matches, "threads"),
        processes: all(matches, "processes"),
        jobs: all(matches, "jobs"),
        hosts: all(matches, "hosts"),
        labels: all(matches, "labels"),
        from_ns: one(matches, "from"),
        to_ns: one(matches, "to"),
        hide_imports: matches!(matches.try_get_one("hide_imports"), Ok(Some(true))),
        hide_native: matches!(matches.try_get_one("hide_native"), Ok(Some(true))),
    }
}

fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Option<T> {
    matches.try_get_one::<T>(name).ok().flatten().cloned()
}

fn all<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Vec<T> {
    match matches.try_get_many::<T>(name) {
        Ok(Some(values)) => values.cloned().collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

    #[test]
    fn times_are_parsed_with_and_without_a_unit() {
        for (text, ns) in [
            ("0", 0),
            ("90", 90_000_000_000),
            ("1.5s", 1_500_000_000),
            ("500ms", 500_000_000),
            ("2m", 120_000_000_000),
            ("0.5h", 1_800_000_000_000),
        ] {
            assert_eq!(nanoseconds(text), Ok(ns), "{text}");
        }
        for text in ["", "s", "-1", "1 parsec", "nan", "1e400", "2m3s"] {
            assert!(nanoseconds(text).is_err(), "{text}");
        }
    }
}
