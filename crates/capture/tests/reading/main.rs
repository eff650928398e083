//! Reading captures that are whole, cut, overwritten, or still growing.
//!
//! [`program`] imitates threads that record, [`bounded`] a program that replaces its events by their sums, [`file`] lays their chunks out as a capture; the rest are claims.

mod bounded;
mod damage;
mod file;
mod format_document;
mod growing;
mod opening;
mod order;
mod program;
mod round_trip;
