//! Commands about Heaptide itself: checks, shell completion, manual pages, other profilers' commands.

pub(crate) mod compat;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod man;
pub(crate) mod version;
