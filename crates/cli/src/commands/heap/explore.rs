//! `heaptide heap explore`: an interactive page of a heap snapshot.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use heaptide_analysis::heap::By;
use heaptide_analysis::heap::diff::diff;
use heaptide_report::html;

use super::{file_argument, open, open_path, recording, snapshot_path};
use crate::exit::Failure;
use crate::output::destination::{self, Destination};

pub(super) fn arguments() -> Command {
    Command::new("explore")
        .about("Make an interactive page of a heap snapshot")
        .long_about(
            "Make an interactive page of a heap snapshot.\n\n\
             The page is one file and loads nothing from the network. It has the largest objects of each kind, the objects on \
             the paths from roots to them, the dominator tree and the leak suspects; other objects are only in the sums. With \
             --baseline it shows the changes since an earlier snapshot.",
        )
        .arg(
            Arg::new("baseline")
                .long("baseline")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("earlier snapshot to compare with"),
        )
        .args(destination::arguments("heaptide-heap-FILE.html beside the snapshot"))
        .arg(recording::argument())
        .arg(file_argument())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let snapshot = snapshot_path(matches)?;
    let destination = Destination::choose(matches, Some(snapshot), "heap", "html")?;
    let heap = open(matches)?;
    let baseline = matches.get_one::<PathBuf>("baseline");
    let baseline = baseline.map(|path| open_path(path)).transpose()?;
    let diff = baseline.map(|before| diff(&before, &heap, By::Kind));
    let name = snapshot.file_name().unwrap_or_default().to_string_lossy();
    let mut output = destination.open()?;
    output.write(|out| html::heap::heap_page(out, &heap, diff.as_ref(), &name))?;
    output.finish()
}
