//! `heaptide summary`: a table of functions.

use clap::{Arg, ArgMatches, Command, value_parser};
use heaptide_analysis::aggregate::{GroupBy, ProcessGrouping};
use heaptide_analysis::{JobView, Request};
use heaptide_report::text::summary::{self, Options, SortColumn};

use crate::exit::Failure;
use crate::input;
use crate::options::filters;
use crate::options::metrics;
use crate::output::Output;

/// Lines of the header, the footer and the prompt in a terminal.
const OTHER_LINES: usize = 5;
const MIN_ROWS: usize = 10;

pub(crate) fn arguments() -> Command {
    Command::new("summary")
        .about("Show a table of functions with their memory at the peak")
        .arg(
            Arg::new("sort")
                .short('s')
                .long("sort-column")
                .value_name("1-5")
                .value_parser(value_parser!(u8).range(1..=5))
                .default_value("1")
                .help(
                    "sort by total memory (1, 2), own memory (3, 4) or number of allocations (5)",
                ),
        )
        .arg(
            Arg::new("max_rows")
                .short('r')
                .long("max-rows")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .help(
                    "number of rows [default: those that fit the terminal; all without a terminal]",
                ),
        )
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("GROUP")
                .value_parser(group)
                .default_value("function")
                .help("group rows by function, location (line), file, module, thread, allocator, job, process, host or label:KEY"),
        )
        .args(metrics::arguments())
        .args(filters::arguments())
        .arg(input::argument())
        .after_help(
            "In a terminal, file names are shortened so that each function takes one line. For full names use a wider \
             terminal, set COLUMNS=200, or write to a file or a pipe.",
        )
}

fn group(name: &str) -> Result<GroupBy, String> {
    let groups = [
        ("function", GroupBy::Function),
        ("location", GroupBy::Location),
        ("file", GroupBy::File),
        ("module", GroupBy::Module),
        ("thread", GroupBy::Thread),
        ("allocator", GroupBy::Allocator),
        ("job", GroupBy::Job),
    ];
    let known = groups.iter().find(|(known, _)| *known == name);
    let known = known.map(|(_, group)| group.clone());
    let grouping = || ProcessGrouping::parse(name).map(GroupBy::Processes);
    known.or_else(grouping).ok_or_else(|| {
        let names = groups.map(|(name, _)| name);
        format!(
            "must be one of {}, process, host, label:KEY",
            names.join(", ")
        )
    })
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let by = matches
        .get_one::<GroupBy>("by")
        .cloned()
        .unwrap_or_default();
    let request = Request {
        jobs: match by {
            GroupBy::Job => JobView::Named,
            _ => JobView::Hidden,
        },
        ..filters::request(matches)
    };
    let session = input::session_with(matches, request)?;
    let measure = metrics::measure(matches);
    let answer = heaptide_analysis::summary(&session, measure, by);
    let mut output = Output::standard();
    let (columns, lines) = output.size();
    let fitting = lines.map(|lines| lines.saturating_sub(OTHER_LINES).max(MIN_ROWS));
    let requested = matches.get_one::<u32>("max_rows").map(|&n| n as usize);
    let sort = matches
        .get_one::<u8>("sort")
        .and_then(|&n| SortColumn::from_number(n));
    let options = Options {
        sort: sort.unwrap_or(SortColumn::TotalMemory),
        max_rows: requested.or(fitting),
        max_width: columns,
        style: output.style(),
    };
    output.write(|out| summary::summary(out, &answer, &options))?;
    output.finish()
}
