//! `heaptide heap graph`: a drawing of objects and their referrers.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_analysis::heap::picture::{Picture, PictureLimits, Role, path, surroundings};
use heaptide_analysis::heap::{Heap, examples};
use heaptide_report::{heap_export, object_graph, units};

use super::{file_argument, open, selection};
use crate::exit::Failure;
use crate::options::arguments;
use crate::output::Output;

pub(super) fn arguments() -> Command {
    Command::new("graph")
        .about("Draw objects and their referrers as SVG, page or dot")
        .long_about(
            "Draw objects and their referrers as SVG, page or dot.\n\n\
             The file extension selects the format; no other program is needed. Of a kind with many objects, a few examples are \
             drawn. Referrers are above the objects they refer to; the search ends at modules.",
        )
        .after_help(
            "Examples:\n  \
             heaptide heap graph job.heap --type job.Order -o orders.svg\n  \
             heaptide heap graph job.heap --type job.Order --path -o path.html",
        )
        .args(selection::arguments())
        .arg(
            Arg::new("path")
                .long("path")
                .alias("way")
                .action(ArgAction::SetTrue)
                .help("only the shortest path from a root to the first object"),
        )
        .arg(
            Arg::new("forward")
                .long("forward")
                .action(ArgAction::SetTrue)
                .conflicts_with("path")
                .help("referents instead of referrers"),
        )
        .arg(number("examples", "3", "number of objects to start from"))
        .arg(number("depth", "4", "maximum distance from these objects"))
        .arg(number("too-many", "8", "maximum number of neighbours per object"))
        .arg(arguments::output(".svg, .html or .dot file [default: print dot]"))
        .arg(arguments::force("overwrite an existing file"))
        .arg(file_argument())
}

fn number(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("N")
        .value_parser(value_parser!(u32).range(1..=1000))
        .default_value(default)
        .help(help)
}

#[derive(Clone, Copy)]
enum Format {
    Svg,
    Page,
    Dot,
}

fn format(path: Option<&PathBuf>) -> Result<Format, Failure> {
    let Some(path) = path else {
        return Ok(Format::Dot);
    };
    let ending = Path::new(path)
        .extension()
        .and_then(|ending| ending.to_str());
    match ending {
        Some("svg") => Ok(Format::Svg),
        Some("html" | "htm") => Ok(Format::Page),
        Some("dot" | "gv") => Ok(Format::Dot),
        _ => Err(Failure::Usage(format!(
            "{} has an unknown extension: use .svg, .html or .dot",
            path.display()
        ))),
    }
}

/// Returns the title of a page.
fn title(heap: &Heap, picture: &Picture, n_objects: usize) -> String {
    let starts = picture.boxes.iter().filter(|one| one.role == Role::Start);
    let mut kinds: Vec<&str> = starts
        .clone()
        .filter_map(|one| one.object.map(|object| heap.kind(object)))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kind = match kinds.as_slice() {
        [kind] => format!(" of type {kind}"),
        _ => String::new(),
    };
    format!(
        "{} of {} objects{kind}",
        starts.count(),
        units::count(n_objects as u64)
    )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    if !selection::is_given(matches) {
        return Err(Failure::Usage(
            "no objects selected: use --type, --address or --unreachable".into(),
        ));
    }
    let format = format(matches.get_one::<PathBuf>("output"))?;
    Output::check(matches)?;
    let heap = open(matches)?;
    let objects = selection::objects(&heap, matches)?;
    let given = |name: &str| matches.get_one::<u32>(name).copied().unwrap_or(1);
    let limits = PictureLimits {
        depth: given("depth"),
        too_many: given("too-many") as usize,
        forward: matches.get_flag("forward"),
        ..PictureLimits::default()
    };
    let starts = examples(&heap, &objects, given("examples") as usize);
    let picture = if matches.get_flag("path") {
        starts
            .first()
            .map(|&start| path(&heap, start))
            .unwrap_or_default()
    } else {
        surroundings(&heap, &starts, limits)
    };
    if picture.boxes.is_empty() {
        return Err(Failure::no_match(
            "nothing to draw: there are no such objects, or no root reaches them; omit --path to draw their referrers",
        ));
    }
    let graph = heap_export::drawing(&heap, &picture);
    let title = title(&heap, &picture, objects.len());
    let mut output = Output::open(matches)?;
    output.write(|out| match format {
        Format::Svg => object_graph::svg(out, &graph),
        Format::Page => object_graph::page(out, &graph, &title),
        Format::Dot => object_graph::dot(out, &graph),
    })?;
    output.finish()
}
