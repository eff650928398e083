//! The part that runs inside the profiled program: it turns every allocation into a record, cheaply and safely.
//!
//! One event passes these modules in order:
//!
//! | module | step |
//! |---|---|
//! | [`hooks`] | the program calls a hook instead of the C library |
//! | [`record::threads`] | finds the state of the calling thread, if the thread is recorded |
//! | [`record::sampler`] | decides whether a sampled session records this event |
//! | [`record`] | adds order and time |
//! | [`record::stack`], [`record::codes`] | read the call stack and number its code objects |
//! | [`file::store`] | provides memory shared with the capture file |
//! | [`file::keeper`] | packs full chunks into blocks, on Heaptide's own thread |
//!
//! [`session`] starts and stops a recording, [`libraries`] installs the hooks, and [`host`] wraps the operating system.
//! Only [`cpython`] knows the layout of the interpreter's structs. Three features use the same parts without a
//! recording: [`jobs`] keeps the accounts of jobs, [`lines`] measures single functions line by line, and [`heap_walk`]
//! visits all objects.
//!
//! Code on the path of an event never panics, waits for the GIL, calls Python or formats text. It leaves `errno` and
//! everything else that the program can observe unchanged.

pub(crate) mod arenas;
pub mod cpython;
pub(crate) mod file;
pub mod heap_walk;
pub(crate) mod hooks;
pub mod host;
pub mod jobs;
pub(crate) mod libraries;
pub mod lines;
pub(crate) mod native;
pub mod record;
pub mod session;
