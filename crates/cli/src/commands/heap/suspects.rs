//! `heaptide heap suspects`: what looks like a leak, who holds it, and what to do.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use heaptide_analysis::heap::suspects::suspects;
use heaptide_analysis::heap::{Heap, ObjectSet, diff};
use heaptide_report::json;
use heaptide_report::text::heap as text;

use super::{file_argument, json_argument, open, open_path, recording};
use crate::exit::Failure;
use crate::output::{self, Output};

pub(super) fn arguments() -> Command {
    let earlier = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(help)
    };
    Command::new("suspects")
        .about("Name what looks like a leak: where things accumulate, who holds them, where they were made")
        .long_about(
            "Name what looks like a leak: where things accumulate, who holds them, where they were made.\n\n\
             One snapshot shows where most of the data is. With --baseline only objects count that are new since then, \
             and with --load as well only those that were there under load already: what is left is what leaked. If the program \
             was recorded meanwhile (heaptide run --objects), the lines that allocated are named, too.",
        )
        .after_help(
            "Examples:\n  \
             heaptide heap suspects job.heap\n  \
             heaptide heap suspects --baseline before.heap after.heap\n  \
             heaptide heap suspects --baseline idle.heap --load busy.heap idle-again.heap",
        )
        .arg(earlier("baseline", "a snapshot of the same process from before"))
        .arg(earlier("load", "one from between the two").requires("baseline"))
        .arg(
            Arg::new("n_rows")
                .short('n')
                .long("num-suspects")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .default_value("5")
                .help("how many to name"),
        )
        .arg(json_argument())
        .args(output::arguments())
        .arg(recording::argument())
        .arg(file_argument())
}

/// The snapshot, and what of it is new if earlier ones were named.
pub(super) fn open_with_new(matches: &ArgMatches) -> Result<(Heap, Option<ObjectSet>), Failure> {
    let heap = open(matches)?;
    let earlier = |name: &str| -> Result<Option<Heap>, Failure> {
        let path = matches.get_one::<PathBuf>(name);
        let other = path.map(|path| open_path(path)).transpose()?;
        if let Some(other) = &other {
            if !diff::is_same_process(other, &heap) {
                return Err(Failure::failed(format!(
                    "the snapshot of --{name} is of another process, so objects cannot be told apart: take all of them from one"
                )));
            }
        }
        Ok(other)
    };
    let new = match (earlier("baseline")?, earlier("load")?) {
        (Some(baseline), Some(load)) => Some(diff::leaked(&baseline, &load, &heap)),
        (Some(baseline), None) => Some(diff::only_in(&heap, &baseline)),
        _ => None,
    };
    Ok((heap, new))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    Output::check(matches)?;
    let (heap, new) = open_with_new(matches)?;
    let n_suspects = matches.get_one::<u32>("n_rows").map_or(5, |&n| n as usize);
    let found = suspects(&heap, new.as_ref(), n_suspects);
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if matches.get_flag("json") {
            json::write(out, &json::heap::suspects(&heap, &found))
        } else {
            text::suspects(out, &heap, &found)
        }
    })?;
    output.finish()
}
