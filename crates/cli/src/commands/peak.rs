//! `heaptide peak`: the largest size of a run and of each process it started, as mprof prints it.

use clap::{Arg, ArgMatches, Command};
use heaptide_analysis::timeline::{peak, peak_within};
use heaptide_report::units;

use crate::exit::Failure;
use crate::output::Output;
use crate::timelines;

pub(crate) fn arguments() -> Command {
    Command::new("peak")
        .about("Print the peak of a timeline, and of each process that the program started")
        .arg(
            Arg::new("func")
                .long("func")
                .value_name("NAME")
                .help("the peak while this function was being called, by its name or the end of it (load for job.load); NaN if it never was"),
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
