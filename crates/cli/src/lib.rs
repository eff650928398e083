//! The `heaptide` command: arguments, printing, exit codes. The only crate that prints or exits.
//!
//! [`main`] does everything except running Python: `heaptide run` comes back as a [`RunPlan`] for whoever has an
//! interpreter. In reading order: [`commands`] has one file for each subcommand, `input` opens captures for them,
//! `output` is where they write, [`terminal`] what they show to people in front of one, [`exit`] what they return.
#![forbid(unsafe_code)]

mod arguments;
mod command_line;
mod command_schema;
mod commands;
mod control_client;
mod destination;
mod exit;
mod filters;
mod input;
mod live;
mod metrics;
mod output;
mod page;
mod progress;
mod reinvoke;
mod report_options;
mod run_summary;
mod running_processes;
mod sizes;
mod terminal;
mod timeline_file;
mod timelines;

use std::ffi::OsString;

use clap::Command;
use clap::error::ErrorKind;

use command_line::CommandLine;

pub use command_line::Target;
pub use command_schema::{CommandOption, command_options};
pub use commands::lines::LinesPlan;
pub use commands::run::RunPlan;
pub use commands::serve::ServePlan;
pub use commands::worker::WorkerPlan;
pub use live::runner::LivePlan;
pub use report_options::check_report_options;
pub use run_summary::run_summary;

/// What is left to do after the command line was understood.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing: leave with this code.
    Exit(i32),
    /// Run a program and record it.
    Run(RunPlan),
    /// Run a program and watch its functions line by line.
    Lines(LinesPlan),
    /// Run a program as a child of this process and show what it holds: for [`run_live`].
    Live(LivePlan),
    /// Serve a job.
    Serve(ServePlan),
    /// Run a job many times.
    Worker(WorkerPlan),
}

const ABOUT: &str = "A memory profiler for Python jobs: every allocation, at almost no cost";

const LONG_ABOUT: &str = "\
A memory profiler for Python jobs: every allocation, at almost no cost.

It answers four questions:
  where was memory allocated?   by call stack, at the peak and still alive: stats, tree, flamegraph
  when did it grow?             memory of every process over time: record, plot, timeline
  what is it?                   every Python object by type, and what it alone keeps alive: heap types
  why is it still here?         what looks like a leak, who holds it, and by which way: heap suspects, heap paths";

const EXAMPLES: &str = "\
Examples:
  heaptide run job.py --its-own --options      record a program, from its first line to its last
  heaptide run --sample -m package.worker      record a service all day, at next to no cost
  heaptide stats heaptide-job.py.4711.tide     look at what was recorded; then summary and tree
  heaptide lines job.py                        memory of its @profile functions, line by line
  heaptide attach 4711                         record a process that runs already; detach leaves it as it was
  heaptide heap take --pid 4711 -o job.heap    write down its objects; then heap types, suspects and paths

`heaptide COMMAND --help` says more about each command.";

fn command() -> Command {
    let command = Command::new("heaptide")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true);
    commands::ALL.iter().fold(command, |command, subcommand| {
        command.subcommand((subcommand.arguments)())
    })
}

/// Understands and does what the arguments say. The first argument is the program's name.
pub fn main(arguments: impl Iterator<Item = OsString>) -> Outcome {
    let mut command = command();
    let line = CommandLine::split(arguments.collect(), &command);
    let matches = match command.try_get_matches_from_mut(&line.own) {
        Ok(matches) => matches,
        Err(error) => return explain(&error),
    };
    let Some((name, matches)) = matches.subcommand() else {
        return Outcome::Exit(exit::USAGE);
    };
    let subcommand = commands::ALL.iter().find(|known| known.name == name);
    match subcommand.map(|known| (known.run)(matches, line)) {
        Some(Ok(outcome)) => outcome,
        Some(Err(failure)) => failure.report(),
        None => Outcome::Exit(exit::USAGE),
    }
}

/// Runs a program and shows it while it runs. `python` are the words that start this command in an interpreter of its
/// own. Returns the exit code.
pub fn run_live(plan: &LivePlan, python: &[OsString]) -> i32 {
    match live::runner::run(plan, python) {
        Ok(code) => code,
        Err(failure) => match failure.report() {
            Outcome::Exit(code) => code,
            _ => exit::FAILED,
        },
    }
}

/// Help and version are what was asked for; anything else is a mistake in the arguments.
fn explain(error: &clap::Error) -> Outcome {
    // A reader that went away does not need to be told.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Outcome::Exit(exit::OK),
        _ => Outcome::Exit(exit::USAGE),
    }
}
