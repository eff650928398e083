//! `heaptide plot`: draws timelines in the terminal, as a picture or as a page.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use heaptide_analysis::model::chart::Chart;
use heaptide_analysis::timeline::{ChartOptions, Named, chart};
use heaptide_report::timeline::{page, png, svg, terminal};
use heaptide_report::units;
use heaptide_timeline::Timeline;
use heaptide_watch::local_stamp;

use super::list;
use crate::exit::Failure;
use crate::input::folders;
use crate::input::timelines;
use crate::options::arguments;
use crate::output::Output;

/// The default size if neither the terminal nor the environment sets one.
const COLUMNS: usize = 100;
const ROWS: usize = 20;
/// A taller chart shows no more detail.
const MAX_ROWS: usize = 40;
/// Rows for title, axis and legend.
const OTHER_ROWS: usize = 8;
/// The maximum number of points per curve.
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
        .about("Draw timelines in the terminal, as SVG, PNG or a page")
        .long_about(
            "Draw timelines in the terminal, as SVG, PNG or a page.\n\n\
             Timelines that overlap in time, for example those of the nodes of one run, share a clock and are summed. \
             Other timelines each start at zero.",
        )
        .arg(
            Arg::new("title")
                .short('t')
                .long("title")
                .value_name("TEXT")
                .help("title of the chart [default: the command]"),
        )
        .arg(flag("no-function-ts", 'n', "hide function calls"))
        .arg(arguments::output("picture or page: .svg, .png, .html or .txt"))
        .arg(
            Arg::new("window")
                .short('w')
                .long("window")
                .value_name("FROM,TO")
                .allow_hyphen_values(true)
                .value_parser(window)
                .help("only this range of seconds, for example 0,20.5"),
        )
        .arg(flag("flame", 'f', "show function calls as stacked bars"))
        .arg(flag("slope", 's', "show a trend line and its slope per second"))
        .arg(Arg::new("backend").long("backend").hide(true).help("accepted for mprof; ignored"))
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
        _ => Err("must be two numbers of seconds, smaller first, separated by a comma".into()),
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
        clock_offsets: folders::clock_offsets(paths.iter()),
    };
    let chart = chart(&runs, &options);
    if chart.series.is_empty() {
        return Err(Failure::failed(
            "there are no samples in this range: choose a wider --window",
        ));
    }
    match matches.get_one::<PathBuf>("output") {
        Some(path) => draw_into(path, &chart),
        None => print(Output::standard(), &chart),
    }
}

/// Draws in the format of the file extension. Replaces an existing file, as mprof does.
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
                "{} has an unknown extension: use .svg, .png, .html or .txt",
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

/// Returns the name of a curve: host and rank, or the file name if there are several files.
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

/// Formats the start time for the legend, to the millisecond.
fn started(timeline: &Timeline) -> String {
    let start = timeline
        .span()
        .map_or(timeline.header.started_s, |span| span.0)
        .max(0.0);
    let stamp = local_stamp(start as u64);
    let milliseconds = (start.fract() * 1000.0) as u32;
    if !units::is_layout(units::Layout::Mprof) {
        return format!("{}.{milliseconds:03}", list::date(&stamp));
    }
    let part = |from: usize, to: usize| stamp.get(from..to).unwrap_or("");
    format!(
        "{} / {} / {} - {}:{}:{}.{milliseconds:03}",
        part(6, 8),
        part(4, 6),
        part(0, 4),
        part(8, 10),
        part(10, 12),
        part(12, 14)
    )
}
