//! Makes reports in another process with low priority and bounded memory, so that the program's memory does not grow.
//!
//! The output goes to an unlinked file and from there to the client. The program may reap any child process, including this
//! one, so the renderer writes its exit code to standard error.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use heaptide_files::scratch_file;

use crate::config::RenderConfig;
use crate::lock;
use crate::response::Response;

/// The number of concurrent renderers; more requests wait.
const MAX_AT_ONCE: usize = 2;
const MAX_MESSAGE_BYTES: u64 = 16 * 1024;
/// Precedes the exit code in the last line of standard error.
const ENDED: &str = "heaptide-ended:";

pub(crate) struct Renderer {
    config: RenderConfig,
    folder: PathBuf,
    n_running: Mutex<usize>,
    one_ended: Condvar,
}

/// The reason why a report could not be made.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments are invalid.
    Arguments(String),
    /// Nothing passes the filters.
    Nothing(String),
    /// The command failed.
    Command(String),
    /// The command took too long.
    TimeLimit(Duration),
}

impl Failure {
    pub(crate) fn response(self) -> Response {
        match self {
            Failure::Arguments(message) => Response::error(400, "ArgumentError", message),
            Failure::Nothing(message) => Response::error(404, "NothingFound", message),
            Failure::Command(message) => Response::error(500, "CommandError", message),
            Failure::TimeLimit(limit) => Response::error(
                504,
                "TimeLimitError",
                format!(
                    "the report was not ready after {} s: download the capture and make the report on another machine",
                    limit.as_secs()
                ),
            ),
        }
    }
}

impl Renderer {
    pub(crate) fn new(config: RenderConfig, folder: &Path) -> Renderer {
        Renderer {
            config,
            folder: folder.to_owned(),
            n_running: Mutex::new(0),
            one_ended: Condvar::new(),
        }
    }

    /// Runs the command with these arguments. Returns its output as a file, and the length.
    pub(crate) fn run(&self, words: Vec<OsString>) -> Result<(File, u64), Failure> {
        let _permit = self.wait_for_permit();
        let failed = |error: io::Error| {
            Failure::Command(format!(
                "cannot run the process that makes reports ({error})"
            ))
        };
        heaptide_files::trusted_folder(&self.folder).map_err(failed)?;
        let mut output = scratch_file(&self.folder).map_err(failed)?;
        let mut messages = scratch_file(&self.folder).map_err(failed)?;
        let (program, first) = self
            .config
            .command
            .split_first()
            .ok_or_else(|| Failure::Command("no renderer is configured".to_owned()))?;
        let mut command = Command::new(program);
        command
            .args(first)
            .args(words)
            .env_clear()
            .envs(
                self.config
                    .environment
                    .iter()
                    .map(|(key, value)| (key, value)),
            )
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(messages.try_clone().map_err(failed)?);
        let mut child = command.spawn().map_err(failed)?;
        if !wait(&mut child, self.config.time_limit) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Failure::TimeLimit(self.config.time_limit));
        }
        let (message, code) = result(&mut messages).map_err(failed)?;
        match code {
            Some(0) => {
                let length = output.seek(SeekFrom::End(0)).map_err(failed)?;
                Ok((output, length))
            }
            Some(2) => Err(Failure::Arguments(message)),
            Some(3) => Err(Failure::Nothing(message)),
            _ if message.is_empty() => Err(Failure::Command(
                "the process that makes reports was killed, perhaps for lack of memory".to_owned(),
            )),
            _ => Err(Failure::Command(message)),
        }
    }

    fn wait_for_permit(&self) -> Permit<'_> {
        let mut n_running = lock(&self.n_running);
        while *n_running >= MAX_AT_ONCE {
            n_running = match self.one_ended.wait(n_running) {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
        *n_running += 1;
        Permit(self)
    }
}

/// Counts a running renderer; dropping it lets the next one start.
struct Permit<'a>(&'a Renderer);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *lock(&self.0.n_running) -= 1;
        self.0.one_ended.notify_one();
    }
}

/// Waits until the child ends. Returns `false` if it takes longer than `limit`.
fn wait(child: &mut Child, limit: Duration) -> bool {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        match child.try_wait() {
            Ok(None) if begin.elapsed() > limit => return false,
            Ok(None) => {}
            // On an error, the program has reaped the child, so it has ended.
            Ok(Some(_)) | Err(_) => return true,
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Returns the messages of the renderer and the exit code in the last line.
fn result(messages: &mut File) -> io::Result<(String, Option<i32>)> {
    let length = messages.seek(SeekFrom::End(0))?;
    messages.seek(SeekFrom::Start(length.saturating_sub(MAX_MESSAGE_BYTES)))?;
    let mut bytes = Vec::new();
    messages.take(MAX_MESSAGE_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let (message, code) = match text.rsplit_once(ENDED) {
        Some((message, code)) => (message, code.trim().parse().ok()),
        None => (text.as_ref(), None),
    };
    // An HTTP response needs neither the name of the command nor the hint to its help.
    let prefixes = ["heaptide: ", "error: "];
    let bare = prefixes.iter().find_map(|word| message.strip_prefix(word));
    let message = bare
        .unwrap_or(message)
        .split("\n\nFor more information")
        .next();
    Ok((message.unwrap_or_default().trim().to_owned(), code))
}
