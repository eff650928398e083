//! `heaptide heap waste`: memory that buys nothing.

use clap::{ArgMatches, Command};
use heaptide_analysis::heap::waste::waste;
use heaptide_report::json;
use heaptide_report::text::heap::{self as text, More};

use super::{file_argument, json_argument, n_rows, open, rows_argument};
use crate::exit::Failure;
use crate::output::{self, Output};

pub(super) fn arguments() -> Command {
    Command::new("waste")
        .about("Show memory that buys nothing: equal texts, unused room, empty containers, dicts of instances")
        .long_about(
            "Show memory that buys nothing: equal texts, unused room, empty containers, dicts of instances.\n\n\
             Sizes of lists, dicts and sets are compared with what the interpreter needs for what is in them. Equal texts are found \
             only in snapshots that were taken with --values, as far as their values go.",
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
