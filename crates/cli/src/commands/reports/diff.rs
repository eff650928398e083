//! `heaptide diff`: compares two recordings as text, JSON or a page, and can fail in CI.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Arg, ArgGroup, ArgMatches, Command, value_parser};
use heaptide_analysis::Measure;
use heaptide_analysis::model::Diff;
use heaptide_analysis::{Comparison, Request, Session};
use heaptide_report::json::flame::{FirstView, Sides};
use heaptide_report::{html, json, text, units};

use super::pages::{limits, no_source};
use crate::exit::Failure;
use crate::input::{self, folders};
use crate::options::arguments::{self, flag, n_largest, num_largest};
use crate::options::filters;
use crate::options::sizes;
use crate::output;
use crate::output::destination::Destination;

pub(crate) fn arguments() -> Command {
    let side = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .num_args(1..)
            .value_parser(value_parser!(PathBuf))
            .conflicts_with("sides")
            .help(help)
    };
    Command::new("diff")
        .about("Compare two recordings by call stack")
        .long_about(
            "Compare two recordings by call stack.\n\n\
             Two stacks are equal if they have the same functions in the same files, regardless of the installation folder. \
             Lines of a function are merged, because edits move them; --by-line separates them. If a side was sampled, changes \
             below the sampling noise (95%) are not listed, and --fail-above only counts growth above it.",
        )
        .after_help(
            "Exit codes: 0 success; 1 growth above --fail-above, or no report possible (see standard error); 2 invalid \
             arguments; 3 nothing passes the filters; 4 --fail-above cannot judge, because the modes differ or a capture is \
             incomplete.\n\n\
             Examples:\n  \
             heaptide diff monday.tide tuesday.tide\n  \
             heaptide diff --leaks --html monday.tide tuesday.tide\n  \
             heaptide diff --before old/*.tide --after new/*.tide\n  \
             heaptide diff --fail-above 5% main.tide branch.tide",
        )
        .arg(
            Arg::new("sides")
                .value_name("FILE")
                .num_args(2)
                .value_names(["BEFORE", "AFTER"])
                .value_parser(value_parser!(PathBuf))
                .required_unless_present_all(["before", "after"])
                .help("the two captures, or folders with captures"),
        )
        .arg(side("before", "captures of the earlier side: processes of one run").requires("after"))
        .arg(side("after", "captures of the later side").requires("before"))
        .arg(flag("leaks", "compare leaked memory instead of the peak"))
        .arg(flag("total", "compare all allocations").conflicts_with("leaks"))
        .arg(flag("by-line", "separate the lines of a function"))
        .arg(num_largest("20", "number of stacks"))
        .arg(
            Arg::new("fail_above")
                .long("fail-above")
                .value_name("SIZE|PERCENT")
                .value_parser(Allowance::parse)
                .help("exit with 1 if the total grew by more, for example 20MB or 5%"),
        )
        .arg(arguments::json())
        .arg(
            arguments::html(
                "make a page with a flame graph and a table [default file: heaptide-diff-AFTER.html]",
            )
            .require_equals(true),
        )
        .group(ArgGroup::new("format").args(["json", "html"]))
        .arg(no_source())
        .args(filters::arguments())
        .arg(filters::by_job())
        .args(output::arguments())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let measure = if matches.get_flag("leaks") {
        Measure::Leaked
    } else if matches.get_flag("total") {
        Measure::Total
    } else {
        Measure::Peak
    };
    let [before, after] = sides(matches)?;
    // A page is written beside the later capture; text is printed.
    let beside = after.first().filter(|_| arguments::asks_for_page(matches));
    let destination = Destination::choose(matches, beside, "diff", "html")?;
    let request = filters::request(matches);
    let (before, after) = (read(before, &request)?, read(after, &request)?);
    if measure == Measure::Total || request.filter.chooses_time() {
        input::check_totals(&before)?;
        input::check_totals(&after)?;
    }
    let comparison = Comparison::new(before, after);
    let diff = comparison.diff(measure, matches.get_flag("by-line"));
    write(matches, &destination, &comparison, &diff)?;
    match matches.get_one::<Allowance>("fail_above") {
        Some(allowance) => allowance.judge(&diff),
        None => Ok(()),
    }
}

fn write(
    matches: &ArgMatches,
    destination: &Destination,
    comparison: &Comparison,
    diff: &Diff,
) -> Result<(), Failure> {
    let n_rows = n_largest(matches);
    let mut output = if arguments::asks_for_page(matches) {
        destination.open()?
    } else {
        destination.open_text()?
    };
    let options = text::diff::Options {
        max_rows: n_rows,
        max_width: output.size().0,
        style: output.style(),
    };
    output.write(|out| {
        if matches.get_flag("json") {
            json::write(out, &json::diff(diff))
        } else if arguments::asks_for_page(matches) {
            page(out, matches, comparison, diff)
        } else {
            text::diff::diff(out, diff, &options)
        }
    })?;
    output.finish()
}

