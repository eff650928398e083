//! `heaptide symbols`: what native frames are called, looked up and kept in the capture.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};
use heaptide_analysis::load::native_names;
use heaptide_capture::{Capture, Entry, Symbol};
use heaptide_procfs as procfs;

use crate::exit::Failure;
use crate::input;
use crate::progress::Progress;

pub(crate) fn arguments() -> Command {
    Command::new("symbols")
        .about("Keep the names of native functions in a capture, for reports on another machine")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("bundle")
                .about("Look up the native functions of captures and store their names in them")
                .long_about(
                    "Look up the native functions of captures and store their names in them.\n\n\
                     A capture made with --native holds addresses in libraries. Their names are looked up when a report is \
                     made, in the libraries and their debug files, so both have to be there. Run this where the program ran: \
                     afterwards the capture alone is enough. It only grows; doing it again adds what is new.",
                )
                .arg(input::argument().help("captures that get the names")),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some(("bundle", matches)) = matches.subcommand() else {
        return Err(Failure::Usage(
            "say what to do: heaptide symbols bundle FILE".to_owned(),
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
            "{shown} may still be written by process {}: bundle it when that has ended",
            capture.header.pid
        )));
    }
    if capture.registry.modules.is_empty() {
        return Err(Failure::failed(format!(
            "{shown} has no native frames: record with --native to get them"
        )));
    }
    let Kept { n_added, n_all } = keep_names(capture, None)?;
    println!("{shown}: names of {n_added} addresses added, {n_all} in all");
    Ok(())
}

/// Stores the names of a capture that came out of a container: its libraries lie below `root`.
pub(crate) fn bundle_from(root: &Path, capture: &Path) -> Result<(), Failure> {
    let capture = heaptide_foreign::open(capture).map_err(Failure::failed)?;
    if !capture.registry.modules.is_empty() {
        keep_names(capture, Some(root))?;
    }
    Ok(())
}

/// So many addresses got their names, of so many.
struct Kept {
    n_added: usize,
    n_all: usize,
}

fn keep_names(mut capture: Capture, root: Option<&Path>) -> Result<Kept, Failure> {
    for module in capture.registry.modules.values_mut() {
        // Those in angle brackets are no files.
        if let Some(root) = root.filter(|_| module.path.starts_with('/')) {
            module.path = format!("{}{}", root.display(), module.path);
        }
    }
    let mut progress = Progress::new("reading", capture.n_events());
    let (capture, names) = native_names(capture, &mut |n_done| progress.advance(n_done));
    progress.finish();
    let mut found: Vec<_> = names.iter().collect();
    let known = &capture.registry.symbols;
    found.retain(|(frame, _)| !known.contains_key(&(frame.code, frame.instruction)));
    found.sort_unstable_by_key(|(frame, _)| (frame.code, frame.instruction));
    let entries: Vec<Entry> = found
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
    Ok(Kept {
        n_added: found.len(),
        n_all: names.len(),
    })
}

/// Whether a process of this number runs here. A capture from elsewhere may name one that does by chance.
fn is_running(pid: u32) -> bool {
    pid != 0 && procfs::exists(pid)
}
