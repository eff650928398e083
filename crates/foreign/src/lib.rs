//! Captures that other profilers wrote, opened as if they were ours.
//!
//! [`open`] is what report commands call for any file. A file of ours is opened by `capture`; one of memray's becomes a
//! [`Capture`] whose events come from [`memray`]. Everything behind it (sums, names, pages, exports) knows no difference.
//!
//! Absent here, on purpose: unsafe code, and trust in what a file says.
#![forbid(unsafe_code)]

pub mod memray;

use std::path::Path;

use heaptide_capture::{Capture, OpenError};

/// Opens a capture, whoever wrote it.
pub fn open(path: &Path) -> Result<Capture, OpenError> {
    match memray::open(path) {
        Some(opened) => opened,
        None => Capture::open(path),
    }
}
