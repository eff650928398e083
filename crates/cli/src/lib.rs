//! The `heaptide` command: arguments, printing, exit codes. Of the crates that run outside the profiled process, only
//! this one prints messages and chooses exit codes.
//!
//! [`main`] does everything except running Python: `heaptide run` returns a [`RunPlan`] for the caller, which has an
//! interpreter. In reading order: `invocation` splits the arguments, `commands` has the subcommands, `options` their
//! common options. `input` opens captures, `output` writes reports, `control` and `live` connect to running programs.
//! `terminal` has the interactive views, `exit` the exit codes.
#![forbid(unsafe_code)]
// `messages` escapes control characters; these macros would not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod commands;
mod control;
mod exit;
mod input;
mod invocation;
mod live;
mod messages;
mod options;
mod output;
mod terminal;

use std::ffi::OsString;

use clap::{Arg, Command};

use invocation::command_line::CommandLine;
use invocation::{examples, fit, help};
use options::layout;
use output::color;

pub use commands::job_control::serve::ServePlan;
pub use commands::job_control::worker::WorkerPlan;
pub use commands::recording::lines::LinesPlan;
pub use commands::recording::run::RunPlan;
pub use invocation::command_line::Target;
pub use invocation::command_schema::{CommandOption, command_options};
pub use live::runner::LivePlan;
pub use options::report_options::check_report_options;
pub use output::run_summary::run_summary;

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
    /// Check whether Heaptide can work here.
    Doctor,
}

fn command() -> Command {
    let command = help::root();
    let command = commands::all().fold(command, |command, subcommand| {
        command.subcommand(declared(subcommand))
    });
    with_dashes(command)
}

fn declared(subcommand: &commands::Subcommand) -> Command {
    examples::add(subcommand.name, (subcommand.arguments)())
}

/// Accepts a dash for each underscore in the names of options.
fn with_dashes(command: Command) -> Command {
    let has_underscore =
        |argument: &Arg| argument.get_long().is_some_and(|long| long.contains('_'));
    let command = command.mut_subcommands(with_dashes);
    // Most commands have no such option. Rebuilding all their options would slow down the start of every command.
    if !command.get_arguments().any(has_underscore) {
        return command;
    }
    command.mut_args(|argument| {
        let dashed = argument.get_long().map(|long| long.replace('_', "-"));
        let is_new = |name: &String| {
            let aliases = argument.get_all_aliases().unwrap_or_default();
            Some(name.as_str()) != argument.get_long() && !aliases.contains(&name.as_str())
        };
        match dashed.filter(is_new) {
            Some(name) => argument.alias(name),
            None => argument,
        }
    })
}

/// Returns the command with all subcommands, or with `run` alone if `name` is `run`: declaring them all noticeably
/// delays the start of a recorded program.
fn command_for(name: Option<&OsString>) -> Command {
    let is_run = |known: &&commands::Subcommand| known.name == "run";
    match commands::all().find(is_run) {
        Some(run) if name.is_some_and(|name| name == run.name) => {
            with_dashes(help::root().subcommand(declared(run)))
        }
        _ => command(),
    }
}

/// Parses the arguments and runs the command. The first argument is the name of the executable.
pub fn main(arguments: impl Iterator<Item = OsString>) -> Outcome {
    let mut arguments: Vec<OsString> = arguments.collect();
    // memray accepts this option before the name of a command. Heaptide ignores it.
    let is_verbose = |word: &OsString| word == "-v" || word == "-vv" || word == "--verbose";
    while arguments.get(1).is_some_and(is_verbose) {
        arguments.remove(1);
    }
    let mut command = fit::fitted(command_for(arguments.get(1)));
    let line = CommandLine::split(arguments, &command);
    let matches = match command.try_get_matches_from_mut(&line.own) {
        Ok(matches) => matches,
        Err(error) => return help::explain(&error),
    };
    let Some((name, matches)) = matches.subcommand() else {
        return Outcome::Exit(exit::USAGE);
    };
    color::choose(matches);
    layout::choose(matches);
    let subcommand = commands::all().find(|known| known.name == name);
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
