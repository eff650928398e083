//! The timeline format: the memory of a run's processes over time, as lines of text in a file.
//!
//! Two formats are written and read: Heaptide's, which holds every process with all its sizes
//! (`docs/reference/timeline-format.md`), and the `.dat` files of mprof, which other tools read. [`Recorder`] writes either
//! format during the run; [`read()`] detects the format of a file. This crate reads neither processes nor clocks.
#![forbid(unsafe_code)]

mod heaptide_format;
mod model;
mod mprof_format;
mod read;
mod record;
mod text;

pub use model::{Backend, Call, Ending, Header, Memory, Point, Process, Timeline};
pub use mprof_format::read_call;
pub use read::{ReadError, read, read_file};
pub use record::{Format, NewProcess, Recorder, Tick, header_text};
