//! Watches a run from outside: the program, everything it starts, and the control group they live in.
//!
//! Nothing here enters another process. Sizes come from `/proc`; the cheap ones at every tick, the dear ones as far as
//! [`budget`] allows. In reading order: [`watch()`] is the loop, [`program`] starts what is watched and passes signals
//! on, [`tree`] finds its processes, [`cgroup`] asks their control group, [`functions`] takes what the decorator left,
//! [`samples`] looks at one process for whoever asks, and [`node`] knows which part of a larger run this is. All unsafe code is in `sys`: calls of the C library that concern
//! signals, waiting and local time.

pub mod budget;
pub mod cgroup;
mod command;
pub mod functions;
pub mod node;
pub mod program;
pub mod samples;
mod sys;
pub mod tree;
mod watch;

pub use program::{Program, Start, StartError, run_all};
pub use sys::{die_of, local_stamp};
pub use watch::{Finished, Plan, Target, watch};
