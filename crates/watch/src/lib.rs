//! Watches a run from outside: the program, its descendants, and their control group.
//!
//! Nothing here enters another process. Sizes come from `/proc`: cheap ones at every tick, expensive ones as often as
//! [`budget`] allows. In reading order: [`watch()`] is the loop, [`program`] starts the program and forwards signals,
//! [`tree`] finds its processes. [`cgroup`] reads their control group, [`functions`] the calls that the decorator
//! wrote. [`samples`] samples one process for Python callers, and [`node`] identifies this process within a larger run.
//! All unsafe code is in `sys`: calls to the C library for signals, waiting and local time.

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
