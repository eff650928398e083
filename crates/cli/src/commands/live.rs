//! `heaptide live`: what a running program holds, now.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_analysis::model::live::LiveOrder;
use heaptide_procfs as procfs;
use heaptide_report::text::live::{Options, live};

use crate::exit::Failure;
use crate::live::{Feed, connect, find};
use crate::output::Output;
use crate::terminal::{self, Paint};

pub(crate) const NAME: &str = "live";

/// Without a terminal: how long to wait for the first numbers of a large capture, or of a program that just begins.
const PATIENCE: Duration = Duration::from_secs(600);

const HELP: &str = "\
What to watch:
  heaptide live                 the one program on this machine that is being recorded
  heaptide live 40613           a program under `heaptide run --live-remote`, which said this port
  heaptide live --pid 4711      any process that records, whatever started it
  heaptide live job.tide        a capture that is being written
  heaptide live -- job.py x     runs job.py, as `heaptide run --live job.py x` does

Keys:
  t, o, a                       sort by total memory, own memory, number of blocks
  <, >, m                       one thread after the other, all of them
  /                             search functions and files; Enter keeps it, Esc drops it
  space                         pause and go on; the program does not notice either
  p                             what the program prints, if it was started here
  q                             leave

The program never waits for who watches. Without a terminal, or with --plain, the numbers of this moment are printed.";

pub(crate) fn arguments() -> Command {
    Command::new(NAME)
        .about("Watch a running program: what it holds now, by function, and its memory over time")
        .override_usage("heaptide live [PORT | FILE | --pid PID | -- SCRIPT [ARGS]...]")
        .after_help(HELP)
        .arg(
            Arg::new("what")
                .value_name("PORT|FILE")
                .conflicts_with("pid")
                .help("a port that `heaptide run --live-remote` said, or a capture that is being written"),
        )
        .arg(
            Arg::new("pid")
                .long("pid")
                .value_name("PID")
                .value_parser(value_parser!(u32).range(1..))
                .help("a process that is being recorded"),
        )
        .arg(
            Arg::new("plain")
                .long("plain")
                .action(ArgAction::SetTrue)
                .help("print the numbers of this moment as text, on a terminal too"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let feed = feed(matches)?;
    if !matches.get_flag("plain") && terminal::is_possible() {
        terminal::show_live(&feed, None, Paint::of_environment())?.obey();
        return Ok(());
    }
    print(&feed)
}

fn feed(matches: &ArgMatches) -> Result<Feed, Failure> {
    if let Some(&pid) = matches.get_one::<u32>("pid") {
        return Ok(follow(&find::capture_of(pid)?));
    }
    match matches.get_one::<String>("what") {
        None => Ok(follow(&find::capture_of(the_only_one()?)?)),
        Some(what) if what.bytes().all(|byte| byte.is_ascii_digit()) => {
            match what.parse().ok().filter(|&port| port > 0) {
                Some(port) => connect::connect(port),
                None => Err(Failure::Usage(format!(
                    "{what} is not a port, which is a number from 1 to 65535: use the one that `heaptide run --live-remote` said"
                ))),
            }
        }
        Some(path) => Ok(follow(&PathBuf::from(path))),
    }
}

fn follow(path: &Path) -> Feed {
    Feed::follow(path, None, |pid| !procfs::is_running(pid))
}

fn the_only_one() -> Result<u32, Failure> {
    let found = find::recording();
    match found[..] {
        [pid] => Ok(pid),
        [] => Err(Failure::failed(
            "nothing is being recorded on this machine: start a program with `heaptide run`, or name a port",
        )),
        _ => {
            let pids: Vec<String> = found.iter().map(u32::to_string).collect();
            Err(Failure::failed(format!(
                "several processes are being recorded: choose one with --pid ({})",
                pids.join(", ")
            )))
        }
    }
}

fn print(feed: &Feed) -> Result<(), Failure> {
    let update = feed.wait_newer(0, PATIENCE);
    let Some(now) = update.live else {
        let nothing = "the program has not recorded anything yet: try again in a moment";
        return Err(Failure::failed(
            update.failure.unwrap_or_else(|| nothing.into()),
        ));
    };
    let mut output = Output::standard();
    let (columns, _) = output.size();
    let options = Options {
        order: LiveOrder::Total,
        max_rows: None,
        max_width: columns,
        style: output.style(),
    };
    output.write(|out| live(out, &now, &options))?;
    output.finish()
}
