//! Analyses heap snapshots: types and sizes of objects, their referrers, and the objects that each of them keeps alive.
//!
//! | modules | content |
//! |---|---|
//! | [`graph`], [`set`] | references, and sets of objects, as plain numbers |
//! | [`dominators`], [`retained`], [`paths`] | retention: the objects that keep others alive |
//! | [`view`] | a snapshot with all of these |
//! | [`allocations`], [`sites`] | allocation sites of objects, summed by line |
//! | [`kinds`], [`labels`] | names of objects and references |
//! | [`partition`], [`types`], [`pattern`], [`tree`], [`diff`] | tables |
//! | [`picture`], [`explore`] | graphs to draw, and the heap page |
//! | [`suspects`], [`waste`] | leak suspects and wasted memory |
//! | [`census`] | the table of a census, which has no references |

pub mod allocations;
pub mod census;
pub mod diff;
pub mod dominators;
pub mod explore;
pub mod graph;
pub mod kinds;
pub mod labels;
mod own_frames;
pub mod partition;
pub mod paths;
pub mod pattern;
pub mod picture;
mod program_text;
pub mod retained;
pub mod set;
pub mod sites;
pub mod suspects;
pub mod tree;
pub mod types;
pub mod view;
pub mod waste;

pub use kinds::PLAIN_DICT;
pub use partition::{By, Partition, Row};
pub use program_text::examples;
pub use set::ObjectSet;
pub use view::Heap;
