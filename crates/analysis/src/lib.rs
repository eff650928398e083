//! Computes the numbers of reports from captures. Only this crate computes numbers that Heaptide shows; sizes are in bytes.
//!
//! In reading order: [`load`] replays captures into sums, restricted by a [`filter`], and resolves frames
//! ([`symbols`]). [`user_code`] separates the user's own frames from frames of libraries. [`aggregate`] shapes the sums
//! into the structs of [`model`]; [`findings`] adds facts that deserve attention; [`diff`] compares two sessions.
//! [`live`] follows a running program; [`job_runs`] decides which jobs leak. [`records`] lists the records of a
//! capture, [`events`] its allocations and frees with their stacks. [`heap`] analyses heap snapshots, [`timeline`] the
//! memory of processes over time.
//!
//! This crate uses no interpreters, networks, clocks or terminals, and neither rounds numbers nor adds units. Only `files`
//! opens files.
#![forbid(unsafe_code)]

pub mod aggregate;
pub mod diff;
pub mod events;
mod files;
pub mod filter;
pub mod findings;
pub mod heap;
pub mod interner;
pub mod job_runs;
pub mod live;
pub mod load;
pub mod model;
pub mod records;
pub mod symbols;
pub mod timeline;
pub mod user_code;
pub mod window;

pub use aggregate::{
    FlameLimits, FlameTree, JobGroups, LineChoice, jobs, lines, stacks, stacks_with_index, stats,
    stats_of, summary, tree,
};
pub use diff::Comparison;
pub use filter::{Filter, NoMatch};
pub use findings::findings;
pub use live::LiveReader;
pub use load::{JobView, Process, Request, Session, load, load_with, peak_bytes};
pub use model::Measure;
pub use records::{RecordLine, records};
