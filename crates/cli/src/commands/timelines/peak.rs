//! `heaptide peak`: the peak of a timeline and of each child process, in mprof's format.

use clap::{Arg, ArgMatches, Command};
use heaptide_analysis::timeline::{peak, peak_within};
use heaptide_report::units;

use crate::exit::Failure;
use crate::input::timelines;
use crate::output::Output;

pub(crate) fn arguments() -> Command {
    Command::new("peak")
        .about("Print the peak of a timeline and of its child processes")
        .arg(
            Arg::new("func")
                .long("func")
                .value_name("NAME")
                .help("peak during calls of this function, by name or end of name (load for job.load); NaN if never called"),
        )
        .arg(timelines::argument())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let mut output = Output::standard();
    for path in timelines::chosen(matches)? {
        let timeline = timelines::read(&path)?;
        let name = path.display();
        let of_all = match matches.get_one::<String>("func") {
            Some(function) => peak_within(&timeline, function),
            None => peak(&timeline.total),
        };
        output.write(|out| {
            let Some(of_all) = of_all else {
                return writeln!(out, "{name}\tNaN MiB");
            };
            writeln!(out, "{name}\t{:.3} MiB", units::mib(of_all.bytes))?;
            for child in timeline.children() {
                let Some(largest) = peak(&child.curve(timeline.header.backend)) else {
                    continue;
                };
                let (pid, size) = (child.pid, units::mib(largest.bytes));
                writeln!(out, "  Child {pid}\t\t\t{size:.3} MiB")?;
            }
            Ok(())
        })?;
    }
    output.finish()
}
