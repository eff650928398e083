//! Makes reports in another process with low priority and bounded memory, so that the program's memory does not grow.
//!
//! Identical reports that are requested at the same time are made once, and a report is cancelled once no client waits for it.
//! The output goes to an unlinked file and from there to the client. The program may reap any child process, including this
//! one, so the renderer writes its exit code to standard error.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use heaptide_files::scratch_file;

use crate::config::RenderConfig;
use crate::lock;
use crate::response::Response;
use crate::shared_work::SharedWork;

/// The number of concurrent renderers; more requests wait.
const MAX_AT_ONCE: usize = 2;
/// The number of requests that may wait for reports. Each waits on a thread, and other requests also need threads.
const MAX_WAITING: usize = 32;
/// The interval in which a waiting request checks whether its client is still connected.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
const MAX_MESSAGE_BYTES: u64 = 16 * 1024;
/// Precedes the exit code in the last line of standard error.
const EXIT_CODE_PREFIX: &str = "heaptide-ended:";

pub(crate) struct Renderer {
    config: RenderConfig,
    folder: PathBuf,
    n_running: Mutex<usize>,
    one_ended: Condvar,
    shared: SharedWork<Vec<OsString>, SharedOutput>,
    n_waiting: AtomicUsize,
}

/// The output of the command as a file, and its length.
type SharedOutput = Result<(Arc<File>, u64), Failure>;

/// The reason why a report could not be made.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The arguments are invalid.
    Arguments(String),
    /// Nothing passes the filters.
    Nothing(String),
    /// The command failed.
    Command(String),
    /// The command took too long.
    TimeLimit(Duration),
    /// Too many requests wait for reports.
    Busy,
    /// All clients that waited for the report have gone.
    Cancelled,
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
            Failure::Busy => {
                let sentence = "too many requests wait for reports: try again in a moment";
                Response::error(503, "Busy", sentence).with("Retry-After", "1")
            }
            Failure::Cancelled => {
                Response::error(503, "Cancelled", "the client closed its connection")
            }
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
            shared: SharedWork::default(),
            n_waiting: AtomicUsize::new(0),
        }
    }

    /// Runs the command like [`Renderer::run`], once for all clients that request the same at the same time.
    ///
    /// While the captures are changing, a client does not get a report that was begun before its request.
    pub(crate) fn share(
        &self,
        words: Vec<OsString>,
        is_changing: bool,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<(File, u64), Failure> {
        let n_waiting = self.n_waiting.fetch_add(1, Ordering::SeqCst);
        let result = if n_waiting < MAX_WAITING {
            let arguments = words.clone();
            let run = |begin: &dyn Fn(), is_cancelled: &dyn Fn() -> bool| {
                let output = self.run(&arguments, begin, is_cancelled);
                output.map(|(file, length)| (Arc::new(file), length))
            };
            let shared = self.shared.run(words, is_changing, is_gone, run);
            shared.unwrap_or(Err(Failure::Cancelled))
        } else {
            Err(Failure::Busy)
        };
        self.n_waiting.fetch_sub(1, Ordering::SeqCst);
        let (file, length) = result?;
        // All clients read at their own offsets, so they can share the open file.
        let file = file.try_clone().map_err(failed)?;
        Ok((file, length))
    }

    /// Runs the command with these arguments. Returns its output as a file, and the length. Calls `begin` when the
    /// command may start.
    pub(crate) fn run(
        &self,
        words: &[OsString],
        begin: &dyn Fn(),
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(File, u64), Failure> {
        let _permit = self.wait_for_permit(is_cancelled)?;
        begin();
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
        if let Err(failure) = wait(&mut child, self.config.time_limit, is_cancelled) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failure);
        }
        let (message, code) = result(&mut messages).map_err(failed)?;
        match code {
            Some(0) => {
                let length = output.seek(SeekFrom::End(0)).map_err(failed)?;
                Ok((output, length))
            }
            Some(2) => Err(Failure::Arguments(message)),
            Some(3) => Err(Failure::Nothing(message)),
            // The message would also be in this folder, so a full disk leaves none.
            _ if message.is_empty() && is_full(&self.folder) => Err(Failure::Command(format!(
                "the report cannot be written in {}: disk full; free space there",
                self.folder.display()
            ))),
            _ if message.is_empty() => Err(Failure::Command(
                "the process that makes reports was killed, perhaps for lack of memory".to_owned(),
            )),
            _ => Err(Failure::Command(message)),
        }
    }

    fn wait_for_permit(&self, is_cancelled: &dyn Fn() -> bool) -> Result<Permit<'_>, Failure> {
        loop {
            // Checked without the lock, because a renderer that ends needs the lock.
            if is_cancelled() {
                return Err(Failure::Cancelled);
            }
            let n_running = lock(&self.n_running);
            let waited = self
                .one_ended
                .wait_timeout_while(n_running, CHECK_INTERVAL, |n| *n >= MAX_AT_ONCE);
            let (mut n_running, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if !waited.timed_out() {
                *n_running += 1;
                return Ok(Permit(self));
            }
        }
    }
}

/// Whether the file system of the folder has no room for a report.
fn is_full(folder: &Path) -> bool {
    let free = rustix::fs::statvfs(folder).map(|it| it.f_bavail.saturating_mul(it.f_frsize));
    free.is_ok_and(|bytes| bytes < MAX_MESSAGE_BYTES)
}

fn failed(error: io::Error) -> Failure {
    Failure::Command(format!(
        "cannot run the process that makes reports ({error})"
    ))
}

/// Counts a running renderer; dropping it lets the next one start.
struct Permit<'a>(&'a Renderer);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *lock(&self.0.n_running) -= 1;
        self.0.one_ended.notify_one();
    }
}

/// Waits until the child ends. Fails if it takes longer than `limit`, or if no client waits for its output any more.
fn wait(
    child: &mut Child,
    limit: Duration,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        match child.try_wait() {
            Ok(None) if begin.elapsed() > limit => return Err(Failure::TimeLimit(limit)),
            Ok(None) if is_cancelled() => return Err(Failure::Cancelled),
            Ok(None) => {}
            // On an error, the program has reaped the child, so it has ended.
            Ok(Some(_)) | Err(_) => return Ok(()),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(CHECK_INTERVAL);
    }
}

/// Returns the messages of the renderer and the exit code in the last line.
fn result(messages: &mut File) -> io::Result<(String, Option<i32>)> {
    let length = messages.seek(SeekFrom::End(0))?;
    messages.seek(SeekFrom::Start(length.saturating_sub(MAX_MESSAGE_BYTES)))?;
    let mut bytes = Vec::new();
    messages.take(MAX_MESSAGE_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let (message, code) = match text.rsplit_once(EXIT_CODE_PREFIX) {
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
