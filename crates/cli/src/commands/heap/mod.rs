//! `heaptide heap`: what the objects of a process are, who holds them, and what they keep alive. A file for each question.

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

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_analysis::heap::Heap;
use heaptide_capture::heap::HeapSnapshot;
use std::path::{Path, PathBuf};

use super::{Subcommand, complete};
use crate::Outcome;
use crate::command_line::CommandLine;
use crate::exit::{self, Failure};

/// In the order in which help lists them.
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
        .about("Look at every Python object of a process: what it is, who holds it, what it keeps alive")
        .long_about(
            "Look at every Python object of a process: what it is, who holds it, what it keeps alive.\n\n\
             A snapshot is a file with all objects of a process at one moment and who refers to whom. All questions are asked \
             of the file, on any machine; the process does not need to run any more.",
        )
        .after_help(
            "Examples:\n  \
             heaptide heap --pid 4711                        a running process: take a snapshot, show its kinds\n  \
             heaptide heap take --pid 4711 -o job.heap       the snapshot alone\n  \
             heaptide heap types job.heap                    kinds of objects, and what each keeps alive\n  \
             heaptide heap paths job.heap --kind job.Order   who holds them: the shortest ways from a root\n  \
             heaptide heap diff before.heap after.heap       what is new, by kind\n  \
             heaptide heap suspects job.heap                 what looks like a leak, and what to do\n  \
             heaptide heap explore job.heap                  a page to walk through all of it",
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
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("a heap snapshot")
}

fn json_argument() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("print JSON for other programs")
}

fn rows_argument(default: &'static str) -> Arg {
    Arg::new("n_rows")
        .short('n')
        .long("num-rows")
        .value_name("N")
        .value_parser(value_parser!(u32))
        .default_value(default)
        .help("how many rows to show; 0 for all")
}

fn n_rows(matches: &ArgMatches) -> usize {
    matches.get_one::<u32>("n_rows").map_or(0, |&n| n as usize)
}

/// The snapshot that was named, with where its objects were allocated if that is known and of use to the question.
fn open(matches: &ArgMatches) -> Result<Heap, Failure> {
    let path = matches.get_one::<PathBuf>("snapshot");
    let path = path.map_or(Path::new(""), PathBuf::as_path);
    open_joined(matches, path)
}

fn open_joined(matches: &ArgMatches, path: &Path) -> Result<Heap, Failure> {
    let mut snapshot = read(path)?;
    // Not all questions have the option.
    if matches.try_get_one::<PathBuf>("recording").is_ok() {
        recording::join(matches, &mut snapshot, path)?;
    }
    Ok(Heap::new(snapshot))
}

/// Opens a snapshot, and passes on what its walk could not look at.
fn open_path(path: &Path) -> Result<Heap, Failure> {
    read(path).map(Heap::new)
}

fn read(path: &Path) -> Result<HeapSnapshot, Failure> {
    let snapshot = HeapSnapshot::open(path).map_err(Failure::failed)?;
    for note in &snapshot.header.notes {
        eprintln!("heaptide: {}: {note}", path.display());
    }
    Ok(snapshot)
}