fn page(
    out: &mut dyn Write,
    matches: &ArgMatches,
    comparison: &Comparison,
    diff: &Diff,
) -> io::Result<()> {
    let first = FirstView {
        measure: diff.measure,
        by_line: diff.by_line,
        ..FirstView::default()
    };
    let sides = Sides {
        n_before: comparison.n_before(),
        diff,
    };
    let tree = comparison.flame_tree();
    html::diff_page(out, &tree, limits(matches), first, sides)
}

fn sides(matches: &ArgMatches) -> Result<[Vec<PathBuf>; 2], Failure> {
    let named = |name: &str| -> Vec<PathBuf> {
        let paths = matches.get_many::<PathBuf>(name);
        paths.into_iter().flatten().cloned().collect()
    };
    let sides = named("sides");
    let sides = match &sides[..] {
        [before, after] => [vec![before.clone()], vec![after.clone()]],
        _ => [named("before"), named("after")],
    };
    let [before, after] = sides.map(|paths| folders::captures(paths.iter()));
    Ok([before?, after?])
}

fn read(files: Vec<PathBuf>, request: &Request) -> Result<Session, Failure> {
    input::session_of(files.iter(), request.clone())
}

/// Returns an error if the recordings differ in more than the program: in their modes, or by missing events.
fn check_comparable(diff: &Diff) -> Result<(), Failure> {
    if !diff.has_equal_modes() {
        return Err(Failure::NotComparable(
            "--fail-above cannot judge captures of different modes: record both with the same options for objects and \
             sampling"
                .into(),
        ));
    }
    let processes = [&diff.before, &diff.after].map(|side| side.quality.processes.iter());
    let mut processes = processes.into_iter().flatten();
    match processes.find(|process| process.stopped.is_some()) {
        None => Ok(()),
        Some(process) => Err(Failure::NotComparable(format!(
            "--fail-above cannot judge {}, which is incomplete: record it again with enough disk space",
            process.path.display()
        ))),
    }
}

/// The allowed growth of the total.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Allowance {
    Bytes(u64),
    Percent(f64),
}

impl Allowance {
    fn parse(text: &str) -> Result<Allowance, String> {
        if text == "0" {
            return Ok(Allowance::Bytes(0));
        }
        let Some(number) = text.strip_suffix('%') else {
            return sizes::parse(text).map(Allowance::Bytes);
        };
        match number.trim().parse::<f64>() {
            Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(Allowance::Percent(percent)),
            _ => Err("a percentage is a number followed by %, for example 5% or 2.5%".into()),
        }
    }

    fn judge(self, diff: &Diff) -> Result<(), Failure> {
        check_comparable(diff)?;
        let change = diff.whole(diff.measure);
        let allowed = match self {
            Allowance::Bytes(bytes) => bytes as f64,
            Allowance::Percent(percent) => change.before.bytes as f64 * percent / 100.0,
        };
        if change.certain_growth() as f64 <= allowed {
            return Ok(());
        }
        let what = match diff.measure {
            Measure::Peak => "the peak",
            Measure::Leaked => "leaked memory",
            Measure::Total => "the total of allocations",
            Measure::Temporary => "temporary memory",
        };
        let noise = if change.error_bytes() > 0.0 {
            format!(
                ", of which {} exceed the sampling noise",
                units::size(change.certain_growth())
            )
        } else {
            String::new()
        };
        let limit = match self {
            Allowance::Bytes(bytes) => units::size(bytes),
            Allowance::Percent(percent) => format!("{percent}%"),
        };
        Err(Failure::failed(format!(
            "{what} grew by {} ({}){noise}, more than the {limit} of --fail-above: see the stacks that changed",
            units::size(change.bytes().unsigned_abs()),
            units::change_percent(change.before.bytes, change.bytes()),
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowance_is_a_size_or_a_percentage() {
        assert_eq!(Allowance::parse("20MB"), Ok(Allowance::Bytes(20_000_000)));
        assert_eq!(Allowance::parse("5%"), Ok(Allowance::Percent(5.0)));
        assert_eq!(Allowance::parse("0"), Ok(Allowance::Bytes(0)));
        assert_eq!(Allowance::parse("0%"), Ok(Allowance::Percent(0.0)));
        for text in ["", "%", "-5%", "nan%", "five", "5 percent"] {
            assert!(Allowance::parse(text).is_err(), "{text}");
        }
    }
}
