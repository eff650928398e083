//! `heaptide timeline`: all processes of a session over time, and what grew between two moments.

use clap::{ArgMatches, Command};
use heaptide_report::html::Page;
use heaptide_report::json::flame::FirstView;

use crate::exit::Failure;
use crate::page::{self, PageOutput};

pub(crate) fn arguments() -> Command {
    let command = Command::new("timeline")
        .about("Make a page with the memory of all processes over time, and what grew between two marks")
        .long_about(
            "Make a page with the memory of all processes over time, and what grew between two marks.\n\n\
             Give it all captures of a session: processes are shown on top of each other or side by side, on one time line, \
             with their heap, resident size and limit. Dragging over a chart sets two marks; below it stands which process \
             and which call stacks held more at the second than at the first. The page is one file that opens in any \
             browser and asks no network for anything.",
        );
    page::arguments(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    PageOutput::new(matches, Page::Timeline)?.make(FirstView::default())
}
