//! Captures for report commands: the arguments that name them, opening, and saying what was damaged.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Once;

use clap::{Arg, ArgMatches, value_parser};
use heaptide_analysis::symbols::native::short_name;
use heaptide_analysis::{Measure, Request, Session, load_with};
use heaptide_capture::{Capture, Damage};

use crate::exit::Failure;
use crate::filters::request;
use crate::metrics;
use crate::progress::Progress;

/// More notes about one file do not help anyone.
const MAX_NOTES: usize = 5;

pub(crate) fn argument() -> Arg {
    Arg::new("captures")
        .value_name("FILE")
        .required(true)
        .num_args(1..)
        .value_parser(value_parser!(PathBuf))
        .help("captures to read; those of several processes are merged")
}

/// The capture after which a report is named.
pub(crate) fn first(matches: &ArgMatches) -> Option<&PathBuf> {
    let captures = matches.get_many::<PathBuf>("captures");
    captures.into_iter().flatten().next()
}

/// The captures that were named.
pub(crate) fn open(matches: &ArgMatches) -> Result<Vec<Capture>, Failure> {
    let paths = matches.get_many::<PathBuf>("captures");
    open_all(paths.into_iter().flatten())
}

fn open_all<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<Vec<Capture>, Failure> {
    let mut seen = HashSet::new();
    paths
        // A file that is named twice, by whatever path, counts once.
        .filter(|path| path.canonicalize().map_or(true, |real| seen.insert(real)))
        .map(|path| heaptide_foreign::open(path).map_err(Failure::failed))
        .collect()
}

/// Opens and replays the captures that were named, with a progress bar if that takes long.
pub(crate) fn session(matches: &ArgMatches) -> Result<Session, Failure> {
    session_with(matches, request(matches))
}

/// The same, asked for more than sums.
pub(crate) fn session_with(matches: &ArgMatches, request: Request) -> Result<Session, Failure> {
    let paths = matches.get_many::<PathBuf>("captures");
    let asks_for_time = request.filter.chooses_time();
    let session = session_of(paths.into_iter().flatten(), request)?;
    let asks_for_totals = matches!(
        metrics::measure(matches),
        Measure::Total | Measure::Temporary
    );
    if asks_for_time || asks_for_totals {
        check_totals(&session)?;
    }
    Ok(session)
}

/// Refuses captures that hold no more than what was alive at the peak and at the end.
pub(crate) fn check_totals(session: &Session) -> Result<(), Failure> {
    let mut processes = session.processes.iter();
    match processes.find(|process| !process.sums.has_totals) {
        None => Ok(()),
        Some(process) => Err(Failure::failed(format!(
            "{} is an aggregated capture of memray and says only what was alive at the peak and at the end: \
             leave out --total, --temporary-allocations, --from and --to",
            process.path.display()
        ))),
    }
}

/// The same for captures that were named in another way.
pub(crate) fn session_of<'a>(
    paths: impl Iterator<Item = &'a PathBuf>,
    request: Request,
) -> Result<Session, Failure> {
    let captures = open_all(paths)?;
    let n_events = captures.iter().map(Capture::n_events).sum();
    let mut progress = Progress::new("reading", n_events);
    let session = load_with(captures, request, &mut |n_done| {
        progress.advance(n_done);
    });
    progress.finish();
    let session = session.map_err(Failure::no_match)?;
    for process in &session.processes {
        tell_damage(&process.path, &process.damage);
    }
    tell_absent_libraries(&session);
    Ok(session)
}

/// How native functions get names that they do not have here. Said once, however many captures a command reads.
fn tell_absent_libraries(session: &Session) {
    static TELL: Once = Once::new();
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
    TELL.call_once(|| {
        eprintln!(
            "heaptide: native functions of {first}{others} have no names, because what the program had loaded is not here: \
             run `heaptide symbols bundle` on the capture where the program ran"
        );
    });
}

/// Notes on standard error: the report that follows is made of the rest.
pub(crate) fn tell_damage(path: &std::path::Path, damage: &[Damage]) {
    for note in damage.iter().take(MAX_NOTES) {
        eprintln!("heaptide: {}: {note}", path.display());
    }
    if damage.len() > MAX_NOTES {
        eprintln!(
            "heaptide: {}: {} more places are damaged",
            path.display(),
            damage.len() - MAX_NOTES
        );
    }
}
