//! Opens the captures of report commands and prints notes about damage.

pub(crate) mod folders;
pub(crate) mod job_records;
pub(crate) mod newest;
pub(crate) mod replayed_capture;
pub(crate) mod timelines;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Once;

use clap::{Arg, ArgMatches, value_parser};
use heaptide_analysis::model::JobGroup;
use heaptide_analysis::symbols::native::short_name;
use heaptide_analysis::{JobGroups, Measure, Request, Session, load_with};
use heaptide_capture::{Capture, Damage, OpenError};
use heaptide_foreign::memray;

use crate::exit::Failure;
use crate::messages::message;
use crate::options::filters::{filter, request};
use crate::options::metrics;
use crate::output::progress::Progress;

/// The maximum number of notes about one file.
const MAX_NOTES: usize = 5;

pub(crate) fn argument() -> Arg {
    Arg::new("captures")
        .value_name("FILE")
        .num_args(0..)
        .value_parser(value_parser!(PathBuf))
        .help("captures, or folders with captures; those of several processes are merged [default: the newest]")
}

/// Returns the named captures and folders; by default the newest capture of the current folder and those of its child
/// processes.
fn paths(matches: &ArgMatches) -> Result<Vec<&PathBuf>, Failure> {
    match matches.get_many::<PathBuf>("captures") {
        Some(paths) => Ok(paths.collect()),
        None => Ok(newest::newest_session()?.iter().collect()),
    }
}

/// Returns the capture that the report is named after.
pub(crate) fn first(matches: &ArgMatches) -> Result<Option<&PathBuf>, Failure> {
    Ok(paths(matches)?.into_iter().next())
}

/// Opens the chosen captures.
pub(crate) fn open(matches: &ArgMatches) -> Result<Vec<Capture>, Failure> {
    open_all(paths(matches)?.into_iter())
}

pub(crate) fn open_all<'a>(
    paths: impl Iterator<Item = &'a PathBuf>,
) -> Result<Vec<Capture>, Failure> {
    let mut seen = HashSet::new();
    let paths = folders::captures(paths)?;
    let captures = paths
        .iter()
        // A file that is named twice is opened once.
        .filter(|path| path.canonicalize().map_or(true, |real| seen.insert(real)))
        .map(|path| open_one(path))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(without_copies(captures))
}

/// Removes captures that are copies of others: their numbers would count twice. Of two copies, the one with more chunks
/// stays, because the other one was probably made during the recording.
fn without_copies(captures: Vec<Capture>) -> Vec<Capture> {
    let mut kept: Vec<Capture> = Vec::with_capacity(captures.len());
    for mut capture in captures {
        match kept.iter_mut().find(|it| is_copy(it, &capture)) {
            Some(other) => {
                if other.chunks.len() < capture.chunks.len() {
                    std::mem::swap(other, &mut capture);
                }
                message!(
                    "{} is a copy of {}, so its numbers are counted once",
                    capture.path.display(),
                    other.path.display()
                );
            }
            None => kept.push(capture),
        }
    }
    kept
}

fn is_copy(one: &Capture, other: &Capture) -> bool {
    let (one, other) = (&one.header, &other.header);
    // Files of other profilers have no identifier.
    one.session != [0; 16] && one == other
}

/// Opens a capture of Heaptide or of memray.
pub(crate) fn open_one(path: &Path) -> Result<Capture, Failure> {
    let opened = memray::open(path).unwrap_or_else(|| Capture::open(path));
    opened.map_err(|error| not_opened(path, &error))
}

/// The failure to open a capture. For a file of another type, the message names the command that reads it.
fn not_opened(path: &Path, error: &OpenError) -> Failure {
    let shown = path.display();
    if newest::is_snapshot(path) {
        return Failure::failed(format!(
            "{shown} is a heap snapshot, not a capture: read it with heaptide heap types {shown}"
        ));
    }
    if timelines::is_timeline(path) {
        return Failure::failed(format!(
            "{shown} is a timeline, not a capture: draw it with heaptide plot {shown}"
        ));
    }
    Failure::failed(error)
}

/// Opens and replays the chosen captures, with a progress bar.
pub(crate) fn session(matches: &ArgMatches) -> Result<Session, Failure> {
    session_with(matches, request(matches))
}

