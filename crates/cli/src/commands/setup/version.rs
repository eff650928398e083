//! `heaptide version`: the same line as `heaptide --version`.

use clap::{ArgMatches, Command};

use crate::exit::Failure;
use crate::messages::answer;

pub(crate) fn arguments() -> Command {
    Command::new("version").about("Print the version")
}

pub(crate) fn run(_matches: &ArgMatches) -> Result<(), Failure> {
    answer!("heaptide {}", env!("CARGO_PKG_VERSION"));
    Ok(())
}
