//! What a snapshot of the object heap says: what is there, who holds it, what it alone keeps alive.
//!
//! In reading order: [`graph`] is who refers to whom, [`set`] some of the objects; [`dominators`], [`retained`] and [`paths`] are the questions
//! about retention, on plain numbers.

pub mod diff;
pub mod dominators;
pub mod graph;
pub mod kinds;
pub mod labels;
pub mod partition;
pub mod paths;
pub mod pattern;
pub mod retained;
pub mod set;
pub mod tree;
pub mod types;
pub mod view;

pub use partition::{By, Partition, Row};
pub use set::ObjectSet;
pub use view::Heap;
