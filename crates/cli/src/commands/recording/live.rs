//! `heaptide live`: the live heap of a running program.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_analysis::model::live::{LiveChoice, LiveOrder};
use heaptide_procfs as procfs;
use heaptide_report::text::live::{Options, live};

use crate::exit::Failure;
use crate::live::{Feed, JobOptions, connect, find};
use crate::output::Output;
use crate::terminal::{self, Paint};

pub(crate) const NAME: &str = "live";

/// Without a terminal: the maximum wait for the first numbers of a large capture or a new program.
const TIMEOUT: Duration = Duration::from_secs(600);

const HELP: &str = "\
Programs to view:
  heaptide live                 the only program that is being recorded on this machine
  heaptide live 40613           a program that `heaptide run --live-remote` serves at this port
  heaptide live --pid 4711      any recorded process
  heaptide live job.tide        a capture that is being written
  heaptide live -- job.py x     the same as `heaptide run --live job.py x`

Keys:
  t, o, a                       sort by total memory, own memory, number of blocks
  <, >, m                       previous thread, next thread, all threads and jobs
  b                             list jobs instead of functions, and back
  [, ]                          previous job, next job
  /                             search functions and files; Enter keeps the search, Esc clears it
  space                         pause and resume the view
  p                             output of the program, if it was started here
  q                             quit

The program never waits for the viewer. Without a terminal, or with --plain, the current numbers are printed once.";

pub(crate) fn arguments() -> Command {
    Command::new(NAME)
        .about("Show the live heap of a running program by function")
        .override_usage(
            "heaptide live [OPTIONS] [PORT | FILE | --pid PID]\n       \
             heaptide live [OPTIONS] -- SCRIPT [ARGS]...",
        )
        .after_help(HELP)
        .arg(
            Arg::new("what")
                .value_name("PORT|FILE")
                .conflicts_with("pid")
                .help("port printed by `heaptide run --live-remote`, or a capture that is being written"),
        )
        .arg(
            Arg::new("pid")
                .long("pid")
                .value_name("PID")
                .value_parser(value_parser!(u32).range(1..))
                .help("process ID of a recorded process"),
        )
        .arg(
            Arg::new("plain")
                .long("plain")
                .action(ArgAction::SetTrue)
                .help("print the current numbers as text, even in a terminal"),
        )
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("GROUP")
                .value_parser(["function", "job"])
                .default_value("function")
                .hide_possible_values(true)
                .help("list functions or jobs: function, job"),
        )
        .arg(
            Arg::new("job")
                .long("job")
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .help("only memory of jobs with this name, with * and ?; repeatable"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let feed = feed(matches)?;
    let jobs = JobOptions {
        by_job: matches
            .get_one::<String>("by")
            .is_some_and(|by| by == "job"),
        patterns: matches
            .get_many("job")
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
    };
    if !matches.get_flag("plain") && terminal::is_possible() {
        terminal::show_live(&feed, None, jobs, Paint::of_environment())?.obey();
        return Ok(());
    }
    print(&feed, &jobs)
}

fn feed(matches: &ArgMatches) -> Result<Feed, Failure> {
    if let Some(&pid) = matches.get_one::<u32>("pid") {
        return Ok(follow(&find::capture_of(pid)?));
    }
    match matches.get_one::<String>("what") {
        None => Ok(follow(&find::capture_of(only_recorded_process()?)?)),
        Some(what) if what.bytes().all(|byte| byte.is_ascii_digit()) => {
            match what.parse().ok().filter(|&port| port > 0) {
                Some(port) => connect::connect(port),
                None => Err(Failure::Usage(format!(
                    "{what} is not a port from 1 to 65535: use the one that `heaptide run --live-remote` printed"
                ))),
            }
        }
        Some(path) => Ok(follow(&PathBuf::from(path))),
    }
}

fn follow(path: &Path) -> Feed {
    Feed::follow(path, None, |pid| !procfs::is_running(pid))
}

fn only_recorded_process() -> Result<u32, Failure> {
    let pids = find::recording();
    match pids[..] {
        [pid] => Ok(pid),
        [] => Err(Failure::failed(
            "no process is being recorded on this machine: start a program with `heaptide run`, or name a port",
        )),
        _ => {
            let list: Vec<String> = pids.iter().map(u32::to_string).collect();
            Err(Failure::failed(format!(
                "several processes are being recorded: choose one with --pid ({})",
                list.join(", ")
            )))
        }
    }
}

fn print(feed: &Feed, jobs: &JobOptions) -> Result<(), Failure> {
    let update = feed.wait_newer(0, TIMEOUT);
    let Some(now) = update.live else {
        let nothing = "the program has not recorded anything yet: try again in a moment";
        return Err(Failure::failed(
            update.failure.unwrap_or_else(|| nothing.into()),
        ));
    };
    let jobs_chosen = jobs.choose(&now);
    if jobs_chosen.as_ref().is_some_and(Vec::is_empty) {
        let names: Vec<&str> = now.jobs.iter().skip(1).map(|job| &*job.name).collect();
        return Err(Failure::no_match(match names[..] {
            [] => "the program has no jobs that run or hold memory; mark them with heaptide.job, or omit --job".to_owned(),
            _ => format!("no job matches: there are {}", names.join(", ")),
        }));
    }
    let mut output = Output::standard();
    let (columns, _) = output.size();
    let options = Options {
        order: LiveOrder::Total,
        by_job: jobs.by_job,
        choice: LiveChoice {
            thread: None,
            jobs: jobs_chosen,
        },
        max_rows: None,
        max_width: columns,
        style: output.style(),
    };
    output.write(|out| live(out, &now, &options))?;
    output.finish()
}
