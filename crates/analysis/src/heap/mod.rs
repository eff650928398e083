//! What a snapshot of the object heap says: what is there, who holds it, what it alone keeps alive.
//!
//! In reading order: [`graph`] is who refers to whom, [`set`] some of the objects; [`dominators`], [`retained`] and [`paths`] are the questions
//! about retention, on plain numbers.

pub mod dominators;
pub mod graph;
pub mod paths;
pub mod retained;
pub mod set;
