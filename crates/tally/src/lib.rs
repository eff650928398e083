//! Sums over the events of a capture: event order, live blocks, and the exact peak.
//!
//! [`replay`] puts the events of all threads into the order in which they happened. A [`Tally`] takes them in that
//! order and sums, for each site, the allocated blocks, the live blocks and the blocks live at the peak. [`Follower`]
//! does both for a capture that its program is still writing.
//!
//! This crate runs offline, for every report, and in-process, where a bounded capture replaces events by their sums.
//! It has no unsafe code, and it does not trust the contents of a file.
#![forbid(unsafe_code)]

mod amount;
mod cohorts;
mod encoding;
mod follow;
mod heap_steps;
mod index;
mod jobs;
mod lifetimes;
mod live_blocks;
mod order;
mod ranges;
mod recent;
mod series;
mod sites;
mod sizes;
mod stacks;
mod tally;
mod threads;

pub use amount::Amount;
pub use follow::Follower;
pub use jobs::{JobKey, JobSite};
pub use lifetimes::{Lifetime, Lifetimes, halved};
pub use order::{replay, replay_between, replay_until};
pub use series::HeapSeries;
pub use stacks::{Stack, StackId, Stacks};
pub use tally::{
    JobDetail, JobTable, JobTotals, LiveSite, MAX_PYMALLOC_BYTES, SiteSums, Snapshot, StackDetail,
    Sums, Tally, TallyOptions, Wanted,
};
