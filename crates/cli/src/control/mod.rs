//! Running programs: finds them, sends requests to their control API and copies their files.

pub(crate) mod collect;
pub(crate) mod control_client;
pub(crate) mod running_processes;
