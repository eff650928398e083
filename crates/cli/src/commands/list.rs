//! `heaptide list`: the timelines of this folder, with the numbers that plot, peak and rm accept.

use clap::{ArgMatches, Command};

use crate::exit::Failure;
use crate::output::Output;
use crate::timelines::profiles;

pub(crate) fn arguments() -> Command {
    Command::new("list").about("List the timelines in this folder, oldest first")
}

pub(crate) fn run(_matches: &ArgMatches) -> Result<(), Failure> {
    let mut output = Output::standard();
    output.write(|out| {
        for (number, profile) in profiles().iter().enumerate() {
            let part = |from: usize, to: usize| profile.stamp.get(from..to).unwrap_or("");
            writeln!(
                out,
                "{number} {} {}:{}:{} {}/{}/{}",
                profile.path.display(),
                part(8, 10),
                part(10, 12),
                part(12, 14),
                part(6, 8),
                part(4, 6),
                part(0, 4)
            )?;
        }
        Ok(())
    })?;
    output.finish()
}
