//! `heaptide heap diff`: compares two snapshots, or finds leaked objects with three.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use heaptide_analysis::heap::diff::{self, HeapDiff};
use heaptide_analysis::heap::{By, Heap, ObjectSet, Partition};
use heaptide_report::json;
use heaptide_report::text::heap::{self as text, More};

use super::{json_argument, n_rows, open_joined, open_path, recording, rows_argument, show};
use crate::exit::Failure;
use crate::output::{self, Output};

pub(super) fn arguments() -> Command {
    Command::new("diff")
        .about("Compare two snapshots, or find leaks with three")
        .long_about(
            "Compare two snapshots, or find leaks with three.\n\n\
             Two snapshots of one process are compared object by object: objects are the same if address and type are equal. \
             With three snapshots (before, under and after load), only objects that appeared under load and are still alive \
             afterwards are shown. Caches filled earlier and short-lived objects are not among them.",
        )
        .after_help(
            "Examples:\n  \
             heaptide heap diff before.heap after.heap\n  \
             heaptide heap diff idle.heap busy.heap idle-again.heap",
        )
        .arg(show::by_argument())
        .arg(rows_argument("10"))
        .arg(json_argument())
        .args(output::arguments())
        .arg(recording::argument())
        .arg(
            Arg::new("snapshots")
                .value_name("FILE")
                .num_args(2..=3)
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("earlier and later snapshot, or before, under and after load"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    Output::check(matches)?;
    let paths: Vec<&PathBuf> = matches
        .get_many::<PathBuf>("snapshots")
        .into_iter()
        .flatten()
        .collect();
    // Only this grouping needs allocation stacks.
    let is_joined = show::by(matches) == By::Producer;
    let heaps = paths.iter().map(|path| match is_joined {
        true => open_joined(matches, path),
        false => open_path(path),
    });
    let heaps = heaps.collect::<Result<Vec<Heap>, Failure>>()?;
    match heaps.as_slice() {
        [before, after] => compare(matches, before, after),
        [baseline, load, after] => show_leaked(matches, baseline, load, after),
        _ => Err(Failure::Usage("name two or three snapshots".into())),
    }
}

fn compare(matches: &ArgMatches, before: &Heap, after: &Heap) -> Result<(), Failure> {
    let by = show::by(matches);
    let difference = diff::diff(before, after, by);
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if matches.get_flag("json") {
            return json::write(out, &json::heap::difference(&difference, n_rows(matches)));
        }
        text::difference(out, &difference, by, n_rows(matches), More::Option)?;
        writeln!(out, "\n{}", object_changes(after, before, &difference))
    })?;
    output.finish()
}

fn object_changes(after: &Heap, before: &Heap, difference: &HeapDiff) -> String {
    if !difference.is_same_process {
        return "The snapshots are of different processes: only sums are compared.".to_owned();
    }
    let amount = |heap: &Heap, set: &ObjectSet| (set.len(), heap.bytes_of(set));
    let (n_new, new_bytes) = amount(after, &difference.new);
    let (n_gone, gone_bytes) = amount(before, &difference.gone);
    format!(
        "{n_new} objects ({new_bytes} bytes) are new, {n_gone} ({gone_bytes} bytes) were freed."
    )
}

fn show_leaked(
    matches: &ArgMatches,
    baseline: &Heap,
    load: &Heap,
    after: &Heap,
) -> Result<(), Failure> {
    let is_same_process =
        diff::is_same_process(baseline, after) && diff::is_same_process(load, after);
    if !is_same_process {
        return Err(Failure::failed(
            "the snapshots are of different processes, so their objects cannot be matched: take all snapshots of one process",
        ));
    }
    let leaked = diff::leaked(baseline, load, after);
    let table = Partition::of(after, &leaked, show::by(matches));
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if matches.get_flag("json") {
            return json::write(out, &json::heap::partition(&table, n_rows(matches)));
        }
        writeln!(out, "Objects that appeared under load and are still alive.")?;
        text::partition(out, &table, 0, n_rows(matches), More::Option)
    })?;
    output.finish()
}
