//! The file that `heaptide record` writes. Each run creates a new file, so that runs and ranks never share one.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use heaptide_watch::local_stamp;
use heaptide_watch::node::Node;

use crate::exit::Failure;

/// The maximum number of names to try.
const MAX_TRIES: usize = 10_000;

/// Creates the file that the user named.
pub(crate) fn named(path: &Path, force: bool) -> Result<(File, PathBuf), Failure> {
    let exists = || {
        let shown = path.display();
        Failure::failed(format!(
            "{shown} exists already: choose another name, or overwrite it with --force"
        ))
    };
    let file = if force { replace(path) } else { create(path) };
    match file {
        Ok(file) => Ok((file, path.to_owned())),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists()),
        Err(error) => Err(Failure::writing(path.display(), &error)),
    }
}

/// Creates `heaptide-<program>.<pid>.timeline`.
pub(crate) fn own(folder: &Path, program: &str) -> Result<(File, PathBuf), Failure> {
    let stem = format!("heaptide-{program}.{}", std::process::id());
    let more = (2..).map(|n: u32| format!("{stem}.{n}.timeline"));
    first_free(
        folder,
        std::iter::once(format!("{stem}.timeline")).chain(more),
    )
}

/// Creates `mprofile_<YYYYmmddHHMMSS>.dat` for the first unused second, because mprof requires this form of name.
pub(crate) fn mprof(folder: &Path) -> Result<(File, PathBuf), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    first_free(
        folder,
        (now..).map(|second| format!("mprofile_{}.dat", local_stamp(second))),
    )
}

/// Creates the file of a rank: mprof's name for the master, the host name for a worker.
pub(crate) fn node(folder: &Path, node: &Node) -> Result<(File, PathBuf), Failure> {
    if node.is_master() {
        return mprof(folder);
    }
    first_free(folder, node.worker_names())
}

fn first_free(
    folder: &Path,
    names: impl Iterator<Item = String>,
) -> Result<(File, PathBuf), Failure> {
    if !folder.as_os_str().is_empty() {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::writing(folder.display(), &error))?;
    }
    for name in names.take(MAX_TRIES) {
        let path = folder.join(name);
        match create(&path) {
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

/// Replaces a file by a new one, so that readers of the old file keep its contents. A device or pipe is not replaced but
/// opened for writing.
pub(crate) fn replace(path: &Path) -> io::Result<File> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return OpenOptions::new().append(true).open(path);
    }
    remove(path)?;
    create(path)
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).open(path)
}
