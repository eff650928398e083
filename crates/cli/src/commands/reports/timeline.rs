//! `heaptide timeline`: a page with all processes over time, and the growth between two times.

use clap::{ArgMatches, Command};
use heaptide_report::html::Page;
use heaptide_report::json::flame::FirstView;

use crate::exit::Failure;
use crate::output::page::{self, PageOutput};

pub(crate) fn arguments() -> Command {
    let command = Command::new("timeline")
        .about("Make a page of memory over time with growth by stack")
        .long_about(
            "Make a page of memory over time with growth by stack.\n\n\
             Pass all captures of a session. The page shows the processes stacked or side by side on one time axis, with heap, \
             resident size and limit. Drag over a chart to select a time range: below it, the page lists the processes and call \
             stacks that grew in that range. The page is one file and loads nothing from the network.",
        );
    page::arguments(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    PageOutput::new(matches, Page::Timeline)?.make(FirstView::default())
}
