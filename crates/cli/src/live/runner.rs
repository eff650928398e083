//! `heaptide run --live` and `--live-remote`: runs the program as a child process and follows its capture.
//!
//! The child is a plain `heaptide run`: same arguments, same exit code, signals are forwarded. While the view has the
//! terminal, the output of the program goes to a file, so that neither disturbs the other and the program never waits. The
//! output is printed afterwards.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use heaptide_procfs::is_running;

use super::feed::Feed;
use super::job_options::JobOptions;
use super::serve::Server;
use crate::exit::Failure;
use crate::messages::message;
use crate::output::run_summary::print_run_summary;
use crate::terminal::{self, Companion, Exit, Paint};

/// The pause between two reads of the program's output.
const PAUSE: Duration = Duration::from_millis(50);
/// The number of bytes at the end of the output that the view reads.
const TAIL: u64 = 32 << 10;

/// A program to run with a live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivePlan {
    pub viewer: LiveViewer,
    /// The options of `heaptide run`, without those of the live view.
    pub options: Vec<OsString>,
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// The capture to keep; `None` deletes it afterwards.
    pub output: Option<PathBuf>,
    pub quiet: bool,
    pub aggregate: bool,
}

/// The viewer of the live view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveViewer {
    ThisTerminal,
    /// Viewers that connect to this port; 0 for any free port.
    Port(u16),
}

/// Runs the program with `python`, the words that started `heaptide`. Returns the exit code.
pub(crate) fn run(plan: &LivePlan, python: &[OsString]) -> Result<i32, Failure> {
    if plan.viewer == LiveViewer::ThisTerminal && !terminal::is_possible_with_tty() {
        return Err(Failure::failed(
            "--live needs a terminal: use --live-remote, and `heaptide live` in a terminal",
        ));
    }
    let folder = Folder::new()?;
    let capture = plan
        .output
        .clone()
        .unwrap_or_else(|| folder.0.join("live.tide"));
    let mut command = command(plan, python, &capture);
    let status = match plan.viewer {
        LiveViewer::ThisTerminal => show_here(&mut command, &capture, &folder)?,
        LiveViewer::Port(port) => show_at_port(&mut command, &capture, port)?,
    };
    if plan.output.is_some() && !plan.quiet {
        print_run_summary(&capture);
    }
    drop(folder);
    Ok(exit_code(status))
}

/// Returns the command of the child. A temporary capture is aggregated, because it must stay small.
fn command(plan: &LivePlan, python: &[OsString], capture: &Path) -> Command {
    let mut command = Command::new(&python[0]);
    command.args(&python[1..]).arg("run").args(&plan.options);
    if !plan.quiet {
        command.arg("--quiet");
    }
    if plan.output.is_none() {
        command.arg("--output").arg(capture);
        if !plan.aggregate {
            command.arg("--aggregate");
        }
    }
    command.args(&plan.program);
    command
}

fn show_here(
    command: &mut Command,
    capture: &Path,
    folder: &Folder,
) -> Result<ExitStatus, Failure> {
    let path = folder.0.join("output");
    let output = OpenOptions::new().create_new(true).append(true).open(&path);
    let output = output.map_err(|error| Failure::writing(path.display(), &error))?;
    if io::stderr().is_terminal() {
        command.stderr(
            output
                .try_clone()
                .map_err(|error| Failure::writing(path.display(), &error))?,
        );
    }
    if io::stdin().is_terminal() {
        // The view reads the keys.
        command.stdin(Stdio::null());
    }
    command.stdout(output);
    let mut child = spawn(command)?;
    let mut program = Program {
        pid: child.id(),
        output: path,
    };
    let pid = program.pid;
    let feed = Feed::follow(capture, Some(pid), |pid| !is_running(pid));
    let exit = terminal::show_live(
        &feed,
        Some(&mut program),
        JobOptions::default(),
        Paint::of_environment(),
    );
    let forwarder = Forwarder::start(pid);
    match exit {
        Ok(Exit::Key) => {}
        Ok(Exit::Signal(number)) => send(pid, number),
        // The program continues without a view.
        Err(failure) => drop(failure.report()),
    }
    let status = program.print_until_the_end(&mut child);
    drop(forwarder);
    status.map_err(|error| Failure::writing("standard output", &error))
}

