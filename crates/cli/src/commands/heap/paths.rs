//! `heaptide heap paths`: paths from roots to objects, or the referrers of objects by kind.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_analysis::heap::ObjectSet;
use heaptide_analysis::heap::pattern::{DEPTH, reference_pattern};
use heaptide_report::json;
use heaptide_report::text::heap::{self as text, More};

use super::{file_argument, json_argument, n_rows, open, recording, rows_argument, selection};
use crate::exit::Failure;
use crate::output::{self, Output};

pub(super) fn arguments() -> Command {
    Command::new("paths")
        .about("Show paths from roots to objects, or referrers by kind")
        .long_about(
            "Show paths from roots to objects, or referrers by kind.\n\n\
             A path is written as a Python expression: sys.modules['job'].__dict__['cache']['a']. References that only C code \
             can follow are shown after an arrow. If there are many objects, those nearest to a root are shown.",
        )
        .after_help(
            "Examples:\n  \
             heaptide heap paths job.heap --type job.Order\n  \
             heaptide heap paths job.heap --address 0x7f22b5318290 --long\n  \
             heaptide heap paths job.heap --type job.Order --pattern",
        )
        .args(selection::arguments())
        .arg(
            Arg::new("long")
                .short('l')
                .long("long")
                .action(ArgAction::SetTrue)
                .help("one line per object, with its retained size"),
        )
        .arg(
            Arg::new("pattern")
                .long("pattern")
                .action(ArgAction::SetTrue)
                .conflicts_with("long")
                .help("referrers by kind, and their referrers, as a tree"),
        )
        .arg(
            Arg::new("depth")
                .long("depth")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=50))
                .help("depth of --pattern [default: 7]"),
        )
        .arg(rows_argument("10"))
        .arg(json_argument())
        .args(output::arguments())
        .arg(recording::argument())
        .arg(file_argument())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    if !selection::is_given(matches) {
        return Err(Failure::Usage(
            "no objects selected: use --type, --address or --unreachable".into(),
        ));
    }
    Output::check(matches)?;
    let heap = open(matches)?;
    let objects = selection::objects(&heap, matches)?;
    let is_json = matches.get_flag("json");
    let n_rows = n_rows(matches);
    let mut output = Output::open(matches)?;
    if matches.get_flag("pattern") {
        let depth = matches.get_one::<u32>("depth");
        let depth = depth.map_or(DEPTH, |&depth| depth as usize);
        let rows = reference_pattern(&heap, &objects, depth, &ObjectSet::default());
        output.write(|out| {
            if is_json {
                json::write(out, &json::heap::pattern(&heap, &rows))
            } else {
                text::pattern(out, &heap, &rows, 0, n_rows, More::Option)
            }
        })?;
        return output.finish();
    }
    let max_paths = if n_rows == 0 { usize::MAX } else { n_rows };
    let shortest = heap.shortest_paths(&objects, max_paths);
    if shortest.paths.is_empty() {
        return Err(Failure::no_match(
            "no root reaches these objects, so the garbage collector will free them: --pattern shows their referrers",
        ));
    }
    output.write(|out| {
        if is_json {
            return json::write(out, &json::heap::paths(&heap, &shortest));
        }
        if !matches.get_flag("long") {
            return text::paths(out, &heap, &shortest);
        }
        for (at, path) in shortest.paths.iter().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            text::path(out, &heap, path)?;
        }
        Ok(())
    })?;
    output.finish()
}
