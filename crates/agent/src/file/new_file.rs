//! Creates the file of a session, its header and the identifier of a new session.
//!
//! Runs on: the thread that starts a recording. Allocates: bypassing the hooks. Locks: none.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use heaptide_capture::{Header, header};
use heaptide_files::{Existing, NewFile};
use heaptide_procfs as procfs;

use crate::host::sys;
use crate::record::clock;
use crate::session::config::Config;
use crate::session::error::StartError;

/// Creates the capture, which appears under its name with a complete header or not at all.
pub fn create(config: &Config, header: &[u8]) -> Result<File, StartError> {
    let existing = if config.overwrite {
        Existing::Replace
    } else {
        Existing::Refuse
    };
    let cannot_open = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => StartError::Exists(config.path.clone()),
        _ => StartError::Open(config.path.clone(), error),
    };
    let new = NewFile::create(&config.path, existing).map_err(cannot_open)?;
    sys::write_all_at(new.file().as_raw_fd(), header, 0)
        .map_err(|error| StartError::Write(config.path.clone(), error))?;
    new.publish().map_err(cannot_open)
}

pub fn header_of(config: &Config, session: [u8; 16], parent_pid: u32, tick_shift: u32) -> Header {
    let program = config.program.clone();
    Header {
        version: header::FIRST_VERSION,
        session,
        pid: std::process::id(),
        parent_pid,
        started_unix_ns: clock::unix_ns(),
        mode: config.mode,
        command: program.command,
        executable: program.executable,
        working_directory: program.working_directory,
        host: program.host,
        python_version: program.python_version,
        python_allocator: program.python_allocator,
        main_thread: std::process::id(),
        stdlib_paths: program.stdlib_paths,
        import_paths: program.import_paths,
        own_paths: program.own_paths,
        library_paths: program.library_paths,
        user_paths: program.user_paths,
        user_packages: program.user_packages,
        outer_functions: program.outer_functions,
        tick_shift,
        sample_interval_ms: config.interval_ms,
        profiler_version: env!("CARGO_PKG_VERSION").to_owned(),
        joined_late: !config.whole_program,
        attached_at_bytes: config.attached_at_bytes,
        facts: [procfs::process_facts(), program.facts].concat(),
    }
}

pub fn new_session_id() -> [u8; 16] {
    let mut id = [0; 16];
    // Uses the system call, because the function `getrandom` needs glibc 2.25 and releases run on older versions.
    // SAFETY: the pointer and the length describe a live array.
    let got = unsafe { libc::syscall(libc::SYS_getrandom, id.as_mut_ptr(), id.len(), 0) };
    if got != id.len() as libc::c_long {
        id[..8].copy_from_slice(&clock::unix_ns().to_le_bytes());
        id[8..].copy_from_slice(&u64::from(std::process::id()).to_le_bytes());
    }
    id
}
