//! Native stacks: the C, C++ and Rust frames between the Python frames, read when an event is recorded.
//!
//! In reading order: [`walk`] follows the stack of the calling thread by call-frame information, until it reaches a
//! frame remembered from the last event. [`rules`] gives the step from a frame to its caller for one address,
//! [`modules`] the library of an address, and [`bounds`] the end of the stack. [`mixed`] replaces the interpreter's
//! evaluation frames by the Python frames they run, and writes the change.
//!
//! Without `--native` nothing here runs: the `native` pointer of every thread is null.
//!
//! Runs on: the thread whose event it is. Allocates: bypassing the hooks, for each new library. Locks: `MODULES` for each new
//! address, with a bounded wait. During fork: `MODULES` is held.

pub mod bounds;
pub mod mixed;
pub mod modules;
pub mod rules;
pub mod walk;

use walk::NativeStack;

use crate::host::{own_memory, sys};

/// Whether this build can walk native stacks.
pub const IS_SUPPORTED: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

/// Bytes of a native stack that most threads use.
const TOUCHED_BYTES: usize = 96 * 1024;

/// Maps a thread's native stack, which is never unmapped. Returns null if there is no memory.
pub fn new_stack() -> *mut NativeStack {
    let memory: *mut NativeStack = sys::map_private(size_of::<NativeStack>()).cast();
    if !memory.is_null() {
        own_memory::add(TOUCHED_BYTES);
    }
    memory
}
