//! `heaptide launch`: runs a Python program as several ranks, with mpirun or as plain processes, and can record a timeline of
//! each rank.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_report::shell;
use heaptide_timeline::Ending;
use heaptide_watch::{Start, node, run_all};

use crate::exit::Failure;
use crate::invocation::reinvoke;
use crate::messages::message;

pub(crate) const NAME: &str = "launch";

/// Tried in this order by default.
const LAUNCHERS: [&str; 2] = ["mpirun", "mpiexec"];
const LOCAL: &str = "local";

pub(crate) fn arguments() -> Command {
    Command::new(NAME)
        .about("Run a Python program as several ranks, optionally with timelines")
        .long_about(
            "Run a Python program as several ranks, optionally with timelines.\n\n\
             With --python_memory_profile, rank 0 (the master) writes mprofile_<YYYYmmddHHMMSS>.dat. Every other rank writes \
             <host>.dat, or <host>-rank<N>.dat if a host has several ranks. mprof reads these files, and heaptide plot *.dat \
             shows all nodes with their sum. COMPSS_WORKER_PROFILE_PATH or HEAPTIDE_OUT sets the folder.",
        )
        .override_usage("heaptide launch [OPTIONS] SCRIPT [ARGS]...")
        .arg(
            Arg::new("profile")
                .long("python_memory_profile")
                .visible_alias("python-memory-profile")
                .action(ArgAction::SetTrue)
                .help("record a timeline file for each rank"),
        )
        .arg(
            Arg::new("n")
                .short('n')
                .long("ranks")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=100_000))
                .default_value("1")
                .help("number of ranks"),
        )
        .arg(
            Arg::new("launcher")
                .long("launcher")
                .value_name("COMMAND")
                .help(
                    "command that starts the ranks, with its options; local for plain processes [default: mpirun or \
                     mpiexec if installed, else local]",
                ),
        )
        .arg(
            Arg::new("interval")
                .short('T')
                .long("interval")
                .value_name("SECONDS")
                .value_parser(super::record::interval)
                .help("time between two samples [default: 0.1]"),
        )
        .arg(
            Arg::new("command")
                .value_name("SCRIPT")
                .num_args(1..)
                .required(true)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .value_parser(value_parser!(OsString))
                .help("program and its arguments; run directly unless it ends in .py"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let n_ranks = matches.get_one::<u32>("n").copied().unwrap_or(1);
    let is_profiled = matches.get_flag("profile");
    let rank = rank_command(matches, is_profiled);
    let starts = match launcher(matches) {
        Some(launcher) => {
            let ranks = [OsString::from("-n"), n_ranks.to_string().into()];
            vec![Start {
                words: launcher.into_iter().chain(ranks).chain(rank).collect(),
                variables: Vec::new(),
            }]
        }
        None => local(n_ranks, &rank),
    };
    let folder = node::folder().unwrap_or_default();
    let older = timelines(&folder);
    let endings = run_all(&starts).map_err(|error| {
        message!("{error}");
        Failure::Ended(error.exit_code())
    })?;
    // A launcher that fails leaves no timelines. A rank never overwrites one.
    if is_profiled && !timelines(&folder).is_subset(&older) {
        message!("view it with: heaptide plot {}", all_timelines(&folder));
    }
    let codes = endings.iter().map(|ending| match ending {
        Ending::Exit(code) => *code,
        Ending::Signal(signal) => 128 + signal,
        Ending::Unknown | Ending::StillRunning => 0,
    });
    match codes.into_iter().find(|code| *code != 0) {
        Some(code) => Err(Failure::Ended(code)),
        None => Ok(()),
    }
}

/// Returns the command that each rank runs.
fn rank_command(matches: &ArgMatches, is_profiled: bool) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    if is_profiled {
        words.extend(reinvoke::command(NAME));
        words.extend(["record", "--quiet", "--node"].map(OsString::from));
        if let Some(interval) = matches.get_one::<f64>("interval") {
            words.extend(["-T".into(), interval.to_string().into()]);
        }
        words.push("--".into());
    }
    let program: Vec<OsString> = matches
        .get_many::<OsString>("command")
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    if program
        .first()
        .is_some_and(|first| first.to_string_lossy().ends_with(".py"))
    {
        words.push(reinvoke::interpreter(NAME));
    }
    words.extend(program);
    words
}

/// Returns the words of the launcher; `None` for plain processes.
fn launcher(matches: &ArgMatches) -> Option<Vec<OsString>> {
    match matches.get_one::<String>("launcher").map(String::as_str) {
        Some(LOCAL) => None,
        Some(text) => {
            let mut words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
            // A launcher installed beside the interpreter may not be on PATH.
            if let Some(path) = words.first().and_then(|first| find_executable(first)) {
                words[0] = path.into();
            }
            Some(words)
        }
        None => LAUNCHERS
            .iter()
            .find_map(|name| find_executable(OsStr::new(name)))
            .map(|path| vec![path.into()]),
    }
}

/// Finds an executable on PATH or beside the interpreter.
fn find_executable(name: &OsStr) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return None;
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let beside = PathBuf::from(reinvoke::interpreter(NAME))
        .parent()
        .map(Path::to_owned);
    let folders = std::env::split_paths(&paths).chain(beside.filter(|folder| folder.is_absolute()));
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn local(n_ranks: u32, rank: &[OsString]) -> Vec<Start> {
    let run = run_name();
    let start = |number: u32| Start {
        words: rank.to_vec(),
        variables: vec![
            ("HEAPTIDE_RANK", number.to_string().into()),
            ("HEAPTIDE_RUN", run.clone()),
            ("HEAPTIDE_SIZE", n_ranks.to_string().into()),
            ("HEAPTIDE_LOCAL_SIZE", n_ranks.to_string().into()),
        ],
    };
    (0..n_ranks).map(start).collect()
}

/// Returns the name of the run that all ranks share: the user's choice, or a name derived from this process.
fn run_name() -> OsString {
    let chosen = ["HEAPTIDE_RUN", "HEAPTIDE_GROUP"].into_iter();
    let chosen = chosen
        .filter_map(std::env::var_os)
        .find(|name| !name.is_empty());
    chosen.unwrap_or_else(|| {
        let (host, pid) = (heaptide_procfs::host_name(), std::process::id());
        // Process IDs are reused: with the start time, the name is unique on its host.
        let start = heaptide_procfs::process_facts().pop().map(|fact| fact.1);
        let start = start.unwrap_or_default().replace(['.', 's'], "");
        format!("launch-{host}~{pid}~{start}").into()
    })
}

/// Returns the timeline files in a folder.
fn timelines(folder: &Path) -> HashSet<PathBuf> {
    let entries = std::fs::read_dir(Path::new(".").join(folder));
    let files = entries.into_iter().flatten().flatten();
    files
        .map(|entry| entry.path())
        .filter(|file| file.extension().is_some_and(|ending| ending == "dat"))
        .collect()
}

/// Returns a shell pattern for all timelines. The star must be outside of quotes.
fn all_timelines(folder: &Path) -> String {
    let folder = folder.display().to_string();
    match &folder[..] {
        "" => "*.dat".into(),
        plain if !plain.contains(' ') => format!("{plain}/*.dat"),
        spaced => format!("{}/*.dat", shell::quote(spaced)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_for_the_shell_is_outside_of_quotes() {
        assert_eq!(all_timelines(Path::new("")), "*.dat");
        assert_eq!(all_timelines(Path::new("/srv/out")), "/srv/out/*.dat");
        assert_eq!(all_timelines(Path::new("/my out")), "'/my out'/*.dat");
    }
}
