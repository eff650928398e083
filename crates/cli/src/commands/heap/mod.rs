//! `heaptide heap`: analyses the Python objects of a process. One file per subcommand.

mod diff;
mod dominators;
mod explore;
mod export;
mod graph;
mod overview;
mod paths;
mod recording;
mod selection;
mod show;
mod suspects;
mod take;
mod types;
mod waste;

use clap::{Arg, ArgMatches, Command, value_parser};
use heaptide_analysis::heap::Heap;
use heaptide_capture::heap::HeapSnapshot;
use std::path::{Path, PathBuf};

use super::{Subcommand, complete};
use crate::Outcome;
use crate::exit::{self, Failure};
use crate::input::newest;
use crate::invocation::command_line::CommandLine;
use crate::messages::message;

/// All subcommands, in the order of the help.
const ALL: &[Subcommand] = &[
    complete!("take", take::arguments, take::run),
    complete!("show", show::arguments, show::run),
    complete!("types", types::arguments, types::run),
    complete!("paths", paths::arguments, paths::run),
    complete!("dominators", dominators::arguments, dominators::run),
    complete!("diff", diff::arguments, diff::run),
    complete!("suspects", suspects::arguments, suspects::run),
    complete!("waste", waste::arguments, waste::run),
    complete!("explore", explore::arguments, explore::run),
    complete!("graph", graph::arguments, graph::run),
    complete!("export", export::arguments, export::run),
];

pub(crate) fn arguments() -> Command {
    let command = Command::new("heap")
        .about("Analyse the Python objects of a process")
        .long_about(
            "Analyse the Python objects of a process.\n\n\
             A heap snapshot is a file with all objects of a process at one time and their references. All subcommands except \
             take read the file, on any machine, without the process.",
        )
        .after_help(
            "Examples:\n  \
             heaptide heap --pid 4711                        take a snapshot and show its kinds\n  \
             heaptide heap take --pid 4711 -o job.heap       take a snapshot\n  \
             heaptide heap types job.heap                    kinds of objects with retained size\n  \
             heaptide heap paths job.heap --type job.Order   shortest paths from roots to objects\n  \
             heaptide heap diff before.heap after.heap       new objects by kind\n  \
             heaptide heap suspects job.heap                 leak suspects, and what to do\n  \
             heaptide heap explore job.heap                  interactive page",
        )
        .args(overview::arguments())
        .args_conflicts_with_subcommands(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true);
    ALL.iter().fold(command, |command, subcommand| {
        command.subcommand((subcommand.arguments)())
    })
}

pub(crate) fn run(matches: &ArgMatches, line: CommandLine) -> Result<Outcome, Failure> {
    let Some((name, matches)) = matches.subcommand() else {
        return overview::run(matches).map(|()| Outcome::Exit(exit::OK));
    };
    match ALL.iter().find(|known| known.name == name) {
        Some(known) => (known.run)(matches, line),
        None => Err(Failure::Usage(format!("there is no command heap {name}"))),
    }
}

fn file_argument() -> Arg {
    Arg::new("snapshot")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("heap snapshot [default: the newest]")
}

/// Returns the named snapshot, or the newest one of the current folder.
fn snapshot_path(matches: &ArgMatches) -> Result<&PathBuf, Failure> {
    match matches.get_one::<PathBuf>("snapshot") {
        Some(path) => Ok(path),
        None => newest::newest_snapshot(),
    }
}

fn json_argument() -> Arg {
    crate::options::arguments::json()
}

fn rows_argument(default: &'static str) -> Arg {
    Arg::new("n_rows")
        .short('n')
        .long("num-rows")
        .value_name("N")
        .value_parser(value_parser!(u32))
        .default_value(default)
        .help("number of rows; 0 for all")
}

fn n_rows(matches: &ArgMatches) -> usize {
    matches.get_one::<u32>("n_rows").map_or(0, |&n| n as usize)
}

/// Opens the chosen snapshot, with allocation stacks if they are known and the command uses them.
fn open(matches: &ArgMatches) -> Result<Heap, Failure> {
    open_joined(matches, snapshot_path(matches)?)
}

fn open_joined(matches: &ArgMatches, path: &Path) -> Result<Heap, Failure> {
    let mut snapshot = read(path)?;
    // Only some commands have the option.
    if matches.try_get_one::<PathBuf>("recording").is_ok() {
        recording::join(matches, &mut snapshot, path)?;
    }
    Ok(Heap::new(snapshot))
}

/// Opens a snapshot without allocation stacks.
fn open_path(path: &Path) -> Result<Heap, Failure> {
    read(path).map(Heap::new)
}

/// Reads a snapshot and prints the notes of its walk.
fn read(path: &Path) -> Result<HeapSnapshot, Failure> {
    let snapshot = HeapSnapshot::open(path).map_err(Failure::failed)?;
    for note in &snapshot.header.notes {
        message!("{}: {note}", path.display());
    }
    Ok(snapshot)
}
