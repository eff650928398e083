//! Opens the captures of report commands and prints notes about damage.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Once;

use clap::{Arg, ArgMatches, value_parser};
use heaptide_analysis::symbols::native::short_name;
use heaptide_analysis::{Measure, Request, Session, load_with};
use heaptide_capture::{Capture, Damage};

use crate::exit::Failure;
use crate::filters::request;
use crate::messages::message;
use crate::metrics;
use crate::progress::Progress;

/// The maximum number of notes about one file.
const MAX_NOTES: usize = 5;

pub(crate) fn argument() -> Arg {
    Arg::new("captures")
        .value_name("FILE")
        .required(true)
        .num_args(1..)
        .value_parser(value_parser!(PathBuf))
        .help("captures; those of several processes are merged")
}

/// Returns the capture that the report is named after.
pub(crate) fn first(matches: &ArgMatches) -> Option<&PathBuf> {
    let captures = matches.get_many::<PathBuf>("captures");
    captures.into_iter().flatten().next()
}

/// Opens the named captures.
pub(crate) fn open(matches: &ArgMatches) -> Result<Vec<Capture>, Failure> {
    let paths = matches.get_many::<PathBuf>("captures");
    open_all(paths.into_iter().flatten())
}

fn open_all<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<Vec<Capture>, Failure> {
    let mut seen = HashSet::new();
    paths
        // A file that is named twice is opened once.
        .filter(|path| path.canonicalize().map_or(true, |real| seen.insert(real)))
        .map(|path| heaptide_foreign::open(path).map_err(Failure::failed))
        .collect()
}

/// Opens and replays the named captures, with a progress bar.
pub(crate) fn session(matches: &ArgMatches) -> Result<Session, Failure> {
    session_with(matches, request(matches))
}

/// Like [`session`], with a given request.
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
    let n_events = captures.iter().map(Capture::n_events).sum();
    let mut progress = Progress::new("reading", n_events);
    let session = load_with(captures, request, &mut |n_done| {
        progress.advance(n_done);
    });
    progress.finish();
    let session = session.map_err(Failure::no_match)?;
    for process in &session.processes {
        report_damage(&process.path, &process.damage);
    }
    report_absent_libraries(&session);
    Ok(session)
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
pub(crate) fn report_damage(path: &std::path::Path, damage: &[Damage]) {
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
