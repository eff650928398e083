//! The `heaptide` command: arguments, printing, exit codes. The only crate that prints or exits.
//!
//! [`main`] does everything except running Python: `heaptide run` returns a [`RunPlan`] for the caller, which has an
//! interpreter. In reading order: `command_line` splits the arguments, `commands` has one file for each subcommand, `input`
//! opens captures, `output` writes reports, `terminal` has the interactive views, `exit` the exit codes.
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
mod messages;
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
use std::io::{self, Write};

use clap::Command;
use clap::error::ErrorKind;
use heaptide_report::text::controls::escape;

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

/// The work that a command leaves to its caller.
#[derive(Debug)]
pub enum Outcome {
    /// None: exit with this code.
    Exit(i32),
    /// Run a program and record it.
    Run(RunPlan),
    /// Run a program and measure its decorated functions line by line.
    Lines(LinesPlan),
    /// Run a program as a child process and show its live heap, with [`run_live`].
    Live(LivePlan),
    /// Serve a job.
    Serve(ServePlan),
    /// Run a job repeatedly.
    Worker(WorkerPlan),
}

const ABOUT: &str = "Memory profiler for Python: every allocation at low cost";

const LONG_ABOUT: &str = "\
Memory profiler for Python: every allocation at low cost.

It answers four questions:
  where was memory allocated?   by call stack, at the peak or leaked: stats, tree, flamegraph
  when did it grow?             memory of every process over time: record, plot, timeline
  what is it?                   Python objects by type, with retained size: heap types
  why is it still alive?        leak suspects, and paths from roots to objects: heap suspects, heap paths";

const EXAMPLES: &str = "\
Examples:
  heaptide run job.py --its-own --options      record a program
  heaptide run --sample -m package.worker      record a service all day at low cost
  heaptide stats heaptide-job.py.4711.tide     summarize a capture; then summary and tree
  heaptide lines job.py                        memory of @profile functions, line by line
  heaptide attach 4711                         record a running process; heaptide detach stops it
  heaptide heap take --pid 4711 -o job.heap    take a heap snapshot; then heap types, suspects and paths

Run `heaptide COMMAND --help` for the options of a command.";

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

/// Parses the arguments and runs the command. The first argument is the name of the executable.
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

/// Runs a program and shows its live heap. `python` are the words that start this command in another interpreter. Returns
/// the exit code.
pub fn run_live(plan: &LivePlan, python: &[OsString]) -> i32 {
    match live::runner::run(plan, python) {
        Ok(code) => code,
        Err(failure) => match failure.report() {
            Outcome::Exit(code) => code,
            _ => exit::FAILED,
        },
    }
}

/// Prints a parse error. Help and version succeed; anything else is invalid usage.
fn explain(error: &clap::Error) -> Outcome {
    let text = error.render().to_string();
    let text = escape(&text);
    // A closed output is not an error.
    let _ = if error.use_stderr() {
        io::stderr().write_all(text.as_bytes())
    } else {
        io::stdout().write_all(text.as_bytes())
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Outcome::Exit(exit::OK),
        _ => Outcome::Exit(exit::USAGE),
    }
}
