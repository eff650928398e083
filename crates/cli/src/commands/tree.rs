//! `heaptide tree`: who called whom on the way to each allocation.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_analysis::View;
use heaptide_analysis::aggregate::TreeLimits;
use heaptide_report::text::tree;

use crate::exit::Failure;
use crate::filters;
use crate::input;
use crate::output::Output;

pub fn arguments() -> Command {
    Command::new("tree")
        .about("Show the call tree of what was alive at the peak")
        .arg(
            Arg::new("biggest")
                .short('b')
                .long("biggest-allocs")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .default_value("200")
                .help("show the N stacks that hold most, and sum up the others"),
        )
        .arg(
            Arg::new("depth")
                .long("depth")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .help("go so many frames deep"),
        )
        .arg(
            Arg::new("threshold")
                .long("threshold")
                .value_name("PERCENT")
                .value_parser(percent)
                .default_value("0")
                .help("sum up calls that hold a smaller share of the whole"),
        )
        .arg(
            Arg::new("leaks")
                .long("leaks")
                .action(ArgAction::SetTrue)
                .help("show what was alive at the end instead"),
        )
        .args(filters::arguments())
        .arg(input::argument())
}

fn percent(text: &str) -> Result<f64, String> {
    let number: Result<f64, _> = text.trim_end_matches('%').parse();
    let is_share = |number: &f64| (0.0..=100.0).contains(number);
    number
        .ok()
        .filter(is_share)
        .ok_or("a share is a number from 0 to 100".into())
}

pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let session = input::session(matches)?;
    let view = if matches.get_flag("leaks") {
        View::Leaked
    } else {
        View::Peak
    };
    let limits = TreeLimits {
        n_biggest: matches
            .get_one::<u32>("biggest")
            .map_or(200, |&n| n as usize),
        max_depth: matches.get_one::<u32>("depth").map(|&n| n as usize),
        min_percent: matches.get_one::<f64>("threshold").copied().unwrap_or(0.0),
    };
    let answer = heaptide_analysis::tree(&session, view, limits);
    let mut output = Output::standard();
    let style = output.style();
    output.write(|out| tree::tree(out, &answer, style))?;
    output.finish()
}
