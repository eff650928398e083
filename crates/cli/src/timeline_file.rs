//! Where `heaptide record` writes: a new file each time, under the name that fits the form. A run never adds to the file
//! of another: not to an older one's, and not to that of a rank on the same host.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use heaptide_watch::local_stamp;
use heaptide_watch::node::Node;

use crate::exit::Failure;

/// More names than this are not tried: a folder that is so full has another problem.
const MAX_TRIES: usize = 10_000;

/// The name that the user gave.
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

/// `heaptide-<program>.<pid>.timeline`.
pub(crate) fn own(folder: &Path, program: &str) -> Result<(File, PathBuf), Failure> {
    let stem = format!("heaptide-{program}.{}", std::process::id());
    let more = (2..).map(|n: u32| format!("{stem}.{n}.timeline"));
    first_free(
        folder,
        std::iter::once(format!("{stem}.timeline")).chain(more),
    )
}

/// `mprofile_<YYYYmmddHHMMSS>.dat`, of the first second that has none: the name keeps the form that mprof looks for.
pub(crate) fn mprof(folder: &Path) -> Result<(File, PathBuf), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    first_free(
        folder,
        (now..).map(|second| format!("mprofile_{}.dat", local_stamp(second))),
    )
}

/// The master's file is mprof's, a worker's has the name of its node.
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
        "{} has no free name for another timeline: remove old ones with heaptide clean",
        shown.display()
    )))
}

/// A new file under a name that may be taken: whoever reads the old one keeps it whole. What is no regular file, such as
/// a device or a pipe, stays what it is and is written into.
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
