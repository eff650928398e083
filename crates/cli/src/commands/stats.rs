//! `heaptide stats`: totals, peak, sizes, and the largest allocation sites.

use clap::{Arg, ArgMatches, Command, value_parser};
use heaptide_analysis::Request;
use heaptide_report::{json, text};

use crate::arguments;
use crate::exit::Failure;
use crate::filters;
use crate::input;
use crate::output::{self, Output};

pub(crate) fn arguments() -> Command {
    Command::new("stats")
        .about("Show totals, peak, sizes, and the largest sites and modules")
        .arg(
            Arg::new("n_largest")
                .short('n')
                .long("num-largest")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .default_value("5")
                .help("number of sites and modules"),
        )
        .arg(arguments::json())
        .args(output::arguments())
        .args(filters::arguments())
        .arg(input::argument())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let n_largest = matches
        .get_one::<u32>("n_largest")
        .map_or(5, |&n| n as usize);
    Output::check(matches)?;
    let request = Request {
        lives: true,
        ..filters::request(matches)
    };
    let session = input::session_with(matches, request)?;
    let stats = heaptide_analysis::stats(&session, n_largest);
    let mut output = Output::open(matches)?;
    let style = output.style();
    output.write(|out| {
        if matches.get_flag("json") {
            json::write(out, &json::stats(&stats))
        } else {
            text::stats::stats(out, &stats, n_largest, style)
        }
    })?;
    output.finish()
}
