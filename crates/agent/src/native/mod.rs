//! Native stacks: the C, C++ and Rust frames between the Python frames, read when an event is recorded.
//!
//! In reading order: [`walk`] follows the stack of the calling thread by call-frame information and stops where it meets
//! what it saw at the last event; [`rules`] says how to get from one frame to its caller, for one address; [`modules`]
//! which library that address is in; [`bounds`] where the stack ends; [`mixed`] puts the Python frames where the
//! interpreter's evaluation of them is and writes what changed.
//!
//! A session either has native stacks or not. Without them nothing here runs: a thread's `native` pointer is null.
//!
//! Runs on: the thread whose event it is. Allocates: past the hooks, when a library is met for the first time. Locks:
//! `MODULES` when an address is met for the first time, and never waits long for it. During fork: `MODULES` is held.

pub mod bounds;
pub mod mixed;
pub mod modules;
pub mod rules;
pub mod walk;

use walk::NativeStack;

use crate::host::{own_memory, sys};

/// Whether this build can walk native stacks.
pub const IS_SUPPORTED: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

/// What a stack really occupies in most threads.
const TOUCHED_BYTES: usize = 96 * 1024;

/// Zeroed memory for a thread's native stack, never given back; null if there is none.
pub fn new_stack() -> *mut NativeStack {
    let memory: *mut NativeStack = sys::map_private(size_of::<NativeStack>()).cast();
    if !memory.is_null() {
        own_memory::add(TOUCHED_BYTES);
    }
    memory
}
