//! Reads a timeline of either format. A cut file gives its complete lines; files without samples, of later versions or in
//! other formats are refused.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::model::Timeline;
use crate::{heaptide_format, mprof_format};

/// The first bytes of a capture, the file that is most often confused with a timeline.
const CAPTURE_MAGIC: &[u8] = b"\x89TIDE";
/// The first line of every version of the format, without the version.
const ANY_MAGIC: &str = "heaptide timeline ";

#[derive(Debug)]
pub enum ReadError {
    Io(PathBuf, io::Error),
    Empty(PathBuf),
    Capture(PathBuf),
    Foreign(PathBuf),
    /// Written by a later version.
    Newer {
        path: PathBuf,
        format: String,
        /// The version of Heaptide that wrote it; `None` if the file does not contain it.
        written_by: Option<String>,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(path, error) => {
                write!(
                    f,
                    "{} cannot be read ({error}): check the name",
                    path.display()
                )
            }
            ReadError::Empty(path) => write!(
                f,
                "{} holds no samples: the run was too short, or nothing could be written",
                path.display()
            ),
            ReadError::Capture(path) => write!(
                f,
                "{} is a capture, not a timeline: read it with heaptide stats",
                path.display()
            ),
            ReadError::Foreign(path) => write!(
                f,
                "{} is not a timeline of Heaptide or mprof: record one with heaptide record",
                path.display()
            ),
            ReadError::Newer {
                path,
                format,
                written_by,
            } => {
                let (writer, needed) = match written_by {
                    Some(version) => (
                        format!("Heaptide {version}"),
                        format!("Heaptide {version} or later"),
                    ),
                    None => ("a later Heaptide".into(), "the newest Heaptide".into()),
                };
                write!(
                    f,
                    "{} was written by {writer} in format {format}, which Heaptide {} cannot read: install {needed}",
                    path.display(),
                    env!("CARGO_PKG_VERSION")
                )
            }
        }
    }
}

impl std::error::Error for ReadError {}

pub fn read_file(path: &Path) -> Result<Timeline, ReadError> {
    let bytes = std::fs::read(path).map_err(|error| ReadError::Io(path.to_owned(), error))?;
    read(path, &bytes)
}

/// Both versions are printed, so a text that cannot be a version is left out.
fn newer(path: &Path, format: &str, rest: &str) -> ReadError {
    let is_version = |text: &&str| {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || ".+-".contains(letter);
        (1..=40).contains(&text.len()) && text.chars().all(is_part)
    };
    let second = rest.lines().next().unwrap_or_default();
    let written_by = second.strip_prefix(heaptide_format::WRITTEN_BY);
    ReadError::Newer {
        path: path.to_owned(),
        format: Some(format).filter(is_version).unwrap_or("unknown").into(),
        written_by: written_by.filter(is_version).map(str::to_owned),
    }
}

/// Reads a timeline; `path` is for messages only. A timeline without samples is an error.
pub fn read(path: &Path, bytes: &[u8]) -> Result<Timeline, ReadError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(ReadError::Empty(path.to_owned()));
    }
    if bytes.starts_with(CAPTURE_MAGIC) {
        return Err(ReadError::Capture(path.to_owned()));
    }
    let text = String::from_utf8_lossy(bytes);
    // The text after the last line feed is an incomplete line, and a cut number is a wrong number.
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let is_cut = whole.len() < text.len();
    let mut timeline = match whole.split_once('\n') {
        Some((first, rest)) if first == heaptide_format::MAGIC => heaptide_format::read(rest),
        Some((first, rest)) if first.starts_with(ANY_MAGIC) => {
            return Err(newer(path, &first[ANY_MAGIC.len()..], rest));
        }
        _ => mprof_format::read(whole).ok_or_else(|| ReadError::Foreign(path.to_owned()))?,
    };
    if is_cut {
        timeline
            .damage
            .push("its last line is cut and was left out".into());
    }
    if timeline.total.is_empty() {
        return Err(ReadError::Empty(path.to_owned()));
    }
    Ok(timeline)
}
