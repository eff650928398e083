//! All file access of this crate: captures, libraries with symbols, and the program's source.
//!
//! A capture may come from anywhere and name any file, so [`source_lines`] restricts which files it reads.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::SystemTime;

use heaptide_capture::{Capture, OpenError};
use heaptide_tally::Follower;

const SOURCE_ENDINGS: [&str; 4] = [".py", ".pyw", ".pyx", ".pxd"];
const MAX_SOURCE_BYTES: u64 = 4 << 20;

pub fn open_capture(path: &Path) -> Result<Capture, OpenError> {
    Capture::open(path)
}

/// Opens a capture that is still being written.
pub fn follow_capture(path: &Path) -> Result<Follower, OpenError> {
    Follower::open(path)
}

pub fn exists(path: &Path) -> bool {
    path.is_file()
}

/// Opens a library or a debug file.
pub fn open_library(path: &Path) -> Option<File> {
    File::open(path).ok()
}

/// Reads the lines of a source file. Only regular files with a suffix of Python source are opened, only up to a size,
/// and only if they have not changed since `ended`.
pub fn source_lines(path: &Path, ended: SystemTime) -> Option<Vec<Box<str>>> {
    let name = path.file_name()?.to_str()?;
    if !SOURCE_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
        return None;
    }
    // Checked before opening: opening a pipe would wait for its writer.
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > MAX_SOURCE_BYTES || metadata.modified().ok()? > ended
    {
        return None;
    }
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_SOURCE_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.lines().map(Box::from).collect())
}
