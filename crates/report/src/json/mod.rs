//! Answers for other programs.

pub mod flame;
mod stats;
mod value;

pub use stats::stats;
pub use value::Json;
pub(crate) use value::write_text;
