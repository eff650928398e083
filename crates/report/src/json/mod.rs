//! Answers for other programs.

mod diff;
pub mod explore;
pub mod findings;
pub mod flame;
pub mod heap;
mod lines;
mod stats;
mod value;

pub use diff::diff;
pub use lines::lines;
pub use stats::stats;
pub use value::Json;
pub(crate) use value::write_text;
