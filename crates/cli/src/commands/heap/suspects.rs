//! `heaptide heap suspects`: leak suspects, what keeps them alive, and what to do.

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
        .about("Report leak suspects and what keeps them alive")
        .long_about(
            "Report leak suspects and what keeps them alive.\n\n\
             One snapshot shows where most of the data is. With --baseline, only objects that are new since then count. With \
             --load, they must also have existed under load: these are the leaked objects. If the program was recorded \
             (heaptide run --objects), the report names the allocating lines.",
        )
        .after_help(
            "Examples:\n  \
             heaptide heap suspects job.heap\n  \
             heaptide heap suspects --baseline before.heap after.heap\n  \
             heaptide heap suspects --baseline idle.heap --load busy.heap idle-again.heap",
        )
        .arg(earlier("baseline", "earlier snapshot of the same process"))
        .arg(earlier("load", "snapshot under load, between the two").requires("baseline"))
        .arg(
            Arg::new("n_rows")
                .short('n')
                .long("num-suspects")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .default_value("5")
                .help("number of suspects"),
        )
        .arg(json_argument())
        .args(output::arguments())
        .arg(recording::argument())
        .arg(file_argument())
}

/// Opens the snapshot. Also returns the new objects, if earlier snapshots are named.
pub(super) fn open_with_new(matches: &ArgMatches) -> Result<(Heap, Option<ObjectSet>), Failure> {
    let heap = open(matches)?;
    let earlier = |name: &str| -> Result<Option<Heap>, Failure> {
        let path = matches.get_one::<PathBuf>(name);
        let other = path.map(|path| open_path(path)).transpose()?;
        if let Some(other) = &other {
            if !diff::is_same_process(other, &heap) {
                return Err(Failure::failed(format!(
                    "the snapshot of --{name} is of another process, so its objects cannot be matched: take all snapshots of one process"
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
    let suspects = suspects(&heap, new.as_ref(), n_suspects);
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if matches.get_flag("json") {
            json::write(out, &json::heap::suspects(&heap, &suspects))
        } else {
            text::suspects(out, &heap, &suspects)
        }
    })?;
    output.finish()
}
