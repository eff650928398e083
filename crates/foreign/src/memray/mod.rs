//! Captures of memray 1.19 and 1.20 (formats 12 and 13), read and written.
//!
//! In reading order: `input` provides bytes and unpacks them; `header` begins a file; `records` follow, in a file with all
//! allocations (`events`) or in an aggregated one (`sums`). `write` writes both.
//!
//! ```text
//! header | records … | trailer | zeros
//! ```
//!
//! A file is one stream of records without any other structure, so nothing after an invalid record can be
//! read. All numbers are little-endian; a file from a big-endian machine has an unknown version number.

mod bytes;
mod events;
mod header;
mod input;
mod metadata;
mod records;
mod sums;
pub mod write;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heaptide_capture::{Capture, OpenError, OpenFailure};

use header::FileHeader;
use input::Input;

/// The first bytes of a file, before packing.
const MAGIC: [u8; 7] = *b"memray\0";

/// The source of a capture's bytes. It is read more than once, each time from its beginning.
#[derive(Clone, Debug)]
enum Source {
    File(PathBuf),
    Bytes(Arc<[u8]>),
}

impl Source {
    fn input(&self) -> io::Result<Input> {
        match self {
            Source::File(path) => Input::from_file(File::open(path)?),
            Source::Bytes(bytes) => Input::from_bytes(bytes.clone()),
        }
    }
}

/// Opens a file of memray; returns `None` for any other file.
pub fn open(path: &Path) -> Option<Result<Capture, OpenError>> {
    // Opening a pipe would block until another process writes to it.
    if !path.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return None;
    }
    open_source(path, Source::File(path.to_owned()))
}

/// Opens a capture that is already in memory; returns `None` if it is not memray's.
pub fn from_bytes(bytes: &[u8]) -> Option<Result<Capture, OpenError>> {
    open_source(Path::new("(memory)"), Source::Bytes(bytes.into()))
}

fn open_source(path: &Path, source: Source) -> Option<Result<Capture, OpenError>> {
    let mut input = source.input().ok()?;
    if !input.begins_with(&MAGIC) {
        return None;
    }
    let failed = |reason: OpenFailure| OpenError {
        path: path.into(),
        reason,
    };
    let opened = FileHeader::read(&mut input).and_then(|header| {
        if header.is_aggregated {
            Ok(sums::open(path, header, input))
        } else {
            events::open(path, header, input, source)
        }
    });
    Some(opened.map_err(failed))
}

#[cfg(test)]
mod tests;
