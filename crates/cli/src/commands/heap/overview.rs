//! `heaptide heap --pid PID`: takes a snapshot and shows its kinds of objects.

use std::path::PathBuf;

use clap::{Arg, ArgMatches};
use heaptide_analysis::heap::By;
use heaptide_analysis::heap::types::{Order, kinds_table};
use heaptide_report::text::heap::{self as text, More};

use super::{open_joined, rows_argument, take};
use crate::exit::Failure;
use crate::messages::message;
use crate::output::Output;

pub(super) fn arguments() -> Vec<Arg> {
    let mut arguments = take::process_arguments();
    arguments.push(rows_argument("20"));
    arguments
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let is_named = ["pid", "url"].iter().any(|name| matches.contains_id(name));
    if !is_named {
        return Err(Failure::Usage(
            "missing process: name it with --pid or --url, or use a subcommand with a snapshot (see --help)"
                .into(),
        ));
    }
    let output = matches.get_one::<PathBuf>("output");
    if output.is_some_and(|path| path.as_os_str() == "-") {
        return Err(Failure::Usage(
            "the table goes to standard output: to write the snapshot there, use `heaptide heap take`"
                .into(),
        ));
    }
    let path = take::of_process(matches)?;
    let heap = open_joined(matches, &path)?;
    let table = kinds_table(&heap, By::Kind, Order::Retained);
    let mut output = Output::standard();
    output.write(|out| text::kinds_table(out, &table, super::n_rows(matches), More::Option))?;
    output.finish()?;
    let path = path.display();
    message!("the snapshot is in {path}; next:");
    message!("  heaptide heap suspects {path}            leak suspects");
    message!("  heaptide heap paths {path} --type TYPE   shortest paths from roots");
    message!("  heaptide heap explore {path}             interactive page");
    Ok(())
}
