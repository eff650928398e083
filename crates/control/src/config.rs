//! What a job's control is told at its start, by whoever knows the process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Config {
    /// What the job is called.
    pub name: String,
    /// Where sessions are kept.
    pub directory: PathBuf,
    /// The folder with the sockets of this job's processes.
    pub group: PathBuf,
    /// What the routes are mounted below, for the links in answers.
    pub prefix: String,
    pub token: Option<String>,
    /// A header that may carry the token, beside `Authorization: Bearer`.
    pub token_header: Option<String>,
    /// The one other origin whose pages may call.
    pub cors_origin: Option<String>,
    pub keep_sessions: usize,
    pub keep_bytes: u64,
    pub requests_per_second: u32,
    /// How long a request waits for the interpreter before it is answered with 202.
    pub interpreter_timeout: Duration,
    pub render: RenderConfig,
    /// The report commands there are, with their options.
    pub commands: Vec<ReportCommand>,
    /// Flame graphs first show what is still alive.
    pub leaks: bool,
    /// The job's command line, for those who look for a process.
    pub command: String,
}

impl Config {
    /// What the group is called: the same in all processes of this job, and in no other job.
    pub(crate) fn group_name(&self) -> &str {
        let name = self.group.file_name();
        name.and_then(|name| name.to_str()).unwrap_or_default()
    }
}

/// How the process that makes a report is started. It is niced and bounded by `heaptide.command_process`.
#[derive(Clone, Debug)]
pub struct RenderConfig {
    /// The words before the report's own.
    pub command: Vec<OsString>,
    /// The whole environment, read once: the program may change its own at any time.
    pub environment: Vec<(OsString, OsString)>,
    pub time_limit: Duration,
}

/// A command that makes a report of captures, as the command line declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportCommand {
    pub name: String,
    pub about: String,
    pub options: Vec<ReportOption>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ReportOption {
    /// Without dashes.
    pub name: String,
    pub help: String,
    pub takes_value: bool,
    /// Empty if any value may be given.
    pub values: Vec<String>,
}
