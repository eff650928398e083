//! `heaptide heap show`: objects grouped by kind, size, module or referrers.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use heaptide_analysis::heap::{By, Partition};
use heaptide_report::json;
use heaptide_report::text::heap::{self as text, More};

use super::{file_argument, json_argument, n_rows, open, recording, rows_argument, selection};
use crate::exit::Failure;
use crate::output::{self, Output};

pub(super) fn arguments() -> Command {
    Command::new("show")
        .about("Show objects by kind, size, module or referrers")
        .long_about(
            "Show objects by kind, size, module or referrers.\n\n\
             The tables have heapy's layout. The __dict__ of an object has the kind \"dict of\" its type. Sizes are those of \
             sys.getsizeof, plus the header of the garbage collector, plus known external buffers.",
        )
        .after_help(
            "Examples:\n  \
             heaptide heap show job.heap\n  \
             heaptide heap show job.heap --type str --by via\n  \
             heaptide heap show job.heap --type job.Order --by referrers",
        )
        .arg(by_argument())
        .args(selection::arguments())
        .arg(rows_argument("10"))
        .arg(json_argument())
        .args(output::arguments())
        .arg(recording::argument())
        .arg(file_argument())
}

pub(super) fn by_argument() -> Arg {
    Arg::new("by")
        .long("by")
        .value_name("WHAT")
        .value_parser(PossibleValuesParser::new(By::ALL.map(|(name, _)| name)))
        .default_value("kind")
        .help("grouping of rows")
}

pub(super) fn by(matches: &ArgMatches) -> By {
    let name = matches.get_one::<String>("by");
    name.and_then(|name| By::from_name(name))
        .unwrap_or(By::Kind)
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    Output::check(matches)?;
    let heap = open(matches)?;
    let by = by(matches);
    if by == By::Producer && heap.stacks().is_none() {
        return Err(Failure::failed(
            "this snapshot has no allocation stacks: take it while the program is recorded with --objects",
        ));
    }
    let objects = selection::objects(&heap, matches)?;
    let table = Partition::of(&heap, &objects, by);
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if matches.get_flag("json") {
            json::write(out, &json::heap::partition(&table, n_rows(matches)))
        } else {
            text::partition(out, &table, 0, n_rows(matches), More::Option)
        }
    })?;
    output.finish()
}
