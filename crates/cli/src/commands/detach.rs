//! `heaptide detach`: end what `heaptide attach` began.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_attach::{Target, shared_folder, visit};
use heaptide_procfs as procfs;

use crate::commands::symbols;
use crate::exit::Failure;
use crate::run_summary;
use crate::timeline_file;

pub(crate) const NAME: &str = "detach";

pub(crate) fn arguments() -> Command {
    Command::new(NAME)
        .about("End a recording that `heaptide attach` began; the process goes on as before")
        .after_help(
            "The process gets its own functions back, our threads in it end, and what was copied for it is removed.\n\
             The capture of a process in a container is fetched out of it, to where attach was told to put it, and gets\n\
             the names of its native functions.\n\
             Exit codes: 0 done, 1 refused, and one sentence says why.",
        )
        .arg(
            Arg::new("pid")
                .value_name("PID")
                .required(true)
                .value_parser(value_parser!(u32).range(1..))
                .help("the process, as ps shows it"),
        )
        .arg(
            Arg::new("quiet")
                .short('q')
                .long("quiet")
                .action(ArgAction::SetTrue)
                .help("say nothing if all goes well"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let pid = matches.get_one::<u32>("pid").copied().unwrap_or(0);
    let target = Target::find(pid).map_err(Failure::failed)?;
    let path = end(&target)?;
    if !matches.get_flag("quiet") {
        for line in run_summary(&path) {
            eprintln!("heaptide: {line}");
        }
    }
    Ok(())
}

/// Ends the recording of a process, and returns where the capture is.
pub(crate) fn end(target: &Target) -> Result<PathBuf, Failure> {
    let ended = visit::detach(target).map_err(Failure::failed)?;
    if !ended.note.is_empty() {
        eprintln!("heaptide: {}: it holds what could be written", ended.note);
    }
    if ended.home.as_os_str().is_empty() {
        return Ok(ended.capture);
    }
    fetch(target.pid, &ended.capture, &ended.home)?;
    // Its libraries can be read as long as it runs, and nowhere else; without their names the capture is worth having, too.
    let root = procfs::root(target.pid);
    if symbols::bundle_from(&root, &ended.home).is_err() {
        eprintln!(
            "heaptide: the names of its native functions could not be stored: run heaptide symbols bundle where it runs"
        );
    }
    Ok(ended.home)
}

/// Brings a file out of the process's own files, and removes the folder that was made for it there.
pub(crate) fn fetch(pid: u32, there: &Path, here: &Path) -> Result<(), Failure> {
    let lost = |error: &io::Error| {
        Failure::failed(format!(
            "{} in the files of process {pid} cannot be fetched ({error}): copy it yourself",
            there.display()
        ))
    };
    let mut from = shared_folder::open_in_root(pid, there).map_err(|error| lost(&error))?;
    // The name was free, or to be overwritten, when the recording began.
    let mut to =
        timeline_file::replace(here).map_err(|error| Failure::writing(here.display(), &error))?;
    io::copy(&mut from, &mut to).map_err(|error| Failure::writing(here.display(), &error))?;
    shared_folder::remove_in_root(pid, there).map_err(|error| lost(&error))
}
