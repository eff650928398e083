//! Which blocks a report is about: at the peak, unless one of these is said.

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use heaptide_analysis::Measure;

const HEADING: &str = "What is shown";
/// As memray has it.
const USUAL_THRESHOLD: u32 = 1;

pub(crate) fn arguments() -> Vec<Arg> {
    let flag = |name: &'static str, long: &'static str| {
        Arg::new(name)
            .long(long)
            .action(ArgAction::SetTrue)
            .help_heading(HEADING)
    };
    let others = ["total", "temporary", "temporary_threshold"];
    vec![
        flag("leaks", "leaks")
            .conflicts_with_all(others)
            .help("what was alive at the end, instead of at the peak"),
        flag("total", "total")
            .conflicts_with_all(["temporary", "temporary_threshold"])
            .help("everything that was ever allocated"),
        flag("temporary", "temporary-allocations")
            .conflicts_with("temporary_threshold")
            .help("what was released at once: churn that costs time, not memory"),
        Arg::new("temporary_threshold")
            .long("temporary-allocation-threshold")
            .value_name("N")
            .value_parser(value_parser!(u32).range(0..=65_535))
            .help_heading(HEADING)
            .help("the same: released by its thread after at most N other allocations"),
    ]
}

pub(crate) fn measure(matches: &ArgMatches) -> Measure {
    let is_said = |name: &str| matches!(matches.try_get_one(name), Ok(Some(true)));
    let has_threshold = matches!(
        matches.try_get_one::<u32>("temporary_threshold"),
        Ok(Some(_))
    );
    if is_said("leaks") {
        Measure::Leaked
    } else if is_said("total") {
        Measure::Total
    } else if is_said("temporary") || has_threshold {
        Measure::Temporary
    } else {
        Measure::Peak
    }
}

/// Within how many other allocations a block has to be released to be temporary.
pub(crate) fn temporary_threshold(matches: &ArgMatches) -> u32 {
    let said = matches.try_get_one::<u32>("temporary_threshold");
    said.ok().flatten().copied().unwrap_or(USUAL_THRESHOLD)
}
