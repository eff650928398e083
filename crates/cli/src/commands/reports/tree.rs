//! `heaptide tree`: the call tree of allocations, interactive in a terminal, text otherwise.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_analysis::aggregate::{TreeLimits, TreeShape};
use heaptide_report::text::tree;

use crate::exit::Failure;
use crate::input;
use crate::options::filters;
use crate::options::metrics;
use crate::output::Output;
use crate::terminal::{self, Paint};

/// In a terminal users expand nodes one by one, so the tree can be larger than as text.
const N_BIGGEST_IN_TERMINAL: usize = 20_000;

const TERMINAL_HELP: &str = "\
Keys in a terminal:
  up, down           move; PgUp, PgDn, Home, End move further
  right, left        expand a call; collapse it or go to its caller; Enter toggles
  e, c               expand or collapse the whole subtree
  /                  search functions and files; n and N go to the next and the previous match
  s                  sort calls by size, by number of allocations, by name
  q                  quit

To a file or a pipe, or with --plain, the tree is printed as text.";

pub(crate) fn arguments() -> Command {
    Command::new("tree")
        .about("Show the call tree of the heap at the peak")
        .arg(
            Arg::new("biggest")
                .short('b')
                .long("biggest-allocs")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .default_value("200")
                .help("show the N largest stacks and sum up the others"),
        )
        .arg(
            Arg::new("depth")
                .long("depth")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .help("maximum depth in frames"),
        )
        .arg(
            Arg::new("threshold")
                .long("threshold")
                .value_name("PERCENT")
                .value_parser(percent)
                .default_value("0")
                .help("sum up calls below this share of the total"),
        )
        .arg(
            Arg::new("inverted")
                .long("inverted")
                .action(ArgAction::SetTrue)
                .help("show allocating functions at the root, callers below"),
        )
        .arg(
            Arg::new("by_function")
                .long("by-function")
                .action(ArgAction::SetTrue)
                .help("merge the lines of a function into one node"),
        )
        .args(metrics::arguments())
        .args(filters::arguments())
        .arg(filters::by_job())
        .arg(
            Arg::new("plain")
                .long("plain")
                .action(ArgAction::SetTrue)
                .help("print the tree as text, even in a terminal"),
        )
        .arg(input::argument())
        .after_help(TERMINAL_HELP)
}

fn percent(text: &str) -> Result<f64, String> {
    let number: Result<f64, _> = text.trim_end_matches('%').parse();
    let is_share = |number: &f64| (0.0..=100.0).contains(number);
    number
        .ok()
        .filter(is_share)
        .ok_or("must be a number from 0 to 100".into())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let session = input::session(matches)?;
    let measure = metrics::measure(matches);
    let is_interactive = !matches.get_flag("plain") && terminal::is_possible();
    let n_biggest = matches
        .get_one::<u32>("biggest")
        .map_or(200, |&n| n as usize);
    let is_given = matches.value_source("biggest") == Some(ValueSource::CommandLine);
    let shape = TreeShape {
        is_inverted: matches.get_flag("inverted"),
        by_function: matches.get_flag("by_function"),
    };
    let limits = TreeLimits {
        n_biggest: if is_interactive && !is_given {
            N_BIGGEST_IN_TERMINAL
        } else {
            n_biggest
        },
        max_depth: matches.get_one::<u32>("depth").map(|&n| n as usize),
        min_percent: matches.get_one::<f64>("threshold").copied().unwrap_or(0.0),
    };
    let answer = heaptide_analysis::tree(&session, measure, limits, shape);
    if is_interactive {
        terminal::show_tree(&answer, Paint::of_environment())?.obey();
        return Ok(());
    }
    let mut output = Output::standard();
    let style = output.style();
    output.write(|out| tree::tree(out, &answer, style))?;
    output.finish()
}
