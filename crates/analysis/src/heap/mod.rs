//! What a snapshot of the object heap says: what is there, who holds it, what it alone keeps alive.
//!
//! In reading order: [`graph`] is who refers to whom, [`set`] some of the objects; [`dominators`], [`retained`] and [`paths`] are the questions
//! about retention, on plain numbers. [`view`] opens a snapshot for them, [`allocations`] adds where objects were made and [`sites`] sums that up by line; [`kinds`] and [`labels`] name objects and references. [`partition`],
//! [`types`], [`pattern`], [`tree`] and [`diff`] are what tables show, [`picture`] what is drawn, [`explore`] what the page has, [`suspects`] and [`waste`] what stands out. [`census`] is the
//! table of a look without references.

pub mod allocations;
pub mod census;
pub mod diff;
pub mod dominators;
pub mod explore;
pub mod graph;
pub mod kinds;
pub mod labels;
pub mod partition;
pub mod paths;
pub mod pattern;
pub mod picture;
pub mod retained;
pub mod set;
pub mod sites;
pub mod suspects;
pub mod tree;
pub mod types;
pub mod view;
pub mod waste;

pub use partition::{By, Partition, Row};
pub use set::ObjectSet;
pub use view::Heap;
