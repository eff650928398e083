//! `heaptide detach`: stops a recording of `heaptide attach`.

use std::io;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};
use heaptide_attach::{Target, shared_folder, visit};
use heaptide_files::{Existing, NewFile};
use heaptide_procfs as procfs;

use crate::commands::reports::symbols;
use crate::exit::Failure;
use crate::messages::message;
use crate::options::arguments;
use crate::options::memray_options;
use crate::output::run_summary::print_run_summary;

pub(crate) const NAME: &str = "detach";

pub(crate) fn arguments() -> Command {
    Command::new(NAME)
        .about("Stop a recording started by `heaptide attach`")
        .after_help(
            "The process continues with its original functions. Heaptide's threads in it end, and its temporary files are \
             removed. The capture of a process in a container is copied to the path given to attach, with the names of its \
             native functions.\n\
             Exit codes: 0 success, 1 refused or failed.",
        )
        .arg(arguments::pid())
        .arg(arguments::quiet())
        .args(memray_options::debugger())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let pid = matches.get_one::<u32>("pid").copied().unwrap_or(0);
    let target = Target::find(pid).map_err(Failure::failed)?;
    let path = end(&target)?;
    if !matches.get_flag("quiet") {
        print_run_summary(&path);
    }
    Ok(())
}

/// Stops the recording of a process. Returns the path of the capture.
pub(crate) fn end(target: &Target) -> Result<PathBuf, Failure> {
    let ended = visit::detach(target).map_err(Failure::failed)?;
    if !ended.note.is_empty() {
        message!(
            "{}: the capture has the records that could be written",
            ended.note
        );
    }
    if ended.final_path.as_os_str().is_empty() {
        return Ok(ended.capture);
    }
    fetch(target.pid, &ended.capture, &ended.final_path)?;
    // The libraries in the container are only readable while the process runs. Without their symbols the capture is
    // still useful.
    let root = procfs::root(target.pid);
    if symbols::bundle_from(&root, &ended.final_path).is_err() {
        message!("cannot store the native symbols: run heaptide symbols bundle in the container");
    }
    Ok(ended.final_path)
}

/// Copies a file out of the process's file system and removes its temporary folder there.
pub(crate) fn fetch(pid: u32, source: &Path, destination: &Path) -> Result<(), Failure> {
    let failed = |error: &io::Error| {
        Failure::failed(format!(
            "cannot fetch {} from the file system of process {pid} ({error}): copy it manually",
            source.display()
        ))
    };
    let mut from = shared_folder::open_in_root(pid, source).map_err(|error| failed(&error))?;
    // When recording started, the path was free or could be overwritten.
    let copied = NewFile::create(destination, Existing::Replace).and_then(|to| {
        io::copy(&mut from, &mut to.file())?;
        to.publish()
    });
    copied.map_err(|error| Failure::writing(destination.display(), &error))?;
    shared_folder::remove_in_root(pid, source).map_err(|error| failed(&error))
}
