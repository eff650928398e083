//! Reasons why a file cannot be opened as a capture, with messages that name the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::header::HeaderError;
use crate::newer::NewerFormat;

/// A file that is not a readable capture.
#[derive(Debug)]
pub struct OpenError {
    pub path: PathBuf,
    pub reason: OpenFailure,
}

#[derive(Debug)]
#[non_exhaustive]
pub enum OpenFailure {
    NotFound,
    Directory,
    Unreadable(io::Error),
    Empty,
    Foreign,
    Newer(NewerFormat),
    DamagedHeader,
    /// A capture of memray in an unsupported format; the number of that format.
    Memray(u32),
}

impl From<HeaderError> for OpenFailure {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::Foreign => OpenFailure::Foreign,
            HeaderError::Newer(newer) => OpenFailure::Newer(newer),
            HeaderError::Damaged => OpenFailure::DamagedHeader,
        }
    }
}

impl From<io::Error> for OpenFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => OpenFailure::NotFound,
            io::ErrorKind::IsADirectory => OpenFailure::Directory,
            _ => OpenFailure::Unreadable(error),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let path = self.path.display();
        match &self.reason {
            OpenFailure::NotFound => {
                write!(
                    out,
                    "there is no file {path}: check the name and the folder"
                )
            }
            OpenFailure::Directory => {
                write!(out, "{path} is a folder: name one of the captures in it")
            }
            OpenFailure::Unreadable(error) => {
                write!(
                    out,
                    "{path} cannot be read ({error}): check its permissions"
                )
            }
            OpenFailure::Empty => write!(
                out,
                "{path} is empty: another process truncated it, or the program ended before recording began, so record it again"
            ),
            OpenFailure::Foreign => write!(
                out,
                "{path} is not a Heaptide capture: name a file that `heaptide run` has written"
            ),
            OpenFailure::Memray(format) => write!(
                out,
                "{path} was written by memray in its format {format}, and Heaptide reads formats 12 and 13 \
                 (memray 1.19 and 1.20): read it with the memray that wrote it"
            ),
            OpenFailure::Newer(newer) => write!(out, "{path} {newer}"),
            OpenFailure::DamagedHeader => write!(
                out,
                "{path} cannot be read because its header is damaged: record it again"
            ),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            OpenFailure::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}