fn show_at_port(command: &mut Command, capture: &Path, port: u16) -> Result<ExitStatus, Failure> {
    // Bind first, so that a port in use fails before the program starts.
    let listener = Server::bind(port)?;
    let port = listener.local_addr().map_or(port, |address| address.port());
    message!("view it in another terminal with: heaptide live {port}");
    let mut child = spawn(command)?;
    let pid = child.id();
    let forwarder = Forwarder::start(pid);
    let feed = Feed::follow(capture, Some(pid), |pid| !is_running(pid));
    let server = Server::start(listener, feed);
    let status = child.wait();
    server.finish();
    drop(forwarder);
    status.map_err(|error| {
        Failure::failed(format!(
            "cannot wait for the program ({error}): run it again"
        ))
    })
}

fn spawn(command: &mut Command) -> Result<Child, Failure> {
    command.spawn().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        Failure::failed(format!(
            "cannot start {program} ({error}): check its permissions"
        ))
    })
}

/// Returns the program's exit code, or ends this process with the same signal.
fn exit_code(status: ExitStatus) -> i32 {
    if let Some(number) = status.signal() {
        let _ = emulate_default_handler(number);
        return 128 + number;
    }
    status.code().unwrap_or(1)
}

fn send(pid: u32, number: i32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(number)) {
        // The program may have ended.
        let _ = kill_process(pid, signal);
    }
}

/// A program whose output goes to a file.
struct Program {
    pid: u32,
    output: PathBuf,
}

impl Program {
    /// Prints the output until the program has ended.
    fn print_until_the_end(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let mut file = File::open(&self.output)?;
        let mut out = io::stdout();
        loop {
            let ended = child.try_wait()?;
            // A closed standard output does not end the program.
            let _ = io::copy(&mut file, &mut out).and_then(|_| out.flush());
            if let Some(status) = ended {
                return Ok(status);
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Companion for Program {
    fn output(&mut self, n_lines: usize) -> Vec<String> {
        let tail = |mut file: File| -> io::Result<Vec<u8>> {
            let len = file.metadata()?.len();
            file.seek(SeekFrom::Start(len.saturating_sub(TAIL)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = File::open(&self.output).and_then(tail).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let skipped = lines.len().saturating_sub(n_lines);
        lines[skipped..]
            .iter()
            .map(|line| (*line).to_owned())
            .collect()
    }

    /// Sends SIGINT to the program. Returns true if it has already ended, which closes the view.
    fn interrupt(&mut self) -> bool {
        let is_running = is_running(self.pid);
        if is_running {
            send(self.pid, SIGINT);
        }
        !is_running
    }
}

/// Forwards signals to the program.
struct Forwarder {
    handle: Option<Handle>,
}

impl Forwarder {
    fn start(pid: u32) -> Forwarder {
        let Ok(mut signals) = Signals::new([SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGINT, SIGQUIT])
        else {
            return Forwarder { handle: None };
        };
        let handle = signals.handle();
        // The terminal sends Ctrl-C to the program directly.
        let is_typed = io::stdin().is_terminal();
        let forward = move || {
            for number in signals.forever() {
                if !(is_typed && matches!(number, SIGINT | SIGQUIT)) {
                    send(pid, number);
                }
            }
        };
        let spawned = thread::Builder::new()
            .name("heaptide-signals".into())
            .spawn(forward);
        Forwarder {
            handle: spawned.ok().map(|_| handle),
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            handle.close();
        }
    }
}

/// A private temporary folder for the capture and the output.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, Failure> {
        let parent = std::env::temp_dir();
        let made = heaptide_files::temporary_path(&parent).and_then(|path| {
            DirBuilder::new().mode(0o700).create(&path)?;
            Ok(Folder(path))
        });
        made.map_err(|error| Failure::writing(parent.display(), &error))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A failure is ignored: a folder that remains does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
