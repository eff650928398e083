//! Turns captures into answers. Every number that the product shows is computed here, once, in bytes.
//!
//! In reading order: [`load`] replays captures into sums and gives frames their names ([`symbols`]); [`aggregate`]
//! shapes the sums into what a report shows; [`model`] is the inert result.
//!
//! Absent here, on purpose: interpreters, networks, clocks, terminals, rounding and units.
#![forbid(unsafe_code)]

pub mod aggregate;
pub mod load;
pub mod model;
pub mod symbols;

pub use aggregate::{View, stats, summary, tree};
pub use load::{Process, Session, load};
