//! Folders as arguments of report commands: finds the files in them, and the clocks of the hosts they come from.
//!
//! `heaptide ctl collect` writes such a folder: one folder per host, with a folder per session. Any other folder with
//! captures or timelines also works.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use heaptide_capture::header::MAGIC;
use serde_json::Value;

use crate::exit::Failure;

/// The file in which `heaptide ctl collect` stores the sources of the other files.
pub(crate) const COLLECTED: &str = "collected.json";
/// Deeper folders are not searched. `heaptide ctl collect` creates two levels.
const MAX_DEPTH: usize = 6;

/// Replaces each folder by the captures in it, sorted by name.
pub(crate) fn captures<'a>(
    paths: impl Iterator<Item = &'a PathBuf>,
) -> Result<Vec<PathBuf>, Failure> {
    expand(paths, "capture", is_capture)
}

/// Replaces each folder by the timelines in it, sorted by name.
pub(crate) fn timelines<'a>(
    paths: impl Iterator<Item = &'a PathBuf>,
) -> Result<Vec<PathBuf>, Failure> {
    expand(paths, "timeline", is_timeline_name)
}

pub(crate) fn is_timeline_name(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("timeline" | "dat"))
}

fn expand<'a>(
    paths: impl Iterator<Item = &'a PathBuf>,
    what: &str,
    is_wanted: impl Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        search(path, MAX_DEPTH, &is_wanted, &mut inside);
        if inside.is_empty() {
            let folder = path.display();
            return Err(Failure::failed(format!(
                "there is no {what} in the folder {folder}: name a {what}, or a folder with some"
            )));
        }
        inside.sort();
        found.extend(inside);
    }
    Ok(found)
}

fn search(
    folder: &Path,
    depth: usize,
    is_wanted: &impl Fn(&Path) -> bool,
    found: &mut Vec<PathBuf>,
) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(file_type) = entry.file_type() else {
            continue;
        };
        if file_type.is_dir() && depth > 0 {
            search(&path, depth - 1, is_wanted, found);
        } else if file_type.is_file() && is_wanted(&path) {
            found.push(path);
        }
    }
}

/// Returns the captures of the processes that joined the session of this capture. Their names are its name followed by
/// process IDs; a process ID may be followed by `-` and a number.
pub(crate) fn children_of(capture: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (capture.parent(), capture.file_name()) else {
        return Vec::new();
    };
    let prefix = format!("{}.", name.to_string_lossy());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_process = |part: &str| match part.split_once('-') {
        Some((pid, number)) => is_number(pid) && is_number(number),
        None => is_number(part),
    };
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut children: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let ending = name.to_str().and_then(|name| name.strip_prefix(&prefix));
            ending.is_some_and(|ending| ending.split('.').all(is_process))
        })
        .map(|entry| capture.with_file_name(entry.file_name()))
        .collect();
    children.sort();
    children
}

/// Whether the file begins like a capture. An incomplete download does not count.
pub(crate) fn is_capture(path: &Path) -> bool {
    if path
        .extension()
        .is_some_and(|extension| extension == "part")
    {
        return false;
    }
    let mut magic = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == MAGIC
}

/// Returns by how many nanoseconds the clock of each host was ahead of the clock of the host that collected these files.
/// Reads [`COLLECTED`] in the folders of the files.
pub(crate) fn clock_offsets<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> BTreeMap<String, i64> {
    let mut offsets = BTreeMap::new();
    let mut seen: Vec<&Path> = Vec::new();
    for path in paths {
        for folder in path.ancestors().take(MAX_DEPTH) {
            if seen.contains(&folder) {
                break;
            }
            seen.push(folder);
            let text = fs::read(folder.join(COLLECTED)).unwrap_or_default();
            let note: Value = serde_json::from_slice(&text).unwrap_or_default();
            for source in note["sources"].as_array().into_iter().flatten() {
                let host = source["host"].as_str();
                let offset_ms = source["clock_offset_ms"].as_i64();
                if let (Some(host), Some(offset_ms)) = (host, offset_ms) {
                    offsets.insert(host.to_owned(), offset_ms.saturating_mul(1_000_000));
                }
            }
        }
    }
    offsets
}
