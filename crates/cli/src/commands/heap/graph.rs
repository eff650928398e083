//! `heaptide heap graph`: a picture of some objects and who refers to them.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_analysis::heap::Heap;
use heaptide_analysis::heap::picture::{Picture, PictureLimits, Role, path, surroundings};
use heaptide_report::{heap_export, object_graph};

use super::{file_argument, open, selection};
use crate::exit::Failure;
use crate::output::Output;

pub(super) fn arguments() -> Command {
    Command::new("graph")
        .about("Draw some objects and who refers to them: SVG, a page, or dot")
        .long_about(
            "Draw some objects and who refers to them: SVG, a page, or dot.\n\n\
             The ending of the file's name says which; no other program is needed. Of a kind with many objects, a few examples are \
             drawn. Who refers stands above what is referred to; modules end the search.",
        )
        .after_help(
            "Examples:\n  \
             heaptide heap graph job.heap --kind job.Order -o orders.svg\n  \
             heaptide heap graph job.heap --kind job.Order --way -o way.html",
        )
        .args(selection::arguments())
        .arg(
            Arg::new("way")
                .long("way")
                .action(ArgAction::SetTrue)
                .help("only the shortest way from a root to the first of them"),
        )
        .arg(
            Arg::new("forward")
                .long("forward")
                .action(ArgAction::SetTrue)
                .conflicts_with("way")
                .help("whom they refer to, instead of who refers to them"),
        )
        .arg(number("examples", "3", "how many objects to begin with"))
        .arg(number("depth", "4", "how many steps away from them"))
        .arg(number("too-many", "8", "how many neighbours of each object"))
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("a name that ends in .svg, .html or .dot; dot is printed without it"),
        )
        .arg(
            Arg::new("force")
                .short('f')
                .long("force")
                .action(ArgAction::SetTrue)
                .help("overwrite the file if it exists"),
        )
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
enum Form {
    Svg,
    Page,
    Dot,
}

fn form(path: Option<&PathBuf>) -> Result<Form, Failure> {
    let Some(path) = path else {
        return Ok(Form::Dot);
    };
    let ending = Path::new(path)
        .extension()
        .and_then(|ending| ending.to_str());
    match ending {
        Some("svg") => Ok(Form::Svg),
        Some("html" | "htm") => Ok(Form::Page),
        Some("dot" | "gv") => Ok(Form::Dot),
        _ => Err(Failure::Usage(format!(
            "{} does not say what to draw: let its name end in .svg, .html or .dot",
            path.display()
        ))),
    }
}

/// What a page is about.
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
    format!("{} of {n_objects} objects{kind}", starts.count())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    if !selection::is_given(matches) {
        return Err(Failure::Usage(
            "which objects? choose them with --kind, --address or --unreachable".into(),
        ));
    }
    let form = form(matches.get_one::<PathBuf>("output"))?;
    Output::check(matches)?;
    let heap = open(matches)?;
    let objects = selection::objects(&heap, matches)?;
    let asked = |name: &str| matches.get_one::<u32>(name).copied().unwrap_or(1);
    let limits = PictureLimits {
        depth: asked("depth"),
        too_many: asked("too-many") as usize,
        forward: matches.get_flag("forward"),
        ..PictureLimits::default()
    };
    let starts: Vec<u32> = objects.iter().take(asked("examples") as usize).collect();
    let picture = if matches.get_flag("way") {
        starts
            .first()
            .map(|&start| path(&heap, start))
            .unwrap_or_default()
    } else {
        surroundings(&heap, &starts, limits)
    };
    if picture.boxes.is_empty() {
        return Err(Failure::no_match(
            "there is nothing to draw: no root reaches these objects, or there are none; without --way their referrers are drawn",
        ));
    }
    let graph = heap_export::drawing(&heap, &picture);
    let title = title(&heap, &picture, objects.len());
    let mut output = Output::open(matches)?;
    output.write(|out| match form {
        Form::Svg => object_graph::svg(out, &graph),
        Form::Page => object_graph::page(out, &graph, &title),
        Form::Dot => object_graph::dot(out, &graph),
    })?;
    output.finish()
}
