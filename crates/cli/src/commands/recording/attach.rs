//! `heaptide attach`: records a running process.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command};
use heaptide_attach::visit::{self, RecordingRequest, VisitResult};
use heaptide_attach::{Target, shared_folder};
use heaptide_procfs as procfs;
use heaptide_report::units;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::{detach, run};
use crate::commands::timelines::record;
use crate::exit::Failure;
use crate::invocation::command_line::{CommandLine, Target as CommandTarget};
use crate::live::{Feed, JobOptions, find};
use crate::messages::message;
use crate::options::arguments::{self, flag};
use crate::options::memray_options;
use crate::output::run_summary::print_run_summary;
use crate::terminal::{self, Exit, Paint};

pub(crate) const NAME: &str = "attach";

/// The interval at which a recording with a duration checks that the process exists.
const PAUSE: Duration = Duration::from_millis(20);

/// The interval at which such a recording checks that the process is still recorded. The check scans all open files of
/// the process.
const LONG_PAUSE: Duration = Duration::from_millis(500);

const HELP: &str = "\
Examples:
  heaptide attach 4711                       record until detached, or to the end
  heaptide attach 4711 --duration 60         record for one minute and wait
  heaptide attach 4711 --live                show allocations until you close the view
  heaptide attach 4711 --sample --aggregate  record at low cost into a small file

The process is not restarted, and Heaptide does not need to be installed in it. Earlier allocations are not in the \
capture. You can record a process in a container from the host.
Exit codes: 0 success, 1 refused or failed; the process is then unchanged.";

pub(crate) fn arguments() -> Command {
    Command::new(NAME)
        .about("Record a running process from now on")
        .after_help(HELP)
        .arg(arguments::pid())
        .args(arguments::capture_file())
        .arg(
            flag(
                "live",
                "show allocations made after attaching in this terminal",
            )
            .conflicts_with_all(["output", "duration", "follow-fork"]),
        )
        .args(arguments::recording())
        .arg(flag(
            "follow-fork",
            "also record forked children, each in its own file",
        ))
        .args(memray_options::compression())
        .args(memray_options::debugger())
        .arg(
            Arg::new("duration")
                .long("duration")
                .value_name("SECONDS")
                .value_parser(record::positive)
                .help("detach after this time, or at Ctrl-C [default: at `heaptide detach`]"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let pid = matches.get_one::<u32>("pid").copied().unwrap_or(0);
    let is_live = matches.get_flag("live");
    if is_live && !terminal::is_possible_with_tty() {
        return Err(Failure::failed(
            "--live needs a terminal: attach without --live, then run heaptide live --pid in a terminal",
        ));
    }
    let target = Target::find(pid).map_err(Failure::failed)?;
    if let Ok(capture) = find::capture_of(pid) {
        let capture = fs::read_link(&capture).unwrap_or(capture);
        return Err(Failure::failed(format!(
            "process {pid} is already being recorded into {}: view it with heaptide live --pid {pid}, or stop it first",
            capture.display()
        )));
    }
    if is_live {
        return show(matches, &target);
    }
    let path = destination(matches, pid, "tide")?;
    let duration = matches.get_one::<f64>("duration").copied();
    // Signals are caught before recording starts: Ctrl-C must also stop a recording that has a duration and is just
    // starting.
    let signals = duration.map(|_| caught_signals()).transpose()?;
    let recording = start(matches, &target, path)?;
    if !matches.get_flag("quiet") {
        report_start(&recording, &target, duration.is_none());
    }
    match duration.zip(signals) {
        Some((seconds, signals)) => wait_and_detach(matches, &target, &recording, seconds, signals),
        None => Ok(()),
    }
}

/// Returns the signals that stop a recording early.
fn caught_signals() -> Result<Signals, Failure> {
    Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::failed(format!("cannot wait for signals ({error}): try again")))
}

/// Starts recording into `final_path`, which does not exist or may be overwritten.
fn start(matches: &ArgMatches, target: &Target, final_path: PathBuf) -> Result<Started, Failure> {
    let is_direct = procfs::sees_same_files(target.pid);
    let made = is_direct
        && shared_folder::make_for(target, &final_path)
            .map_err(|error| Failure::writing(final_path.display(), &error))?;
    let mode = arguments::mode(matches);
    let request = RecordingRequest {
        final_path: final_path.clone(),
        is_direct,
        overwrite: made || matches.get_flag("force"),
        objects: mode.objects,
        native: mode.native,
        sample_bytes: mode.sample_bytes,
        aggregate: mode.aggregate || matches.get_flag("live"),
        follow_fork: matches.get_flag("follow-fork"),
        interval_ms: arguments::interval_ms(matches),
        resident_bytes: target.status.resident_bytes,
    };
    match visit::attach(target, &request) {
        Ok(visited) => Ok(Started {
            visited,
            final_path,
            is_direct,
        }),
        Err(refusal) => {
            if made {
                // The file is still empty.
                let _ = fs::remove_file(&final_path);
            }
            Err(Failure::failed(refusal))
        }
    }
}

struct Started {
    visited: VisitResult,
    final_path: PathBuf,
    is_direct: bool,
}

fn report_start(recording: &Started, target: &Target, until_detach: bool) {
    let pid = target.pid;
    let VisitResult {
        note, paused, took, ..
    } = &recording.visited;
    if !note.is_empty() {
        message!("{note}; the capture has no Python stacks");
    }
    message!(
        "recording process {pid} into {}; attaching took {} and paused the process for {}",
        recording.final_path.display(),
        units::duration(took.as_secs_f64()),
        units::duration(paused.as_secs_f64())
    );
    if !recording.is_direct {
        message!(
            "the process has its own file system; the capture is in {} there until you detach",
            recording.visited.capture.display()
        );
    }
    message!(
        "earlier allocations are not in the capture: {} resident",
        units::size(target.status.resident_bytes)
    );
    if until_detach {
        message!("stop recording with: heaptide detach {pid}");
    }
}

fn wait_and_detach(
    matches: &ArgMatches,
    target: &Target,
    recording: &Started,
    seconds: f64,
    mut signals: Signals,
) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let mut received = None;
    let mut next_check = Instant::now() + LONG_PAUSE;
    while received.is_none() && Instant::now() < deadline && procfs::is_running(target.pid) {
        std::thread::sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now())));
        received = signals.pending().next();
        if Instant::now() >= next_check {
            if find::capture_of(target.pid).is_err() {
                break;
            }
            next_check = Instant::now() + LONG_PAUSE;
        }
    }
    let path = if procfs::is_running(target.pid) {
        match detach::end(target) {
            Ok(path) => path,
            // Another command detached and left the capture at the same path.
            Err(_) if find::capture_of(target.pid).is_err() && recording.final_path.is_file() => {
                message!("another command stopped the recording");
                recording.final_path.clone()
            }
            Err(failure) => return Err(failure),
        }
    } else if recording.is_direct {
        recording.final_path.clone()
    } else {
        return Err(Failure::failed(format!(
            "process {} ended before its capture could be fetched: it is in {} of the process's file system",
            target.pid,
            recording.visited.capture.display()
        )));
    };
    if !matches.get_flag("quiet") {
        print_run_summary(&path);
    }
    if let Some(signal) = received.filter(|&signal| signal != SIGINT) {
        // The parent sees the same exit as without the handler. Ctrl-C is the normal way to stop early.
        let _ = emulate_default_handler(signal);
    }
    Ok(())
}

