//! Makes a running process execute Python source code.
//!
//! In reading order: [`visit`] is the whole procedure. [`preflight`] checks whether a process can be entered, and
//! refuses with one sentence. [`shared_folder`] is a folder that both processes can reach. The code enters by
//! [`remote_execution`] (Python 3.14 and later) or by `inject`: a thread that is stopped at a safe point (`safe_point`)
//! starts another one (`tracee`). All code that touches another process's memory is in this crate. It does not know
//! what the Python code does.

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
