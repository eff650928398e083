//! The options of a session, as the extension module passes them to [`super::start`].

use std::path::PathBuf;

use heaptide_capture::Mode;
use heaptide_capture::identity::Facts;

#[derive(Clone, Debug)]
pub struct Config {
    pub path: PathBuf,
    /// Whether to replace an existing file.
    pub overwrite: bool,
    /// The recording mode; copied into the capture's header.
    pub mode: Mode,
    /// Milliseconds between two readings of the resident size.
    pub interval_ms: u32,
    /// Whether recording starts before the program. If not, the program may free blocks that were never recorded.
    pub whole_program: bool,
    /// Resident size before `heaptide attach` entered the process, for the capture's header; 0 if it did not start the
    /// recording.
    pub attached_at_bytes: u64,
    /// The session to join if another process started it; `None` starts a new one.
    pub session: Option<[u8; 16]>,
    pub program: Program,
}

/// The profiled program as the interpreter describes it; copied into the capture's header.
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
    pub library_paths: Vec<String>,
    pub user_paths: Vec<String>,
    pub user_packages: Vec<String>,
    /// The run and the labels of the process; see `heaptide_capture::labels`.
    pub facts: Facts,
    pub outer_functions: Vec<String>,
}