/// Shows the process until the user quits, then detaches.
fn show(matches: &ArgMatches, target: &Target) -> Result<(), Failure> {
    let name = format!("heaptide-live-{}-{}.tide", target.pid, std::process::id());
    let path = std::env::temp_dir().join(name);
    start(matches, target, path)?;
    let exit = find::capture_of(target.pid).and_then(|capture| {
        let feed = Feed::follow(&capture, None, |pid| !procfs::is_running(pid));
        terminal::show_live(&feed, None, JobOptions::default(), Paint::of_environment())
    });
    if procfs::is_running(target.pid) {
        let path = detach::end(target)?;
        // The file was only for the view.
        let _ = fs::remove_file(path);
    }
    exit.map(Exit::obey)
}

/// Returns the path of the file to write for a process. The file does not exist, or may be overwritten.
pub(crate) fn destination(
    matches: &ArgMatches,
    pid: u32,
    ending: &str,
) -> Result<PathBuf, Failure> {
    let path = match matches.get_one::<PathBuf>("output") {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("heaptide-{}.{pid}.{ending}", program_name(pid))),
    };
    let path =
        std::path::absolute(&path).map_err(|error| Failure::writing(path.display(), &error))?;
    if !matches.get_flag("force") && path.symlink_metadata().is_ok() {
        return Err(Failure::failed(format!(
            "{} exists already: choose another name with -o, or overwrite it with --force",
            path.display()
        )));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.is_dir() {
        return Err(Failure::failed(format!(
            "{} is not a folder: create it, or choose another name with -o",
            folder.display()
        )));
    }
    Ok(path)
}

/// Returns the program that `heaptide run` runs, if `words` are the command line of `heaptide run`.
fn recorded_program(words: &[OsString]) -> Option<String> {
    let file_name = |word: &OsString| Path::new(word).file_name().map(OsStr::to_owned);
    let is_heaptide = |word: &OsString| file_name(word).is_some_and(|name| name == "heaptide");
    let at = words.iter().position(is_heaptide)?;
    let line = CommandLine::split(words[at..].to_vec(), &crate::command());
    line.own.iter().find(|word| *word == run::NAME)?;
    let name = match line.target().ok()?.0 {
        CommandTarget::Script(path) => file_name(&path.into_os_string())?,
        CommandTarget::Module(name) => name,
        CommandTarget::Code(_) => "string".into(),
        CommandTarget::Stdin => "stdin".into(),
    };
    Some(name.to_string_lossy().into_owned())
}

/// Returns the program of the process: the first argument of the interpreter that is not an option, or the module of `-m`.
fn program_name(pid: u32) -> String {
    let words = procfs::arguments(pid).unwrap_or_default();
    if let Some(name) = recorded_program(&words) {
        return name;
    }
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let mut words = words.iter().map(|word| &**word).skip(1);
    let name = loop {
        match words.next() {
            Some("-m") => break words.next().unwrap_or("module"),
            Some("-c") => break "string",
            Some("-W" | "-X") => drop(words.next()),
            Some(word) if word.starts_with('-') && word != "-" => {}
            Some("-") => break "stdin",
            Some(word) if !word.is_empty() => break word.rsplit('/').next().unwrap_or(word),
            _ => break "python",
        }
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_heaptide_run_is_named_after_the_script() {
        let name = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            recorded_program(&words)
        };
        for (line, program) in [
            ("python -m heaptide run -q -o x.tide dir/job.py 5", "job.py"),
            (
                "/venv/bin/python /venv/bin/heaptide run -m package.job",
                "package.job",
            ),
            ("python -m heaptide --color never run -c pass", "string"),
        ] {
            assert_eq!(name(line).as_deref(), Some(program), "{line}");
        }
        assert_eq!(name("python -m heaptide worker tasks:send"), None);
        assert_eq!(name("python job.py"), None);
    }
}
