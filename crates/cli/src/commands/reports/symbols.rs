//! `heaptide symbols`: resolves native symbols and stores them in the capture.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};
use heaptide_analysis::load::native_names;
use heaptide_capture::{Capture, Entry, Symbol};
use heaptide_procfs as procfs;

use crate::exit::Failure;
use crate::input;
use crate::messages::answer;
use crate::output::progress::Progress;

pub(crate) fn arguments() -> Command {
    Command::new("symbols")
        .about("Store native symbols in a capture")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("bundle")
                .about("Resolve native symbols and store them in the captures")
                .long_about(
                    "Resolve native symbols and store them in the captures.\n\n\
                     A capture made with --native contains addresses in libraries. Reports resolve them with the libraries and \
                     their debug files, which must be on the same machine. Run this command where the program ran; then the \
                     capture alone is enough. You can run it again: it adds new symbols and changes nothing else.",
                )
                .arg(input::argument().required(true).num_args(1..).help("captures to update")),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some(("bundle", matches)) = matches.subcommand() else {
        return Err(Failure::Usage(
            "missing subcommand: use heaptide symbols bundle FILE".to_owned(),
        ));
    };
    for capture in input::open(matches)? {
        bundle(capture)?;
    }
    Ok(())
}

fn bundle(capture: Capture) -> Result<(), Failure> {
    let path: PathBuf = capture.path.clone();
    let shown = path.display();
    if capture.registry.end.is_none() && is_running(capture.header.pid) {
        return Err(Failure::failed(format!(
            "process {} may still write {shown}: run this after it has ended",
            capture.header.pid
        )));
    }
    if capture.registry.modules.is_empty() {
        return Err(Failure::failed(format!(
            "{shown} has no native frames: record with --native"
        )));
    }
    let Stored { n_added, n_all } = store_symbols(capture, None)?;
    answer!("{shown}: {n_added} symbols added, {n_all} in total");
    Ok(())
}

/// Stores the symbols of a capture from a container, whose libraries are below `root`.
pub(crate) fn bundle_from(root: &Path, capture: &Path) -> Result<(), Failure> {
    let capture = input::open_one(capture)?;
    if !capture.registry.modules.is_empty() {
        store_symbols(capture, Some(root))?;
    }
    Ok(())
}

/// The number of new symbols, and of all.
struct Stored {
    n_added: usize,
    n_all: usize,
}

fn store_symbols(mut capture: Capture, root: Option<&Path>) -> Result<Stored, Failure> {
    for module in capture.registry.modules.values_mut() {
        // Names in angle brackets are not files.
        if let Some(root) = root.filter(|_| module.path.starts_with('/')) {
            module.path = format!("{}{}", root.display(), module.path);
        }
    }
    let mut progress = Progress::new("reading", capture.n_events());
    let (capture, names) = native_names(capture, &mut |n_done| progress.advance(n_done));
    progress.finish();
    let mut added: Vec<_> = names.iter().collect();
    let known = &capture.registry.symbols;
    added.retain(|(frame, _)| !known.contains_key(&(frame.code, frame.instruction)));
    added.sort_unstable_by_key(|(frame, _)| (frame.code, frame.instruction));
    let entries: Vec<Entry> = added
        .iter()
        .flat_map(|(frame, names)| {
            names.iter().map(|name| {
                Entry::Symbol(Symbol {
                    module: frame.code,
                    offset: frame.instruction,
                    function: name.function.as_bytes(),
                    file: name.file.as_bytes(),
                    line: name.line,
                })
            })
        })
        .collect();
    if !entries.is_empty() {
        let written = capture.append_registry(&entries);
        written.map_err(|error| Failure::writing(capture.path.display(), &error))?;
    }
    Ok(Stored {
        n_added: added.len(),
        n_all: names.len(),
    })
}

/// Whether a process with this ID runs. For a capture from another machine this can be another process.
fn is_running(pid: u32) -> bool {
    pid != 0 && procfs::exists(pid)
}
