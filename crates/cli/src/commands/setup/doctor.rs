//! `heaptide doctor`: checks whether Heaptide can work here. The caller, which has an interpreter, does the checks.

use clap::{ArgMatches, Command};

use crate::Outcome;
use crate::exit::Failure;
use crate::invocation::command_line::CommandLine;

pub(crate) fn arguments() -> Command {
    Command::new("doctor")
        .about("Check whether Heaptide can work here")
        .after_help(
            "Checks the interpreter, the versions, the permission to attach, the memory limit, the settings and this folder.\n\
             Exit codes: 0 everything works, 1 something needs attention.",
        )
}

pub(crate) fn run(_matches: &ArgMatches, _line: CommandLine) -> Result<Outcome, Failure> {
    Ok(Outcome::Doctor)
}
