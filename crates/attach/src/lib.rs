//! Entering a process that runs already: whether it can be done, and having it run a text of Python.
//!
//! In reading order: [`visit`] is what a visit consists of; [`preflight`] finds out about a process and refuses with one
//! sentence; [`shared_folder`] is the folder in which both sides meet. The text comes in by [`remote_execution`], which Python has
//! from 3.14 on, or by `inject`: a thread that is stopped at a safe point (`safe_point`) is made to start another (`tracee`).
//! Everything that touches another process's memory is here; what the text does there is Python's business.

pub mod image;
pub mod interpreter;
pub mod memory;
pub mod preflight;
pub mod refusal;
pub mod remote_execution;
pub mod shared_folder;
pub mod visit;

#[cfg(target_arch = "x86_64")]
mod inject;
#[cfg(target_arch = "x86_64")]
mod safe_point;
#[cfg(target_arch = "x86_64")]
mod tracee;

pub use preflight::Target;
pub use refusal::Refusal;
