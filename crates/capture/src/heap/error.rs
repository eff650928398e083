//! Reasons why a file cannot be opened as a heap snapshot, with messages that name the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::column::BlockError;
use crate::newer::NewerFormat;

/// A file that is not a readable snapshot.
#[derive(Debug)]
pub struct HeapError {
    pub path: PathBuf,
    pub reason: HeapFailure,
}

#[derive(Debug)]
#[non_exhaustive]
pub enum HeapFailure {
    NotFound,
    Directory,
    Unreadable(io::Error),
    Empty,
    /// The file is a capture.
    Recording,
    Foreign,
    Newer(NewerFormat),
    /// The file ends in the middle of the snapshot.
    Cut,
    /// The file contains something invalid, in the named part.
    Damaged(&'static str),
}

impl fmt::Display for HeapError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let path = self.path.display();
        match &self.reason {
            HeapFailure::NotFound => write!(
                out,
                "there is no file {path}: check the name and the folder"
            ),
            HeapFailure::Directory => write!(
                out,
                "{path} is a folder: name one of the heap snapshots in it"
            ),
            HeapFailure::Unreadable(error) => {
                write!(
                    out,
                    "{path} cannot be read ({error}): check its permissions"
                )
            }
            HeapFailure::Empty => write!(
                out,
                "{path} is empty: the program ended before the snapshot was written, so take it again"
            ),
            HeapFailure::Recording => write!(
                out,
                "{path} is a recording, not a heap snapshot: read it with `heaptide stats`, or take a snapshot with `heaptide heap take`"
            ),
            HeapFailure::Foreign => write!(
                out,
                "{path} is not a heap snapshot of Heaptide: name a file that `heaptide heap take` has written"
            ),
            HeapFailure::Newer(newer) => write!(out, "{path} {newer}"),
            HeapFailure::Cut => write!(
                out,
                "{path} ends in the middle of the snapshot: writing or copying it was interrupted, so take it again"
            ),
            HeapFailure::Damaged(part) => {
                write!(
                    out,
                    "{path} is damaged ({part}): copy it again, or take the snapshot again"
                )
            }
        }
    }
}

impl std::error::Error for HeapError {}

impl From<io::Error> for HeapFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => HeapFailure::NotFound,
            io::ErrorKind::IsADirectory => HeapFailure::Directory,
            _ => HeapFailure::Unreadable(error),
        }
    }
}

impl From<BlockError> for HeapFailure {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::Cut => HeapFailure::Cut,
            BlockError::Damaged => HeapFailure::Damaged("a block"),
            BlockError::Unreadable(error) => error.into(),
        }
    }
}
