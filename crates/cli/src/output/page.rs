//! Options and output of the commands that make pages.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use heaptide_analysis::{FlameLimits, FlameTree, JobView, Request};
use heaptide_report::html::{self, Page};
use heaptide_report::json::flame::FirstView;

use crate::exit::Failure;
use crate::input;
use crate::options::filters;
use crate::options::memray_options;
use crate::output::destination::{self, Destination};

pub(crate) fn no_source() -> Arg {
    Arg::new("no_source")
        .long("no-source")
        .action(ArgAction::SetTrue)
        .help("omit source lines from the page")
}

pub(crate) fn arguments(command: Command) -> Command {
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

pub(crate) struct PageOutput<'a> {
    matches: &'a ArgMatches,
    page: Page,
    destination: Destination,
}

impl<'a> PageOutput<'a> {
    /// Refuses an existing file before any long work.
    pub(crate) fn new(matches: &'a ArgMatches, page: Page) -> Result<PageOutput<'a>, Failure> {
        let report = match page {
            Page::FlameGraph => "flamegraph",
            Page::Table => "table",
            Page::Timeline => "timeline",
        };
        Ok(PageOutput {
            matches,
            page,
            destination: Destination::choose(matches, input::first(matches)?, report, "html")?,
        })
    }

    /// Reads the captures and writes the page.
    pub(crate) fn make(self, first: FirstView) -> Result<(), Failure> {
        let request = Request {
            lives: true,
            jobs: filters::job_view(self.matches, JobView::Named),
            ..filters::request(self.matches)
        };
        let session = input::session_with(self.matches, request)?;
        let tree = FlameTree::new(&session);
        let mut output = self.destination.open()?;
        output.write(|out| html::page(out, self.page, &tree, limits(self.matches), first))?;
        output.finish()
    }
}

/// Returns the size limits of a page.
pub(crate) fn limits(matches: &ArgMatches) -> FlameLimits {
    let mut limits = FlameLimits::default();
    let confidential = matches.try_get_one::<String>("confidential_files");
    let is_confidential = matches!(confidential, Ok(Some(files)) if files == "all");
    if matches.get_flag("no_source") || is_confidential {
        limits.max_source_bytes = 0;
    }
    limits
}
