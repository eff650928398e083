//! `heaptide heap waste`: wasted memory.

use clap::{ArgMatches, Command};
use heaptide_analysis::heap::waste::waste;
use heaptide_report::json;
use heaptide_report::text::heap::{self as text, More};

use super::{file_argument, json_argument, n_rows, open, rows_argument};
use crate::exit::Failure;
use crate::output::{self, Output};

pub(super) fn arguments() -> Command {
    Command::new("waste")
        .about("Show wasted memory: equal strings, unused capacity, empty containers")
        .long_about(
            "Show wasted memory: equal strings, unused capacity, empty containers, dicts of instances.\n\n\
             The sizes of lists, dicts and sets are compared with the minimum for their contents. Equal strings are only found \
             in snapshots taken with --values, among the stored values.",
        )
        .arg(rows_argument("20"))
        .arg(json_argument())
        .args(output::arguments())
        .arg(file_argument())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    Output::check(matches)?;
    let heap = open(matches)?;
    let report = waste(&heap);
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if matches.get_flag("json") {
            json::write(out, &json::heap::waste(&heap, &report, n_rows(matches)))
        } else {
            text::waste(out, &heap, &report, n_rows(matches), More::Option)
        }
    })?;
    output.finish()
}
