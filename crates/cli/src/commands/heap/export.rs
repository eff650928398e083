//! `heaptide heap export`: the whole snapshot in another program's format.

use clap::{Arg, ArgMatches, Command};
use heaptide_report::heap_export as export;

use super::{file_argument, open, recording, snapshot_path};
use crate::exit::Failure;
use crate::output::destination::{self, Destination};

const FORMATS: [&str; 3] = ["heapsnapshot", "json", "dot"];

pub(super) fn arguments() -> Command {
    Command::new("export")
        .about("Convert a snapshot for Chrome DevTools, memlab, JSON or dot")
        .long_about(
            "Convert a snapshot for Chrome DevTools, memlab, JSON or dot.\n\n\
             heapsnapshot is V8's format: load it in the Memory panel of Chrome DevTools, or in memlab. It keeps weak references \
             weak, and has allocation stacks if the program was recorded with --objects. Sizes above 4 GiB are split over several \
             nodes, because the format has 32-bit numbers.",
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .value_parser(FORMATS)
                .default_value("heapsnapshot")
                .help("output format"),
        )
        .args(destination::arguments(
            "heaptide-heap-SNAPSHOT.EXTENSION beside the snapshot",
        ))
        .arg(recording::argument())
        .arg(file_argument())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let format = matches.get_one::<String>("format");
    let format = format.map_or("heapsnapshot", String::as_str);
    let destination = Destination::choose(matches, Some(snapshot_path(matches)?), "heap", format)?;
    let heap = open(matches)?;
    let mut output = destination.open()?;
    output.write(|out| match format {
        "json" => export::whole_json(out, &heap),
        "dot" => export::whole_dot(out, &heap),
        _ => export::heapsnapshot(out, &heap),
    })?;
    output.finish()
}
