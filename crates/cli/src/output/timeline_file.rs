//! The file that `heaptide record` writes. Each run creates a new file, so that runs and ranks never share one. It appears
//! with its header, and only the user can read it: the header has the command line.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use heaptide_files::{Existing, NewFile};
use heaptide_watch::local_stamp;
use heaptide_watch::node::Node;

use crate::exit::Failure;
use crate::output;

/// The maximum number of names to try.
const MAX_TRIES: usize = 10_000;

/// Creates the file that the user named.
pub(crate) fn named(path: &Path, force: bool, header: &str) -> Result<(File, PathBuf), Failure> {
    let existing = if force {
        Existing::Replace
    } else {
        Existing::Refuse
    };
    match create(path, existing, header) {
        Ok(file) => Ok((file, path.to_owned())),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(output::exists(path)),
        Err(error) => Err(Failure::writing(path.display(), &error)),
    }
}

/// Creates the file that the user named. An earlier file of that name gets the time of its last write before its extension;
/// a recording that still writes to it is not disturbed.
pub(crate) fn fresh(path: &Path, header: &str) -> Result<(File, PathBuf), Failure> {
    for _ in 0..MAX_TRIES {
        match create(path, Existing::Refuse, header) {
            Ok(file) => return Ok((file, path.to_owned())),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Failure::writing(path.display(), &error)),
        }
        // A device or a folder is not renamed.
        if !path.symlink_metadata().is_ok_and(|found| found.is_file()) {
            break;
        }
        move_aside(path);
    }
    named(path, true, header)
}

/// Renames an earlier file. If another process has renamed it first, the caller tries again.
fn move_aside(path: &Path) {
    let written = path
        .metadata()
        .and_then(|found| found.modified())
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |since| since.as_secs());
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path
        .extension()
        .map_or(String::new(), |it| format!(".{}", it.to_string_lossy()));
    let stamp = local_stamp(written);
    let first = std::iter::once(format!("{stem}.{stamp}{extension}"));
    let mut names = first.chain((2..).map(|n: u32| format!("{stem}.{stamp}-{n}{extension}")));
    let free = names.find(|name| !path.with_file_name(name).exists());
    let _ = std::fs::rename(path, path.with_file_name(free.unwrap_or_default()));
}

/// Creates `heaptide-<program>.<pid>.timeline`.
pub(crate) fn own(folder: &Path, program: &str, header: &str) -> Result<(File, PathBuf), Failure> {
    let stem = format!("heaptide-{program}.{}", std::process::id());
    let more = (2..).map(|n: u32| format!("{stem}.{n}.timeline"));
    first_free(
        folder,
        std::iter::once(format!("{stem}.timeline")).chain(more),
        header,
    )
}

/// Creates `mprofile_<YYYYmmddHHMMSS>.dat` for the first unused second, because mprof requires this form of name.
pub(crate) fn mprof(folder: &Path, header: &str) -> Result<(File, PathBuf), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    first_free(
        folder,
        (now..).map(|second| format!("mprofile_{}.dat", local_stamp(second))),
        header,
    )
}

/// Creates the file of a rank: mprof's name for the master, the host name for a worker.
pub(crate) fn node(folder: &Path, node: &Node, header: &str) -> Result<(File, PathBuf), Failure> {
    if node.is_master() {
        return mprof(folder, header);
    }
    first_free(folder, node.worker_names(), header)
}

fn first_free(
    folder: &Path,
    names: impl Iterator<Item = String>,
    header: &str,
) -> Result<(File, PathBuf), Failure> {
    if !folder.as_os_str().is_empty() {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::writing(folder.display(), &error))?;
    }
    for name in names.take(MAX_TRIES) {
        let path = folder.join(name);
        match create(&path, Existing::Refuse, header) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Failure::writing(path.display(), &error)),
        }
    }
    let shown = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    Err(Failure::failed(format!(
        "{} has too many timelines: remove old ones with heaptide clean",
        shown.display()
    )))
}

fn create(path: &Path, existing: Existing, header: &str) -> io::Result<File> {
    let new = NewFile::create(path, existing)?;
    match new.file().write_all(header.as_bytes()) {
        Ok(()) => new.publish(),
        // The program runs even if the disk is full. The file stays without a name.
        Err(_) => new.file().try_clone(),
    }
}
