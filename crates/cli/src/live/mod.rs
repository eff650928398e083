//! The live view of a running program: the source of its numbers, and their transfer to another terminal.
//!
//! The program does not have to cooperate. Its capture is memory shared with a file. A [`feed`] follows that file from
//! another process, or gets updates from a process that follows it ([`connect`] and [`serve`], with the format of
//! [`wire`]). A slow viewer misses updates and shows their number; the program never waits. [`runner`] runs a program
//! with a live view.

pub(crate) mod access;
pub(crate) mod connect;
pub(crate) mod feed;
pub(crate) mod find;
mod job_options;
pub(crate) mod runner;
pub(crate) mod serve;
mod wire;

pub(crate) use feed::{Feed, Update};
pub(crate) use job_options::JobOptions;
