//! Files that cannot be opened: the message says why, and what to do.

use std::fs;
use std::path::{Path, PathBuf};

use heaptide_capture::header::MAGIC;
use heaptide_capture::{Capture, OpenFailure};

use crate::file::FileBuilder;

/// A temporary folder for one test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("heaptide-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.join("test.tide");
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the reason; checks that the message names the file.
fn failure(path: &Path) -> OpenFailure {
    let error = Capture::open(path).unwrap_err();
    let message = error.to_string();
    assert!(message.contains(&path.display().to_string()), "{message}");
    assert!(
        !message.ends_with('.') && !message.contains('\n'),
        "{message}"
    );
    error.reason
}

#[test]
fn missing_file_is_not_found() {
    let folder = Folder::new("missing");
    assert!(matches!(
        failure(&folder.0.join("none.tide")),
        OpenFailure::NotFound
    ));
}

#[test]
fn folder_is_reported_as_a_folder() {
    let folder = Folder::new("folder");
    assert!(matches!(failure(&folder.0), OpenFailure::Directory));
}

#[test]
fn empty_file_is_reported_as_empty() {
    let folder = Folder::new("empty");
    assert!(matches!(failure(&folder.file(b"")), OpenFailure::Empty));
}

#[test]
fn other_files_are_foreign_even_if_they_are_short() {
    let folder = Folder::new("foreign");
    for bytes in [&b"x"[..], b"PK\x03\x04", &[0; 4096]] {
        assert!(matches!(failure(&folder.file(bytes)), OpenFailure::Foreign));
    }
}

#[test]
fn capture_of_a_later_release_names_its_version() {
    let folder = Folder::new("newer");
    let mut header = crate::file::header();
    header.profiler_version = "9.8.7".into();
    let mut bytes = header.to_bytes();
    bytes[8] = 77;
    let path = folder.file(&bytes);
    let message = Capture::open(&path)
        .expect_err("a later format")
        .to_string();
    assert!(
        message.contains("was written by Heaptide 9.8.7 in format 77, which Heaptide "),
        "{message}"
    );
    assert!(
        message.ends_with("install Heaptide 9.8.7 or later"),
        "{message}"
    );
    // Nothing is known about the rest of the header, not even its length.
    bytes[12..16].fill(0xff);
    assert!(matches!(
        failure(&folder.file(&bytes)),
        OpenFailure::Newer(_)
    ));
}

#[test]
fn header_truncated_anywhere_is_reported_as_damaged() {
    let folder = Folder::new("header");
    let bytes = crate::file::header().to_bytes();
    for len in 1..bytes.len() {
        let reason = failure(&folder.file(&bytes[..len]));
        assert!(matches!(reason, OpenFailure::DamagedHeader), "{len}");
    }
    let mut flipped = bytes.clone();
    flipped[MAGIC.len() + 20] ^= 1;
    assert!(matches!(
        failure(&folder.file(&flipped)),
        OpenFailure::DamagedHeader
    ));
}

#[test]
fn header_alone_is_a_capture_without_events_and_a_note_says_why() {
    let folder = Folder::new("alone");
    let capture = Capture::open(&folder.file(&FileBuilder::new().bytes)).unwrap();
    assert_eq!(capture.n_events(), 0);
    let notes: Vec<_> = capture.damage.iter().map(ToString::to_string).collect();
    assert!(notes[0].contains("truncated"), "{notes:?}");
    assert_eq!(notes.len(), 1);
}
