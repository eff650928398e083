//! The configuration of the control API, set once when it is opened.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::token::Token;

#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the program.
    pub name: String,
    /// The folder for sessions.
    pub directory: PathBuf,
    /// The folder with the sockets of the program's processes.
    pub group: PathBuf,
    /// The name of the run, shared by its processes on other hosts.
    pub run: String,
    /// The folder of the run, in the folder for sessions.
    pub run_folder: PathBuf,
    /// The folder of job records, if the program writes any.
    pub jobs_folder: Option<PathBuf>,
    /// The path under which the routes are mounted, for links in responses.
    pub prefix: String,
    /// `None` only if no token was chosen and none could be created; nobody has full access over TCP then.
    pub token: Option<Token>,
    /// A header that may carry the token instead of `Authorization: Bearer`.
    pub token_header: Option<String>,
    /// The one other origin whose pages may use the API.
    pub cors_origin: Option<String>,
    pub keep_sessions: usize,
    pub keep_bytes: u64,
    pub requests_per_second: u32,
    /// How long a request waits for the interpreter before it is answered with status 202, or 503 for a heap snapshot.
    pub interpreter_timeout: Duration,
    pub render: RenderConfig,
    /// The report commands, with their options.
    pub commands: Vec<ReportCommand>,
    /// Whether flame graphs show leaked memory by default.
    pub leaks: bool,
    /// The program's command line, for `heaptide ctl list`.
    pub command: String,
}

impl Config {
    /// Returns the name of the group: equal in all processes of the program, and unique to it.
    pub(crate) fn group_name(&self) -> &str {
        let name = self.group.file_name();
        name.and_then(|name| name.to_str()).unwrap_or_default()
    }
}

/// The command of the process that makes a report. `heaptide.command_process` lowers its priority and limits its resources.
#[derive(Clone, Debug)]
pub struct RenderConfig {
    /// The program and its first arguments; the report's arguments follow them.
    pub command: Vec<OsString>,
    /// The whole environment, read once, because the program can change its environment at any time.
    pub environment: Vec<(OsString, OsString)>,
    pub time_limit: Duration,
}

/// A command that makes a report of captures, as declared by the command line.
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
    /// The allowed values; empty if any value is allowed.
    pub values: Vec<String>,
}
