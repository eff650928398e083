//! Finds the capture of a process: a recorded process has its capture open.

use std::fs;
use std::path::PathBuf;

use heaptide_procfs::{self as procfs, OpenFile};

use crate::exit::Failure;
use crate::input::folders::is_capture;

/// Returns the capture that a process writes, as a link in `/proc`, which works even if the file was moved or removed.
pub(crate) fn capture_of(pid: u32) -> Result<PathBuf, Failure> {
    let files = procfs::open_files(pid).map_err(|error| {
        Failure::failed(if procfs::exists(pid) {
            format!("cannot read the open files of process {pid} ({error}): run this as its owner")
        } else {
            format!("there is no process {pid}: check the process ID with ps")
        })
    })?;
    let mut captures = files.filter(is_growing_capture).map(|file| file.link);
    captures.next().ok_or_else(|| {
        Failure::failed(format!(
            "process {pid} is not being recorded: start it with `heaptide run`, or use heaptide.Tracker in it"
        ))
    })
}

/// Returns the recorded processes among those that this user may inspect.
pub(crate) fn recording() -> Vec<u32> {
    let own = std::process::id();
    let others = procfs::pids().into_iter().filter(|&pid| pid != own);
    others.filter(|&pid| capture_of(pid).is_ok()).collect()
}

/// Whether an open file is a capture being written. Readers of captures have them open only for reading.
fn is_growing_capture(open: &OpenFile) -> bool {
    let is_file = fs::metadata(&open.link).is_ok_and(|metadata| metadata.is_file());
    is_file && open.is_for_writing().unwrap_or(false) && is_capture(&open.link)
}
