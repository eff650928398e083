//! `heaptide heap types`: every kind with its own bytes and with what it keeps alive.

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
        .about("Show every kind of object with its own bytes and with what it keeps alive")
        .long_about(
            "Show every kind of object with its own bytes and with what it keeps alive.\n\n\
             Retained is what no root would reach any more if all objects of the kind went, those included. What several kinds \
             keep alive together belongs to none of them. If the program was recorded with --objects meanwhile, the line that \
             allocated most of a kind stands behind it.",
        )
        .arg(
            Arg::new("sort")
                .long("sort")
                .value_name("BY")
                .value_parser(PossibleValuesParser::new(Order::ALL.map(|(name, _)| name)))
                .default_value("retained")
                .help("which rows come first"),
        )
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("WHAT")
                .value_parser(["kind", "type", "module"])
                .default_value("kind")
                .help("what objects of a row have in common"),
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
