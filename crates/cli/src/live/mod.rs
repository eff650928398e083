//! Watching a running program: where its numbers come from, and how they get to another terminal.
//!
//! The program itself does nothing for it. Its capture lies in memory shared with a file; a [`feed`] follows that file
//! from another process, or asks one that does ([`connect`], [`serve`], in the bytes of [`wire`]). Whoever watches
//! slowly, or stops, sees fewer updates, and is told how many; the program never waits for anybody. [`runner`] runs a program for the purpose.

pub(crate) mod connect;
pub(crate) mod feed;
pub(crate) mod find;
pub(crate) mod runner;
pub(crate) mod serve;
mod wire;

pub(crate) use feed::{Feed, Update};
