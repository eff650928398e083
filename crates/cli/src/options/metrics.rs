//! The options that select the blocks of a report: by default, those at the peak.

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use heaptide_analysis::Measure;

const HEADING: &str = "Blocks";
/// As in memray.
const DEFAULT_THRESHOLD: u32 = 1;

fn flag(name: &'static str, long: &'static str) -> Arg {
    Arg::new(name)
        .long(long)
        .action(ArgAction::SetTrue)
        .help_heading(HEADING)
}

/// `--leaks`, for commands without the other measures.
pub(crate) fn leaks() -> Arg {
    flag("leaks", "leaks").help("leaked blocks (alive at the end) instead of the peak")
}

pub(crate) fn arguments() -> Vec<Arg> {
    let others = ["total", "temporary", "temporary_threshold"];
    vec![
        leaks().conflicts_with_all(others),
        flag("total", "total")
            .conflicts_with_all(["temporary", "temporary_threshold"])
            .help("all allocated blocks"),
        flag("temporary", "temporary-allocations")
            .conflicts_with("temporary_threshold")
            .help("temporary blocks, freed soon after allocation"),
        Arg::new("temporary_threshold")
            .long("temporary-allocation-threshold")
            .value_name("N")
            .value_parser(value_parser!(u32).range(0..=65_535))
            .help_heading(HEADING)
            .help("temporary blocks, freed by their thread after at most N other allocations"),
    ]
}

pub(crate) fn measure(matches: &ArgMatches) -> Measure {
    let is_given = |name: &str| matches!(matches.try_get_one(name), Ok(Some(true)));
    let has_threshold = matches!(
        matches.try_get_one::<u32>("temporary_threshold"),
        Ok(Some(_))
    );
    if is_given("leaks") {
        Measure::Leaked
    } else if is_given("total") {
        Measure::Total
    } else if is_given("temporary") || has_threshold {
        Measure::Temporary
    } else {
        Measure::Peak
    }
}

/// Returns the maximum number of other allocations during the life of a temporary block.
pub(crate) fn temporary_threshold(matches: &ArgMatches) -> u32 {
    let given = matches.try_get_one::<u32>("temporary_threshold");
    given.ok().flatten().copied().unwrap_or(DEFAULT_THRESHOLD)
}
