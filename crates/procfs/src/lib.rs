//! Reads `/proc`: processes, their memory, their open files, and the machine.
//!
//! This crate parses the files without dependencies, because some of them are read many times a second. Names and paths in
//! them may be invalid UTF-8. Most functions allocate; [`readable_mapping`] does not.
#![forbid(unsafe_code)]

mod descriptors;
mod machine;
mod memory;
mod network;
mod process;
mod readable_mapping;
mod resident_mappings;

pub use descriptors::{OpenFile, open_files};
pub use machine::{
    CgroupVersion, boot_id, host_name, last_pid, memory_cgroups, oom_kills, ptrace_scope,
};
pub use memory::{
    KeptFile, Mapping, Rollup, is_rollup_forbidden, kib_field, mappings, open_own_statm,
    resident_pages, rollup_text,
};
pub use network::{overflow_user, sees_all_users, tcp_owner};
pub use process::{
    Stat, Status, arguments, cgroups, environment_variable, executable, exists, find_by_name,
    is_running, owner, pid_namespace, pid_namespace_of, pid_space_facts, pids, process_facts,
    program_name, root, sees_same_files, start_text, status_text, system_call, thread_name,
    threads,
};
pub use readable_mapping::{readable_mapping, readable_ranges};
pub use resident_mappings::{ResidentMapping, resident_mappings};
