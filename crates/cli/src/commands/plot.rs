//! `heaptide plot`: draws timelines, on the terminal or into a picture or page.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use heaptide_analysis::model::chart::Chart;
use heaptide_analysis::timeline::{ChartOptions, Named, chart};
use heaptide_report::timeline::{page, png, svg, terminal};
use heaptide_timeline::Timeline;
use heaptide_watch::local_stamp;

use crate::exit::Failure;
use crate::output::Output;
use crate::timelines;

/// If neither the terminal nor the environment says.
const COLUMNS: usize = 100;
const ROWS: usize = 20;
/// Taller than this, curves do not say more.
const MAX_ROWS: usize = 40;
/// For titles, axis and legend.
const OTHER_ROWS: usize = 8;
/// Curves are thinned out to this many points.
const MAX_POINTS: usize = 4_000;

pub(crate) fn arguments() -> Command {
    let flag = |name: &'static str, short: char, help: &'static str| {
        Arg::new(name)
            .long(name)
            .short(short)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    Command::new("plot")
        .about("Draw timelines: on the terminal, or as SVG, PNG or a page")
        .long_about(
            "Draw timelines: on the terminal, or as SVG, PNG or a page.\n\n\
             Timelines of runs that overlap, such as the nodes of one job, share a clock and have their sum; those of \
             different times each begin at zero.",
        )
        .arg(
            Arg::new("title")
                .short('t')
                .long("title")
                .value_name("TEXT")
                .help("stands above the chart [default: the command]"),
        )
        .arg(flag("no-function-ts", 'n', "leave out the calls of functions"))
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("write a picture or page: a name that ends in .svg, .png, .html or .txt"),
        )
        .arg(
            Arg::new("window")
                .short('w')
                .long("window")
                .value_name("FROM,TO")
                .allow_hyphen_values(true)
                .value_parser(window)
                .help("only these seconds, such as 0,20.5"),
        )
        .arg(flag("flame", 'f', "calls of functions as bars on top of each other"))
        .arg(flag("slope", 's', "a straight line through each curve, and its slope in MiB per second"))
        .arg(Arg::new("backend").long("backend").hide(true).help("as mprof has it; nothing is needed here"))
        .arg(timelines::argument())
}

fn window(text: &str) -> Result<(f64, f64), String> {
    let parts = text
        .split_once(',')
        .map(|(from, to)| (from.trim().parse(), to.trim().parse()));
    match parts {
        Some((Ok(from), Ok(to))) if from < to && f64::is_finite(from) && f64::is_finite(to) => {
            Ok((from, to))
        }
        _ => {
            Err("it must be two numbers of seconds, the smaller first, with a comma between".into())
        }
    }
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let paths = timelines::chosen(matches)?;
    let timelines = paths
        .iter()
        .map(|path| timelines::read(path))
        .collect::<Result<Vec<Timeline>, Failure>>()?;
    let named = |(path, timeline)| Named {
        name: name(path, timeline, paths.len() > 1),
        started: started(timeline),
        timeline,
    };
    let runs: Vec<Named<'_>> = paths
        .iter()
        .map(|path| path.as_path())
        .zip(&timelines)
        .map(named)
        .collect();
    let options = ChartOptions {
        title: matches.get_one::<String>("title").cloned(),
        window: matches.get_one::<(f64, f64)>("window").copied(),
        has_slope: matches.get_flag("slope"),
        has_no_functions: matches.get_flag("no-function-ts"),
        is_flame: matches.get_flag("flame"),
        max_points: MAX_POINTS,
    };
    let chart = chart(&runs, &options);
    if chart.series.is_empty() {
        return Err(Failure::failed(
            "there are no samples between these seconds: choose a wider --window",
        ));
    }
    match matches.get_one::<PathBuf>("output") {
        Some(path) => draw_into(path, &chart),
        None => print(Output::standard(), &chart),
    }
}

/// As the name's ending says. As mprof does it, a picture that exists is replaced.
fn draw_into(path: &Path, chart: &Chart) -> Result<(), Failure> {
    let ending = path
        .extension()
        .map(|ending| ending.to_string_lossy().to_lowercase());
    let draw = match ending.as_deref() {
        Some("svg") => svg,
        Some("png") => png,
        Some("html" | "htm") => page,
        Some("txt") => return print(Output::file(path, true)?, chart),
        _ => {
            return Err(Failure::Usage(format!(
                "{} has no ending that can be drawn: use .svg, .png, .html or .txt",
                path.display()
            )));
        }
    };
    let mut output = Output::file(path, true)?;
    output.write(|out| draw(out, chart))?;
    output.finish()
}

fn print(mut output: Output, chart: &Chart) -> Result<(), Failure> {
    let (columns, lines) = output.size();
    let n_others = OTHER_ROWS + chart.series.len() + chart.notes.len();
    let rows = lines
        .map_or(ROWS, |lines| lines.saturating_sub(n_others))
        .min(MAX_ROWS);
    let style = output.style();
    output.write(|out| terminal::chart(out, chart, columns.unwrap_or(COLUMNS), rows, style))?;
    output.finish()
}

/// A node's name and rank; without them, with several files, the file's name.
fn name(path: &Path, timeline: &Timeline, is_one_of_many: bool) -> String {
    if !is_one_of_many {
        return "all".into();
    }
    let header = &timeline.header;
    match (&header.host, header.rank) {
        (Some(host), Some(rank)) => format!("{host} rank {rank}"),
        _ => path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    }
}

/// As mprof writes it in the legend.
fn started(timeline: &Timeline) -> String {
    let start = timeline
        .span()
        .map_or(timeline.header.started_s, |span| span.0)
        .max(0.0);
    let stamp = local_stamp(start as u64);
    let part = |from: usize, to: usize| stamp.get(from..to).unwrap_or("");
    format!(
        "{} / {} / {} - {}:{}:{}.{:03}",
        part(6, 8),
        part(4, 6),
        part(0, 4),
        part(8, 10),
        part(10, 12),
        part(12, 14),
        (start.fract() * 1000.0) as u32
    )
}
