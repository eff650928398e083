//! `heaptide flamegraph`: an HTML page with a flame graph of allocations.

use clap::{Arg, ArgAction, ArgMatches, Command};
use heaptide_report::html::Page;
use heaptide_report::json::flame::FirstView;

use crate::exit::Failure;
use crate::options::memray_options;
use crate::options::metrics;
use crate::output::page::{self, PageOutput};

pub(crate) fn arguments() -> Command {
    let command = Command::new("flamegraph")
        .about("Make a page with a flame graph and memory over time")
        .long_about(
            "Make a page with a flame graph and memory over time.\n\n\
             The page is one file and loads nothing from the network. In the page you can search, zoom, invert, filter by \
             thread and process, and switch between the heap at the peak, leaked memory and all allocations. The options \
             below set the initial view.",
        )
        .arg(
            Arg::new("inverted")
                .long("inverted")
                .action(ArgAction::SetTrue)
                .help("initially show allocating functions at the root"),
        )
        .arg(
            Arg::new("split_threads")
                .long("split-threads")
                .action(ArgAction::SetTrue)
                .help("initially show one tree per thread"),
        )
        .args(memray_options::time());
    page::arguments(command.args(metrics::arguments()))
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let first = FirstView {
        measure: metrics::measure(matches),
        inverted: matches.get_flag("inverted"),
        split_threads: matches.get_flag("split_threads"),
        ..FirstView::default()
    };
    PageOutput::new(matches, Page::FlameGraph)?.make(first)
}
