//! Reports for a terminal.

pub mod controls;
pub mod diff;
pub mod findings;
pub mod heap;
pub mod jobs;
pub mod lines;
pub mod live;
pub mod mode;
pub mod notes;
pub mod records;
pub mod shorten;
pub mod stats;
pub mod style;
pub mod summary;
mod table;
pub mod tree;

pub use style::Style;
