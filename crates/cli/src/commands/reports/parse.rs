//! `heaptide parse`: prints every record of a capture as one line.

use clap::{ArgMatches, Command};
use heaptide_analysis::records;
use heaptide_report::text::records::record;

use crate::exit::Failure;
use crate::input;
use crate::options::filters;
use crate::output::Output;

pub(crate) fn arguments() -> Command {
    Command::new("parse")
        .about("Print every record of a capture in order")
        .args(filters::of_records())
        .arg(input::argument())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let mut output = Output::standard();
    let filter = filters::filter(matches);
    let captures = filter.choose_processes(input::open(matches)?);
    let captures = captures.map_err(Failure::no_match)?;
    filter.check_threads(&captures).map_err(Failure::no_match)?;
    let starts = captures
        .iter()
        .map(|capture| capture.header.started_unix_ns);
    let start = starts.min().unwrap_or(0);
    for capture in captures {
        let offset_ns = capture.header.started_unix_ns - start;
        let damage = records(&capture, &filter, offset_ns, &mut |line| {
            output.write(|out| record(out, &line))
        })?;
        input::report_damage(&capture.path, &damage);
    }
    output.finish()
}
