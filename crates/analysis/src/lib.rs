//! Turns captures into answers. Every number that the product shows is computed here, once, in bytes.
//!
//! In reading order: [`load`] replays captures into sums, restricted by a [`filter`], and gives frames their names
//! ([`symbols`]); [`aggregate`] shapes the sums into what a report shows; [`findings`] says what stands out; [`diff`] sets two sessions side by side;
//! [`model`] is the inert result. [`live`] watches a program that still runs; [`records`] tells a capture as it is.
//!
//! Absent here, on purpose: interpreters, networks, clocks, terminals, rounding and units.
#![forbid(unsafe_code)]

pub mod aggregate;
pub mod diff;
mod files;
pub mod filter;
pub mod findings;
pub mod heap;
pub mod live;
pub mod load;
pub mod model;
pub mod records;
pub mod symbols;
pub mod timeline;
pub mod window;

pub use aggregate::{FlameLimits, FlameTree, LineChoice, lines, stacks, stats, summary, tree};
pub use diff::Comparison;
pub use filter::{Filter, NoMatch};
pub use findings::findings;
pub use live::LiveReader;
pub use load::{Process, Request, Session, load, load_with, peak_bytes};
pub use model::Measure;
pub use records::{RecordLine, records};
