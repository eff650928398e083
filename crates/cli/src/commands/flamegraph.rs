//! `heaptide flamegraph`: where memory went, as a page for a browser.

use clap::{Arg, ArgAction, ArgMatches, Command};
use heaptide_report::html::Page;
use heaptide_report::json::flame::FirstView;

use crate::exit::Failure;
use crate::metrics;
use crate::page::{self, PageOutput};

pub(crate) fn arguments() -> Command {
    let command = Command::new("flamegraph")
        .about("Make a page that shows where memory went: a flame graph, and memory over time")
        .long_about(
            "Make a page that shows where memory went: a flame graph, and memory over time.\n\n\
             The page is one file that opens in any browser and asks no network for anything. It can be \
             searched, zoomed, inverted, filtered by thread and process, and changed between what was alive at the \
             peak, alive at the end, and ever allocated; the options below choose what it shows first.",
        )
        .arg(
            Arg::new("inverted")
                .long("inverted")
                .action(ArgAction::SetTrue)
                .help("first show who allocated, and below it who called it"),
        )
        .arg(
            Arg::new("split_threads")
                .long("split-threads")
                .action(ArgAction::SetTrue)
                .help("first show a tree for each thread"),
        );
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
