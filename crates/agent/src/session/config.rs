//! What a session is asked to do. Declared once; the command line and the Python API only name these.

use std::path::PathBuf;

pub const DEFAULT_INTERVAL_MS: u32 = 10;
/// Mean bytes between two samples when sampling is asked for without a number.
pub const DEFAULT_SAMPLE_BYTES: u64 = 512 * 1024;

#[derive(Clone, Debug)]
pub struct Config {
    pub path: PathBuf,
    /// Replace an existing file.
    pub overwrite: bool,
    /// Record Python's own allocators too.
    pub objects: bool,
    /// Mean bytes between two recorded allocations; 0 records every one.
    pub sample_bytes: u64,
    /// Keep the file bounded: sums instead of events.
    pub aggregate: bool,
    /// Record the native frames between the Python frames, too.
    pub native: bool,
    /// Forked children go on recording, each into a file of its own.
    pub follow_fork: bool,
    /// Pause between two readings of the resident size.
    pub interval_ms: u32,
    /// Recording begins before the program does; otherwise blocks from before may be freed.
    pub whole_program: bool,
    /// `heaptide attach` entered the process: the capture says how large it was then.
    pub attached: bool,
    /// The session to join, if another process began it; `None` begins one.
    pub session: Option<[u8; 16]>,
    pub program: Program,
}

/// What the interpreter says of the profiled program; copied into the capture's header.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub command: Vec<String>,
    pub executable: String,
    pub working_directory: String,
    pub host: String,
    pub python_version: u32,
    pub python_allocator: String,
    pub stdlib_paths: Vec<String>,
    pub import_paths: Vec<String>,
    pub own_paths: Vec<String>,
}
