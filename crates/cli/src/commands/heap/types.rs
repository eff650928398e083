//! `heaptide heap types`: kinds of objects with own and retained size.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use heaptide_analysis::heap::By;
use heaptide_analysis::heap::types::{Order, kinds_table};
use heaptide_report::json;
use heaptide_report::text::heap::{self as text, More};

use super::{file_argument, json_argument, n_rows, open, recording, rows_argument};
use crate::exit::Failure;
use crate::output::{self, Output};

pub(super) fn arguments() -> Command {
    Command::new("types")
        .about("Show kinds of objects with own and retained size")
        .long_about(
            "Show kinds of objects with own and retained size.\n\n\
             The retained size of a kind is the memory that would be freed with all objects of the kind. Memory that several \
             kinds keep alive together belongs to none of them. If the program was recorded with --objects, each row ends with \
             the line that allocated most of the kind, and its share of the objects.",
        )
        .arg(
            Arg::new("sort")
                .long("sort")
                .value_name("BY")
                .value_parser(PossibleValuesParser::new(Order::ALL.map(|(name, _)| name)))
                .default_value("retained")
                .help("sort order of rows"),
        )
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("WHAT")
                .value_parser(["kind", "type", "module"])
                .default_value("kind")
                .help("grouping of rows"),
        )
        .arg(rows_argument("20"))
        .arg(json_argument())
        .args(output::arguments())
        .arg(recording::argument())
        .arg(file_argument())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    Output::check(matches)?;
    let heap = open(matches)?;
    let by = matches.get_one::<String>("by");
    let by = by.and_then(|name| By::from_name(name)).unwrap_or(By::Kind);
    let order = matches.get_one::<String>("sort");
    let order = Order::ALL
        .iter()
        .find(|(name, _)| order.is_some_and(|wanted| wanted == name))
        .map_or(Order::Retained, |&(_, order)| order);
    let table = kinds_table(&heap, by, order);
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if matches.get_flag("json") {
            json::write(out, &json::heap::kinds_table(&table, n_rows(matches)))
        } else {
            text::kinds_table(out, &table, n_rows(matches), More::Option)
        }
    })?;
    output.finish()
}
