//! Heap snapshots for other programs, and graphs of a few objects.

mod drawing;
mod traces;
mod v8;
mod whole;

pub use drawing::drawing;
pub use v8::heapsnapshot;
pub use whole::{whole_dot, whole_json};
