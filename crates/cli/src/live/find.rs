//! Which capture belongs to which process: every process that records has its capture open.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use heaptide_capture::header::MAGIC;

use crate::exit::Failure;

/// Whether a process is there and has not ended. One that nobody has asked for its exit code yet has ended.
pub fn is_running(pid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name stands in brackets and may contain anything.
    let state = status
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// The capture that a process is writing, by a name that holds even if the file was moved or removed.
pub fn capture_of(pid: u32) -> Result<PathBuf, Failure> {
    let folder = format!("/proc/{pid}/fd");
    let files = fs::read_dir(&folder).map_err(|error| {
        Failure::failed(if Path::new(&format!("/proc/{pid}")).exists() {
            format!("process {pid} cannot be looked into ({error}): ask as its owner")
        } else {
            format!("there is no process {pid}: check the number, as ps shows it")
        })
    })?;
    let open = files.filter_map(|file| Some(file.ok()?.path()));
    let mut captures = open.filter(|file| is_capture(file));
    captures.next().ok_or_else(|| {
        Failure::failed(format!(
            "process {pid} is not recording: start it with `heaptide run`, or use heaptide.Tracker in it"
        ))
    })
}

/// Processes that are recording, as far as we may look.
pub fn recording() -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = std::process::id();
    let mut found: Vec<u32> = pids
        .filter(|&pid| pid != own && capture_of(pid).is_ok())
        .collect();
    found.sort_unstable();
    found
}

/// Only files that are open for writing too count: others read captures, as we do.
fn is_capture(link: &Path) -> bool {
    let is_file = fs::metadata(link).is_ok_and(|metadata| metadata.is_file());
    let mut first = [0; MAGIC.len()];
    is_file
        && is_open_for_writing(link)
        && File::open(link).is_ok_and(|mut file| file.read_exact(&mut first).is_ok())
        && first == MAGIC
}

fn is_open_for_writing(link: &Path) -> bool {
    let name = link.file_name().unwrap_or_default();
    let info = link
        .parent()
        .and_then(Path::parent)
        .map(|process| process.join("fdinfo").join(name));
    let text = info
        .and_then(|info| fs::read_to_string(info).ok())
        .unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 3 != 0)
}
