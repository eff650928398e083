//! Answers for other programs.

mod diff;
pub mod flame;
mod stats;
mod value;

pub use diff::diff;
pub use stats::stats;
pub use value::Json;
pub(crate) use value::write_text;
