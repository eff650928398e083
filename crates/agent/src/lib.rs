//! What runs inside the profiled program: every allocation becomes a record, cheaply and safely.
//!
//! The path of an event, file by file: [`hooks`] (the program calls us instead of libc) → [`threads`] (is this thread
//! to be recorded, and where) → [`sampler`] (is this event) → [`record`] (order, time) → [`stack`] and [`codes`] (who
//! called) → [`store`] (bytes in memory shared with the file) → [`keeper`] (packed into blocks). [`session`] starts and stops
//! all of it; [`libraries`] puts the hooks in place; [`cpython`] alone knows how an interpreter's structs look.
//! [`lines`] stands apart: it watches single functions line by line. [`jobs`] stands beside recording: the same hooks keep the
//! accounts of jobs instead. [`heap_walk`] looks at all objects once.
//!
//! Absent here, on purpose: panics, waiting for the GIL, calls into Python from a hook, formatting on the way of an
//! event, and any effect on what the program itself sees.

pub mod arenas;
pub mod checkpoint;
pub mod clock;
pub mod codes;
pub mod compaction;
pub mod config;
pub mod cpython;
pub mod error;
pub mod fork;
pub mod heap_walk;
pub mod hooks;
pub mod jobs;
pub mod keeper;
mod ledger;
pub mod libraries;
pub mod lines;
pub mod locks;
pub mod native;
pub mod new_file;
pub mod own_file;
pub mod own_memory;
pub mod own_thread;
pub mod python;
pub mod record;
pub mod registry;
pub mod resident;
pub mod sampler;
pub mod session;
pub mod slot;
pub mod stack;
pub mod store;
pub mod sys;
pub mod threads;
pub mod tls;

pub use config::{Config, Program};
pub use error::StartError;
