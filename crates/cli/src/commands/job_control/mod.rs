//! Commands that serve, repeat, control and summarise jobs.

pub(crate) mod ctl;
pub(crate) mod jobs;
pub(crate) mod serve;
pub(crate) mod worker;
