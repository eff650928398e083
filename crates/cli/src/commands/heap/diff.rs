//! `heaptide heap diff`: what changed from one snapshot to another, or what three of them say has leaked.

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
        .about("Show what changed between two snapshots; of three, what came with the load and stayed")
        .long_about(
            "Show what changed between two snapshots; of three, what came with the load and stayed.\n\n\
             Two snapshots of one process are compared object by object: an object is the same if it has the same address and \
             type. With three — before the load, under it, after it — only objects are shown that the load brought and that are \
             still there afterwards: caches that were filled before and garbage of the last moment are not among them.",
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
                .help("the earlier snapshot and the later one, with one under load between them if there are three"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    Output::check(matches)?;
    let paths: Vec<&PathBuf> = matches
        .get_many::<PathBuf>("snapshots")
        .into_iter()
        .flatten()
        .collect();
    // Only this question needs to know where objects were allocated.
    let is_joined = show::by(matches) == By::Producer;
    let heaps = paths.iter().map(|path| match is_joined {
        true => open_joined(matches, path),
        false => open_path(path),
    });
    let heaps = heaps.collect::<Result<Vec<Heap>, Failure>>()?;
    match heaps.as_slice() {
        [before, after] => two(matches, before, after),
        [baseline, load, after] => three(matches, baseline, load, after),
        _ => Err(Failure::Usage("name two snapshots, or three".into())),
    }
}

fn two(matches: &ArgMatches, before: &Heap, after: &Heap) -> Result<(), Failure> {
    let by = show::by(matches);
    let found = diff::diff(before, after, by);
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if matches.get_flag("json") {
            return json::write(out, &json::heap::difference(&found, n_rows(matches)));
        }
        text::difference(out, &found, by, n_rows(matches), More::Option)?;
        writeln!(out, "\n{}", identity(after, before, &found))
    })?;
    output.finish()
}

fn identity(after: &Heap, before: &Heap, found: &HeapDiff) -> String {
    if !found.is_same_process {
        return "The snapshots are of different processes: only sums can be compared.".to_owned();
    }
    let amount = |heap: &Heap, set: &ObjectSet| (set.len(), heap.bytes_of(set));
    let (n_new, new_bytes) = amount(after, &found.new);
    let (n_gone, gone_bytes) = amount(before, &found.gone);
    format!("{n_new} objects of {new_bytes} bytes are new, {n_gone} of {gone_bytes} bytes went.")
}

fn three(matches: &ArgMatches, baseline: &Heap, load: &Heap, after: &Heap) -> Result<(), Failure> {
    let is_one = diff::is_same_process(baseline, after) && diff::is_same_process(load, after);
    if !is_one {
        return Err(Failure::failed(
            "the three snapshots are not of one process, so objects cannot be told apart: take all of them from one",
        ));
    }
    let leaked = diff::leaked(baseline, load, after);
    let table = Partition::of(after, &leaked, show::by(matches));
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if matches.get_flag("json") {
            return json::write(out, &json::heap::partition(&table, n_rows(matches)));
        }
        writeln!(out, "Came with the load and stayed.")?;
        text::partition(out, &table, 0, n_rows(matches), More::Option)
    })?;
    output.finish()
}
