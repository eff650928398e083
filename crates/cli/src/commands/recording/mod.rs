//! Commands that run a program or attach to one and record it.

pub(crate) mod attach;
pub(crate) mod detach;
pub(crate) mod lines;
pub(crate) mod live;
pub(crate) mod run;
