//! Reading captures that are complete, cut, overwritten, or still growing.
//!
//! [`program`] imitates threads that record, [`bounded`] a program that replaces its events by their sums, and [`file`]
//! builds a capture from their chunks. The other modules are tests.

mod bounded;
mod damage;
mod file;
mod format_document;
mod growing;
mod opening;
mod order;
mod program;
mod round_trip;
