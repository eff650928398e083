//! `heaptide attach`: record a process that runs already.

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

use super::{detach, record};
use crate::arguments::{self, flag};
use crate::exit::Failure;
use crate::live::{Feed, find};
use crate::run_summary;
use crate::terminal::{self, Left, Paint};

pub(crate) const NAME: &str = "attach";

/// Between two looks whether the process is still there, while a recording of a given duration runs.
const PAUSE: Duration = Duration::from_millis(20);

/// Between two looks whether it is still recorded, which takes a look at every file it has open.
const LONG_PAUSE: Duration = Duration::from_millis(500);

const HELP: &str = "\
Heaptide need not be installed where the process runs, and nothing is restarted:
  heaptide attach 4711                       record until `heaptide detach 4711`, or until it ends
  heaptide attach 4711 --duration 60         record for a minute, and wait for it
  heaptide attach 4711 --live                look at what it allocates from now on; the recording ends with the view
  heaptide attach 4711 --sample --aggregate  at next to no cost, into a file that stays small

What was allocated before the attach is not in the capture. Processes in containers are recorded from the host.
Exit codes: 0 done, 1 refused or failed: one sentence says why, and the process is as it was.";

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
            .conflicts_with_all(["output", "duration"]),
        )
        .args(arguments::recording())
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
            "there is no terminal to show the process in: attach without --live, and use heaptide live --pid",
        ));
    }
    let target = Target::find(pid).map_err(Failure::failed)?;
    if let Ok(capture) = find::capture_of(pid) {
        let capture = fs::read_link(&capture).unwrap_or(capture);
        return Err(Failure::failed(format!(
            "process {pid} is being recorded into {} already: watch that with heaptide live --pid {pid}, or end it first",
            capture.display()
        )));
    }
    if is_live {
        return show(matches, &target);
    }
    let path = destination(matches, pid, "tide")?;
    let duration = matches.get_one::<f64>("duration").copied();
    // Caught before anything is begun: a recording of a given duration is never left running by a Ctrl-C.
    let signals = duration.map(|_| caught_signals()).transpose()?;
    let begun = begin(matches, &target, path)?;
    if !matches.get_flag("quiet") {
        tell(&begun, &target, duration.is_none());
    }
    match duration.zip(signals) {
        Some((seconds, signals)) => wait_and_end(matches, &target, &begun, seconds, signals),
        None => Ok(()),
    }
}

/// What ends a recording earlier.
fn caught_signals() -> Result<Signals, Failure> {
    Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| {
        Failure::failed(format!("signals cannot be waited for ({error}): try again"))
    })
}

/// Begins to record into `home`, which is known to be free.
fn begin(matches: &ArgMatches, target: &Target, home: PathBuf) -> Result<Begun, Failure> {
    let is_direct = procfs::sees_same_files(target.pid);
    let made = is_direct
        && shared_folder::make_for(target, &home)
            .map_err(|error| Failure::writing(home.display(), &error))?;
    let wish = RecordingRequest {
        home: home.clone(),
        is_direct,
        overwrite: made || matches.get_flag("force"),
        objects: matches.get_flag("objects"),
        native: matches.get_flag("native"),
        sample_bytes: matches.get_one::<u64>("sample").copied().unwrap_or(0),
        aggregate: matches.get_flag("aggregate") || matches.get_flag("live"),
        interval_ms: matches.get_one::<u32>("interval").copied().unwrap_or(10),
    };
    match visit::attach(target, &wish) {
        Ok(visited) => Ok(Begun {
            visited,
            home,
            is_direct,
        }),
        Err(refusal) => {
            if made {
                // Nothing was written into it.
                let _ = fs::remove_file(&home);
            }
            Err(Failure::failed(refusal))
        }
    }
}

struct Begun {
    visited: VisitResult,
    home: PathBuf,
    is_direct: bool,
}

fn tell(begun: &Begun, target: &Target, until_detach: bool) {
    let pid = target.pid;
    let milliseconds = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let VisitResult {
        note, paused, took, ..
    } = &begun.visited;
    if !note.is_empty() {
        eprintln!("heaptide: {note}; Python stacks are left out of the capture");
    }
    eprintln!(
        "heaptide: recording process {pid} into {}; attaching took {}, of which it stood still for {}",
        begun.home.display(),
        milliseconds(*took),
        milliseconds(*paused)
    );
    if !begun.is_direct {
        eprintln!(
            "heaptide: it sees other files than we do: until the end the capture lies in {} there",
            begun.visited.capture.display()
        );
    }
    eprintln!(
        "heaptide: what it allocated before is not in the capture: {} resident",
        units::size(target.status.resident_bytes)
    );
    if until_detach {
        eprintln!("heaptide: end it with: heaptide detach {pid}");
    }
}

fn wait_and_end(
    matches: &ArgMatches,
    target: &Target,
    begun: &Begun,
    seconds: f64,
    mut signals: Signals,
) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let mut came = None;
    let mut next_look = Instant::now() + LONG_PAUSE;
    while came.is_none() && Instant::now() < deadline && procfs::is_running(target.pid) {
        std::thread::sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now())));
        came = signals.pending().next();
        if Instant::now() >= next_look {
            if find::capture_of(target.pid).is_err() {
                break;
            }
            next_look = Instant::now() + LONG_PAUSE;
        }
    }
    let path = if procfs::is_running(target.pid) {
        match detach::end(target) {
            Ok(path) => path,
            // Whoever detached it left the capture where we would have.
            Err(_) if find::capture_of(target.pid).is_err() && begun.home.is_file() => {
                eprintln!("heaptide: somebody else ended the recording");
                begun.home.clone()
            }
            Err(failure) => return Err(failure),
        }
    } else if begun.is_direct {
        begun.home.clone()
    } else {
        return Err(Failure::failed(format!(
            "process {} ended before its capture could be fetched: it lies in {} of its own files",
            target.pid,
            begun.visited.capture.display()
        )));
    };
    if !matches.get_flag("quiet") {
        for line in run_summary(&path) {
            eprintln!("heaptide: {line}");
        }
    }
    if let Some(signal) = came.filter(|&signal| signal != SIGINT) {
        // Whoever ended us sees what it would have seen; Ctrl-C is how a person says that it is enough.
        let _ = emulate_default_handler(signal);
    }
    Ok(())
}

/// Shows the process until somebody has seen enough, then leaves it as it was.
fn show(matches: &ArgMatches, target: &Target) -> Result<(), Failure> {
    let name = format!("heaptide-live-{}-{}.tide", target.pid, std::process::id());
    let path = std::env::temp_dir().join(name);
    begin(matches, target, path)?;
    let left = find::capture_of(target.pid).and_then(|capture| {
        let feed = Feed::follow(&capture, None, |pid| !procfs::is_running(pid));
        terminal::show_live(&feed, None, Paint::of_environment())
    });
    if procfs::is_running(target.pid) {
        let path = detach::end(target)?;
        // Nobody asked for it to stay.
        let _ = fs::remove_file(path);
    }
    left.map(Left::obey)
}

/// Where the file goes that is made of a process; it is not there yet, or may be overwritten.
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
            "{} is not a folder: make it, or choose another name with -o",
            folder.display()
        )));
    }
    Ok(path)
}

/// What the process runs: the first word behind the interpreter that is no option, or the module behind `-m`.
fn program_name(pid: u32) -> String {
    let words = procfs::arguments(pid).unwrap_or_default();
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
