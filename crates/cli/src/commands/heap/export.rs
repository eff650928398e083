//! `heaptide heap export`: the whole snapshot in another program's form.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use heaptide_report::heap_export as export;

use super::{file_argument, open_joined, recording};
use crate::destination::{self, Destination};
use crate::exit::Failure;

const FORMS: [(&str, &str); 3] = [
    ("heapsnapshot", "heapsnapshot"),
    ("json", "json"),
    ("dot", "dot"),
];

pub(super) fn arguments() -> Command {
    Command::new("export")
        .about("Write the whole snapshot for another program: Chrome DevTools, memlab, JSON, dot")
        .long_about(
            "Write the whole snapshot for another program: Chrome DevTools, memlab, JSON, dot.\n\n\
             heapsnapshot is V8's format: load it in the Memory panel of Chrome DevTools, or give it to memlab. Weak references are weak \
             there; where objects were allocated is in it if the program was recorded with --objects meanwhile. Sizes beyond 4 GiB are divided over several \
             nodes, because numbers have 32 bits there.",
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORM")
                .value_parser(FORMS.map(|(name, _)| name))
                .default_value("heapsnapshot")
                .help("the form to write"),
        )
        .args(destination::arguments(
            "heaptide-heap-SNAPSHOT, with the form's ending, beside the snapshot",
        ))
        .arg(recording::argument())
        .arg(file_argument())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let form = matches.get_one::<String>("format");
    let form = form.map_or("heapsnapshot", String::as_str);
    let destination = Destination::choose(matches, matches.get_one("snapshot"), "heap", form)?;
    let path = matches.get_one::<PathBuf>("snapshot");
    let heap = open_joined(matches, path.map_or(Path::new(""), PathBuf::as_path))?;
    let mut output = destination.open()?;
    output.write(|out| match form {
        "json" => export::whole_json(out, &heap),
        "dot" => export::whole_dot(out, &heap),
        _ => export::heapsnapshot(out, &heap),
    })?;
    output.finish()
}
