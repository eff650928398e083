//! What a timeline is: the memory of a run's processes over time, as lines of text in a file.
//!
//! Two forms are written and read: Heaptide's own, which holds every process with all its figures
//! (`docs/reference/timeline-format.md`), and the `.dat` files of mprof, which other tools read. [`Recorder`] writes either while
//! the run goes on; [`read()`] finds out which one a file is. Nothing here looks at processes or at a clock.
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
pub use record::{Format, NewProcess, Recorder, Tick};
