//! The filters that every command that reads captures understands.

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use heaptide_analysis::Filter;
use heaptide_analysis::filter::Pattern;

const HEADING: &str = "Filters";

/// For reports.
pub fn arguments() -> Vec<Arg> {
    let mut arguments = vec![
        pattern("include")
            .help("only what was allocated below a frame of this module or file")
            .long_help(
                "only what was allocated below a frame of this module or file. A name (pandas, pandas.core), the end of a \
                 path (etl/load.py), or a pattern with * and ?; may be given several times",
            ),
        pattern("exclude").help("nothing that was allocated below a frame of this module or file"),
    ];
    arguments.extend(of_records());
    arguments.push(
        Arg::new("hide_imports")
            .long("hide-imports")
            .action(ArgAction::SetTrue)
            .help_heading(HEADING)
            .help("leave out the frames with which Python imports modules"),
    );
    arguments
}

/// Those that make sense for single records too.
pub fn of_records() -> Vec<Arg> {
    vec![
        Arg::new("threads")
            .long("thread")
            .value_name("NAME")
            .action(ArgAction::Append)
            .help_heading(HEADING)
            .help("only this thread: its name, its number, or main; may be given several times"),
        Arg::new("processes")
            .long("process")
            .value_name("PID")
            .value_parser(value_parser!(u32))
            .action(ArgAction::Append)
            .help_heading(HEADING)
            .help("of several captures, only that of this process; may be given several times"),
    ]
}

fn pattern(name: &'static str) -> Arg {
    let parse =
        |text: &str| Pattern::new(text).ok_or_else(|| "a pattern cannot be empty".to_owned());
    Arg::new(name)
        .long(name)
        .value_name("PATTERN")
        .value_parser(parse)
        .action(ArgAction::Append)
        .help_heading(HEADING)
}

/// What was asked for. Arguments that a command does not have are those that were not given.
pub fn filter(matches: &ArgMatches) -> Filter {
    Filter {
        include: all(matches, "include"),
        exclude: all(matches, "exclude"),
        threads: all(matches, "threads"),
        processes: all(matches, "processes"),
        hide_imports: matches!(matches.try_get_one("hide_imports"), Ok(Some(true))),
    }
}

fn all<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Vec<T> {
    match matches.try_get_many::<T>(name) {
        Ok(Some(values)) => values.cloned().collect(),
        _ => Vec::new(),
    }
}
