//! `heaptide table`: the places that allocated, as a page with a table.

use clap::{ArgMatches, Command};
use heaptide_report::html::Page;
use heaptide_report::json::flame::FirstView;

use crate::exit::Failure;
use crate::metrics;
use crate::page::{self, PageOutput};

pub(crate) fn arguments() -> Command {
    let command = Command::new("table")
        .about("Make a page with a table of the places that allocated: sort, search, group, copy")
        .long_about(
            "Make a page with a table of the places that allocated: sort, search, group, copy.\n\n\
             The page is one file that opens in any browser and asks no network for anything. Rows can be grouped by \
             function, file and module, split by thread and allocator, and copied as CSV.",
        );
    page::arguments(command.args(metrics::arguments()))
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let first = FirstView {
        measure: metrics::measure(matches),
        ..FirstView::default()
    };
    PageOutput::new(matches, Page::Table)?.make(first)
}
