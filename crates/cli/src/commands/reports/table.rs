//! `heaptide table`: an HTML page with a table of allocation sites.

use clap::{Arg, ArgAction, ArgMatches, Command};
use heaptide_report::html::Page;
use heaptide_report::json::flame::FirstView;

use crate::exit::Failure;
use crate::options::metrics;
use crate::output::page::{self, PageOutput};

pub(crate) fn arguments() -> Command {
    let command = Command::new("table")
        .about("Make a page with a table of allocation sites")
        .long_about(
            "Make a page with a table of allocation sites.\n\n\
             The page is one file and loads nothing from the network. You can sort and search, group rows by function, file \
             and module, split them by thread and allocator, and copy them as CSV.",
        )
        .arg(
            Arg::new("split_threads")
                .long("split-threads")
                .action(ArgAction::SetTrue)
                .help("initially show one row per thread"),
        );
    page::arguments(command.args(metrics::arguments()))
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let first = FirstView {
        measure: metrics::measure(matches),
        split_threads: matches.get_flag("split_threads"),
        ..FirstView::default()
    };
    PageOutput::new(matches, Page::Table)?.make(first)
}
