//! The newest capture and the newest heap snapshot of the current folder, for commands without a file argument.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use heaptide_capture::heap::is_heap_file;

use crate::exit::Failure;
use crate::input::folders;
use crate::messages::message;

/// A file of the current folder and the time of its last change.
pub(crate) struct DatedFile {
    pub path: PathBuf,
    pub changed: SystemTime,
    pub bytes: u64,
}

/// Returns the files of the current folder that `is_wanted` accepts, oldest first.
pub(crate) fn files_here(is_wanted: impl Fn(&Path) -> bool) -> Vec<DatedFile> {
    let entries = fs::read_dir(".").into_iter().flatten().flatten();
    let mut found: Vec<DatedFile> = entries
        .filter_map(|entry| {
            let path = PathBuf::from(entry.file_name());
            let about = fs::metadata(&path).ok().filter(|about| about.is_file())?;
            let changed = about.modified().ok()?;
            let bytes = about.len();
            is_wanted(&path).then_some(DatedFile {
                path,
                changed,
                bytes,
            })
        })
        .collect();
    found.sort_by(|a, b| (a.changed, &a.path).cmp(&(b.changed, &b.path)));
    found
}

/// Returns the captures of the current folder, oldest first.
pub(crate) fn captures() -> Vec<DatedFile> {
    files_here(folders::is_capture)
}

/// Returns the heap snapshots of the current folder, oldest first.
pub(crate) fn snapshots() -> Vec<DatedFile> {
    files_here(is_snapshot)
}

/// Whether the file begins like a heap snapshot. A pipe is not opened, because opening it may block for ever.
pub(crate) fn is_snapshot(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let mut first = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read(&mut first));
    read.is_ok_and(|n_bytes| is_heap_file(&first[..n_bytes]))
}

/// Returns the session of the newest capture of the current folder: its first capture, followed by those of child
/// processes. Prints the name of the first capture once.
pub(crate) fn newest_session() -> Result<&'static [PathBuf], Failure> {
    static NEWEST: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let newest = NEWEST.get_or_init(|| {
        let Some(newest) = captures().pop() else {
            return Vec::new();
        };
        let first = session_of(&newest.path);
        let mut session = vec![first.clone()];
        session.extend(folders::children_of(&first));
        let shown = first.display();
        match session.len() - 1 {
            0 => message!("using {shown}, the newest capture in this folder"),
            1 => {
                message!("using {shown}, the newest capture in this folder, and that of its child")
            }
            n => message!(
                "using {shown}, the newest capture in this folder, and those of its {n} children"
            ),
        }
        session
    });
    match newest.as_slice() {
        [] => Err(Failure::failed(
            "there is no capture in this folder: name one, or record one with heaptide run",
        )),
        session => Ok(session),
    }
}

/// Returns the newest heap snapshot of the current folder, and prints its name once.
pub(crate) fn newest_snapshot() -> Result<&'static PathBuf, Failure> {
    static NEWEST: OnceLock<Option<PathBuf>> = OnceLock::new();
    let newest = NEWEST.get_or_init(|| {
        let newest = snapshots().pop()?.path;
        message!(
            "using {}, the newest heap snapshot in this folder",
            newest.display()
        );
        Some(newest)
    });
    newest.as_ref().ok_or_else(|| {
        Failure::failed(
            "there is no heap snapshot in this folder: name one, or take one with heaptide heap take",
        )
    })
}

/// Returns the first capture of the session that this capture belongs to. The capture of a child has the name of its
/// parent's, followed by process IDs.
pub(crate) fn session_of(capture: &Path) -> PathBuf {
    let ancestors = std::iter::successors(Some(capture.to_owned()), |path| {
        let stem = path.with_extension("");
        folders::children_of(&stem).contains(path).then_some(stem)
    });
    let existing = ancestors.filter(|path| path.is_file());
    existing.last().unwrap_or_else(|| capture.to_owned())
}