/// Like [`session`], with a given request.
pub(crate) fn session_with(matches: &ArgMatches, request: Request) -> Result<Session, Failure> {
    let asks_for_time = request.filter.chooses_time();
    let session = session_of(paths(matches)?.into_iter(), request)?;
    let asks_for_totals = matches!(
        metrics::measure(matches),
        Measure::Total | Measure::Temporary
    );
    if asks_for_time || asks_for_totals {
        check_totals(&session)?;
    }
    if metrics::measure(matches) == Measure::Temporary {
        check_lifetimes(&session)?;
    }
    Ok(session)
}

/// Refuses bounded captures: their sums contain no lifetimes of blocks.
fn check_lifetimes(session: &Session) -> Result<(), Failure> {
    let mut processes = session.processes.iter();
    match processes.find(|process| process.header.mode.aggregate) {
        None => Ok(()),
        Some(process) => Err(Failure::failed(format!(
            "{} was recorded with --aggregate and cannot distinguish temporary allocations from others: \
             record without --aggregate, or omit --temporary-allocations",
            process.path.display()
        ))),
    }
}

/// Refuses captures that only contain the peak and the leaked blocks.
pub(crate) fn check_totals(session: &Session) -> Result<(), Failure> {
    let mut processes = session.processes.iter();
    match processes.find(|process| !process.sums.has_totals) {
        None => Ok(()),
        Some(process) => Err(Failure::failed(format!(
            "{} is an aggregated memray capture, which only has the peak and the leaked memory: \
             omit --total, --temporary-allocations, --from and --to",
            process.path.display()
        ))),
    }
}

/// Opens and replays captures at these paths.
pub(crate) fn session_of<'a>(
    paths: impl Iterator<Item = &'a PathBuf>,
    request: Request,
) -> Result<Session, Failure> {
    let captures = open_all(paths)?;
    let n_events = captures
        .iter()
        .map(Capture::n_events)
        .fold(0, u64::saturating_add);
    let mut progress = Progress::new("reading", n_events);
    let session = load_with(captures, request, &mut |n_done| {
        progress.advance(n_done);
    });
    progress.finish();
    let mut session = session.map_err(Failure::no_match)?;
    session.clock_offsets = folders::clock_offsets(session.processes.iter().map(|one| &one.path));
    for process in &session.processes {
        report_damage(&process.path, &process.damage);
    }
    report_absent_libraries(&session);
    Ok(session)
}

/// Replays the named captures separately from [`session`], for the sums of their jobs by name.
pub(crate) fn job_groups(matches: &ArgMatches) -> Result<Vec<JobGroup>, Failure> {
    let captures = open(matches)?;
    let n_events = captures.iter().map(Capture::n_events).sum();
    let mut progress = Progress::new("reading jobs", n_events);
    let mut groups = JobGroups::default();
    let filter = filter(matches);
    let read = heaptide_analysis::jobs(
        captures,
        &filter,
        &mut |n_done| progress.advance(n_done),
        &mut |job| groups.add(&job),
    );
    progress.finish();
    read.map_err(Failure::no_match)?;
    Ok(groups.finish())
}

/// Warns about libraries whose symbols cannot be resolved on this machine. Printed once per command.
fn report_absent_libraries(session: &Session) {
    static WARNED: Once = Once::new();
    let processes = session.processes.iter();
    let absent: BTreeSet<&str> = processes
        .flat_map(|process| process.absent_libraries.iter())
        .map(|path| short_name(path))
        .collect();
    let Some(first) = absent.first() else { return };
    let others = match absent.len() - 1 {
        0 => String::new(),
        1 => " and another library".to_owned(),
        n => format!(" and {n} other libraries"),
    };
    WARNED.call_once(|| {
        message!(
            "cannot resolve native symbols of {first}{others}, which are not on this machine: \
             run `heaptide symbols bundle` on the capture where the program ran"
        );
    });
}

/// Prints notes about damage. The report covers the rest of the capture.
pub(crate) fn report_damage(path: &Path, damage: &[Damage]) {
    for note in damage.iter().take(MAX_NOTES) {
        message!("{}: {note}", path.display());
    }
    if damage.len() > MAX_NOTES {
        message!(
            "{}: {} more damaged ranges",
            path.display(),
            damage.len() - MAX_NOTES
        );
    }
}
