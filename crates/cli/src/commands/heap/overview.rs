//! `heaptide heap --pid PID`: a snapshot, and the first answer, in one go.

use std::path::PathBuf;

use clap::{Arg, ArgMatches};
use heaptide_analysis::heap::By;
use heaptide_analysis::heap::types::{Order, kinds_table};
use heaptide_report::text::heap::{self as text, More};

use super::{open_joined, rows_argument, take};
use crate::exit::Failure;
use crate::output::Output;

pub(super) fn arguments() -> Vec<Arg> {
    let mut arguments = take::job_arguments();
    arguments.push(rows_argument("20"));
    arguments
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let is_named = ["pid", "url"].iter().any(|name| matches.contains_id(name));
    if !is_named {
        return Err(Failure::Usage(
            "which job? name it with --pid or --url, or a question with a snapshot: see --help"
                .into(),
        ));
    }
    let to_standard = matches.get_one::<PathBuf>("output");
    if to_standard.is_some_and(|path| path.as_os_str() == "-") {
        return Err(Failure::Usage(
            "the table goes to standard output: take the snapshot alone with `heaptide heap take`"
                .into(),
        ));
    }
    let path = take::of_job(matches)?;
    let heap = open_joined(matches, &path)?;
    let table = kinds_table(&heap, By::Kind, Order::Retained);
    let mut output = Output::standard();
    output.write(|out| text::kinds_table(out, &table, super::n_rows(matches), More::Option))?;
    output.finish()?;
    let path = path.display();
    eprintln!("heaptide: all of it is in {path}; ask further:");
    eprintln!(
        "heaptide:   heaptide heap suspects {path}            what looks like a leak, and who holds it"
    );
    eprintln!("heaptide:   heaptide heap paths {path} --kind KIND   the shortest ways from a root");
    eprintln!(
        "heaptide:   heaptide heap explore {path}             a page to walk through all of it"
    );
    Ok(())
}
