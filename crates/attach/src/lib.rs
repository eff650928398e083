//! Entering a process that runs already: whether it can be done, and having it run a text of Python.
//!
//! In reading order: [`preflight`] finds out about a process and refuses with one sentence, `inject` makes the process run
//! a text of Python, by a thread that is stopped at a safe point (`safe_point`) and made to call functions (`tracee`).
//! The home of everything that touches another process's memory; what the text does there is Python's business.

pub mod image;
pub mod interpreter;
pub mod memory;
pub mod place;
pub mod preflight;
pub mod process;
pub mod refusal;
pub mod visit;

#[cfg(target_arch = "x86_64")]
mod inject;
#[cfg(target_arch = "x86_64")]
mod safe_point;
#[cfg(target_arch = "x86_64")]
mod tracee;

pub use preflight::Target;
pub use refusal::Refusal;
