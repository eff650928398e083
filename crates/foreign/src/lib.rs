//! Opens captures of other profilers as if they were Heaptide's, and writes memray's.
//!
//! A file of memray becomes a `heaptide_capture::Capture` whose events come from [`memray`]. All other code (sums, names,
//! pages, exports) treats it like a capture of Heaptide.
//!
//! This crate has no unsafe code, and it does not trust the contents of a file.
#![forbid(unsafe_code)]

pub mod memray;
