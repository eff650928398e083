//! `heaptide flamegraph`, `table` and `timeline`: HTML pages that show the call tree of captures in different views.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use heaptide_analysis::{FlameLimits, FlameTree, JobView, Request};
use heaptide_report::html::{self, Page};
use heaptide_report::json::flame::FirstView;

use crate::exit::Failure;
use crate::input;
use crate::options::arguments::flag;
use crate::options::{filters, memray_options, metrics};
use crate::output::destination::{self, Destination};

pub(crate) fn flamegraph_arguments() -> Command {
    let command = Command::new("flamegraph")
        .about("Make a page with a flame graph and memory over time")
        .long_about(
            "Make a page with a flame graph and memory over time.\n\n\
             The page is one file and loads nothing from the network. In the page you can search, zoom, invert, filter by \
             thread and process, and switch between the heap at the peak, leaked memory and all allocations. The options \
             below set the initial view.",
        )
        .arg(flag("inverted", "initially show allocating functions at the root"))
        .arg(flag("split-threads", "initially show one tree per thread"))
        .args(memray_options::time());
    with_common_arguments(command.args(metrics::arguments()))
}

pub(crate) fn flamegraph(matches: &ArgMatches) -> Result<(), Failure> {
    let first = FirstView {
        measure: metrics::measure(matches),
        inverted: matches.get_flag("inverted"),
        split_threads: matches.get_flag("split-threads"),
        ..FirstView::default()
    };
    make(matches, Page::FlameGraph, "flamegraph", first)
}

pub(crate) fn table_arguments() -> Command {
    let command = Command::new("table")
        .about("Make a page with a table of allocation sites")
        .long_about(
            "Make a page with a table of allocation sites.\n\n\
             The page is one file and loads nothing from the network. You can sort and search, group rows by function, file \
             and module, split them by thread and allocator, and copy them as CSV.",
        )
        .arg(flag("split-threads", "initially show one row per thread"));
    with_common_arguments(command.args(metrics::arguments()))
}

pub(crate) fn table(matches: &ArgMatches) -> Result<(), Failure> {
    let first = FirstView {
        measure: metrics::measure(matches),
        split_threads: matches.get_flag("split-threads"),
        ..FirstView::default()
    };
    make(matches, Page::Table, "table", first)
}

pub(crate) fn timeline_arguments() -> Command {
    let command = Command::new("timeline")
        .about("Make a page of memory over time with growth by stack")
        .long_about(
            "Make a page of memory over time with growth by stack.\n\n\
             Pass all captures of a session. The page shows the processes stacked or side by side on one time axis, with heap, \
             resident size and limit. Drag over a chart to select a time range: below it, the page lists the processes and call \
             stacks that grew in that range. The page is one file and loads nothing from the network.",
        );
    with_common_arguments(command)
}

pub(crate) fn timeline(matches: &ArgMatches) -> Result<(), Failure> {
    make(matches, Page::Timeline, "timeline", FirstView::default())
}

pub(crate) fn no_source() -> Arg {
    flag("no-source", "omit source lines from the page")
}

fn with_common_arguments(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command
        .arg(no_source())
        .arg(
            Arg::new("confidential_files")
                .long("confidential-files")
                .value_name("WHICH")
                .value_parser(PossibleValuesParser::new(["all", "none", "default"]))
                .help("all: omit source lines, as --no-source [default: Python source is shown]"),
        )
        .arg(memray_options::assets())
        .args(destination::arguments(&format!(
            "heaptide-{name}-CAPTURE.html beside the capture"
        )))
        .args(filters::arguments())
        .arg(filters::by_job())
        .arg(input::argument())
}

/// Reads the captures and writes the page. Refuses an existing file before any long work.
fn make(matches: &ArgMatches, page: Page, report: &str, first: FirstView) -> Result<(), Failure> {
    let destination = Destination::choose(matches, input::first(matches)?, report, "html")?;
    let request = Request {
        lives: true,
        jobs: filters::job_view(matches, JobView::Named),
        ..filters::request(matches)
    };
    let session = input::session_with(matches, request)?;
    let tree = FlameTree::new(&session);
    let mut output = destination.open()?;
    output.write(|out| html::page(out, page, &tree, limits(matches), first))?;
    output.finish()
}

/// Returns the size limits of a page.
pub(crate) fn limits(matches: &ArgMatches) -> FlameLimits {
    let mut limits = FlameLimits::default();
    let confidential = matches.try_get_one::<String>("confidential_files");
    let is_confidential = matches!(confidential, Ok(Some(files)) if files == "all");
    if matches.get_flag("no-source") || is_confidential {
        limits.max_source_bytes = 0;
    }
    limits
}
