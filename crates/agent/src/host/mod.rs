//! The operating system and the C library as the agent uses them, and the resources that belong to Heaptide itself.

pub(crate) mod bus_error;
pub mod exec;
pub(crate) mod ledger;
pub mod libc_heap;
pub(crate) mod locks;
pub(crate) mod own_file;
pub mod own_memory;
pub mod own_thread;
pub mod pressure;
pub mod resident;
pub(crate) mod signals;
pub mod sys;
