//! Opens captures of other profilers as if they were Heaptide's, and writes memray's.
//!
//! Report commands call [`open`] for any file. `capture` opens Heaptide's files; a file of memray becomes a [`Capture`] whose
//! events come from [`memray`]. All other code (sums, names, pages, exports) treats both in the same way.
//!
//! This crate has no unsafe code, and it does not trust the contents of a file.
#![forbid(unsafe_code)]

pub mod memray;

use std::path::Path;

use heaptide_capture::{Capture, OpenError};

/// Opens a capture of Heaptide or of another profiler.
pub fn open(path: &Path) -> Result<Capture, OpenError> {
    match memray::open(path) {
        Some(opened) => opened,
        None => Capture::open(path),
    }
}
