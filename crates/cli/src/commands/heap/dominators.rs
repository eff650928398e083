//! `heaptide heap dominators`: the dominator tree.

use clap::{Arg, ArgMatches, Command, value_parser};
use heaptide_analysis::heap::tree::{TreeLimits, branches};
use heaptide_report::json;
use heaptide_report::text::heap as text;

use super::{file_argument, json_argument, n_rows, open, rows_argument, selection};
use crate::exit::Failure;
use crate::output::{self, Output};

pub(super) fn arguments() -> Command {
    Command::new("dominators")
        .about("Show the dominator tree by retained size")
        .long_about(
            "Show the dominator tree by retained size.\n\n\
             An object is below another if every path from a root to it passes through the other: freeing the other frees it. An \
             object with several independent referrers is below their common dominator, or at the top.",
        )
        .args(selection::arguments())
        .arg(
            Arg::new("depth")
                .long("depth")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=1000))
                .default_value("8")
                .help("maximum depth"),
        )
        .arg(
            Arg::new("min_share")
                .long("min-percent")
                .value_name("PERCENT")
                .value_parser(value_parser!(f64))
                .default_value("1")
                .help("hide objects that retain less than this share of the heap"),
        )
        .arg(rows_argument("8"))
        .arg(json_argument())
        .args(output::arguments())
        .arg(file_argument())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    Output::check(matches)?;
    let heap = open(matches)?;
    let percent = matches.get_one::<f64>("min_share").copied().unwrap_or(1.0);
    if !(0.0..=100.0).contains(&percent) {
        return Err(Failure::Usage(format!(
            "--min-percent {percent} is not a percentage: use a number from 0 to 100"
        )));
    }
    let width = n_rows(matches);
    let limits = TreeLimits {
        depth: matches.get_one::<u32>("depth").copied().unwrap_or(8),
        width: if width == 0 { usize::MAX } else { width },
        min_share: percent / 100.0,
    };
    let branches = if selection::is_given(matches) {
        let objects = selection::objects(&heap, matches)?;
        let mut largest: Vec<u32> = objects.iter().collect();
        largest
            .sort_by_key(|&object| (std::cmp::Reverse(heap.retained()[object as usize]), object));
        let tops = largest.into_iter().take(limits.width);
        tops.flat_map(|top| branches(&heap, Some(top), limits))
            .collect()
    } else {
        branches(&heap, None, limits)
    };
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if matches.get_flag("json") {
            json::write(out, &json::heap::dominators(&heap, &branches))
        } else {
            text::dominators(out, &heap, &branches)
        }
    })?;
    output.finish()
}
