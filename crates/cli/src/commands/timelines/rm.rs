//! `heaptide rm` and `heaptide clean`: remove named timelines, or all timelines of this folder.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::exit::Failure;
use crate::input::folders;
use crate::input::newest;
use crate::input::timelines::{self, profiles};
use crate::messages::answer;

fn dry_run() -> Arg {
    Arg::new("dry_run")
        .long("dry-run")
        .action(ArgAction::SetTrue)
        .help("show the files without removing them")
}

pub(crate) fn arguments() -> Command {
    Command::new("rm")
        .about("Remove timelines by name or number")
        .arg(dry_run())
        .arg(
            timelines::argument()
                .required(true)
                .num_args(1..)
                .help("timelines, by name or by number in heaptide list; -1 is the newest"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let words = matches.get_many::<String>("profiles").into_iter().flatten();
    let mut paths: Vec<PathBuf> = Vec::new();
    // Numbers refer to the current list, so resolve all of them before removing any file.
    for word in words {
        let path = timelines::resolve(word)?;
        if path.is_file() && (folders::is_capture(&path) || newest::is_snapshot(&path)) {
            return Err(Failure::failed(format!(
                "{word} is not a timeline: remove captures and heap snapshots with rm of your shell"
            )));
        }
        if path.is_dir() {
            return Err(Failure::failed(format!(
                "{word} is a folder: name the timelines in it"
            )));
        }
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    remove(paths, matches.get_flag("dry_run"))
}

pub(crate) fn clean_arguments() -> Command {
    Command::new("clean")
        .about("Remove all timelines of this folder")
        .arg(dry_run())
}

pub(crate) fn clean(matches: &ArgMatches) -> Result<(), Failure> {
    let paths: Vec<PathBuf> = profiles().into_iter().map(|profile| profile.path).collect();
    if paths.is_empty() {
        answer!("no timelines in this folder");
        return Ok(());
    }
    remove(paths, matches.get_flag("dry_run"))
}

fn remove(paths: Vec<PathBuf>, is_dry: bool) -> Result<(), Failure> {
    let paths = timelines::with_companions(paths);
    if is_dry {
        answer!("Files to be removed: ");
        for path in paths {
            answer!("{}", path.display());
        }
        return Ok(());
    }
    for path in paths {
        std::fs::remove_file(&path).map_err(|error| {
            let shown = path.display();
            Failure::failed(format!(
                "cannot remove {shown} ({error}): check the permissions of the folder"
            ))
        })?;
    }
    Ok(())
}
