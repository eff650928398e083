//! `heaptide lines`: memory by line, of a program that it runs or of a capture.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use heaptide_analysis::LineChoice;
use heaptide_analysis::model::Lines;
use heaptide_report::text::lines::{Column, Options};
use heaptide_report::text::notes;
use heaptide_report::{html, json, text};

use crate::Outcome;
use crate::exit::{self, Failure};
use crate::input;
use crate::invocation::command_line::{CommandLine, Target};
use crate::options::arguments::{self, CAPTURE, flag, force};
use crate::options::filters;
use crate::output::Output;
use crate::output::destination::beside;

pub(crate) const NAME: &str = "lines";

const BACKENDS: [&str; 5] = ["psutil", "psutil_pss", "psutil_uss", "posix", "tracemalloc"];
const COLUMNS: [&str; 4] = ["allocated", "peak", "alive", "allocations"];

/// A program whose decorated functions are measured line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinesPlan {
    pub target: Target,
    /// The program's arguments.
    pub args: Vec<OsString>,
    pub precision: u8,
    pub backend: String,
    /// Columns in addition to memory_profiler's.
    pub columns: Vec<String>,
    /// Tables are appended; `None` is standard output.
    pub output: Option<PathBuf>,
    pub html: Option<PathBuf>,
}

pub(crate) fn arguments() -> Command {
    const OF_CAPTURES: &str = "With --from";
    Command::new(NAME)
        .about("Show memory line by line, of a program or a capture")
        .long_about(
            "Show memory line by line, of a program or a capture.\n\n\
             With a program: runs it with `profile` as a builtin. For each function decorated with @profile, prints at exit \
             the resident size after each line, the increment of the line, and its number of visits.\n\n\
             With --from: reads a capture of `heaptide run` and shows the bytes that each line allocated, including its \
             callees. Functions need no decorator, and nothing is run.",
        )
        .override_usage(format!(
            "{}\n       heaptide lines --from CAPTURE [OPTIONS]",
            arguments::program_usage(NAME)
        ))
        .after_help(arguments::PROGRAM_HELP)
        .arg(
            Arg::new("precision")
                .short('p')
                .long("precision")
                .value_name("N")
                .value_parser(value_parser!(u8).range(0..=15))
                .default_value("3")
                .help("decimals of sizes"),
        )
        .arg(arguments::output("file for the tables, to which a program appends; a page if its name ends in .html"))
        .arg(arguments::html(
            "HTML page with a bar for each line; a program's tables are also printed [default file with --from: \
             heaptide-lines-CAPTURE.html]",
        ))
        .arg(force("overwrite existing files"))
        .arg(
            Arg::new("backend")
                .long("backend")
                .value_name("NAME")
                .value_parser(BACKENDS)
                .default_value("psutil")
                .help("measure of a running program"),
        )
        .arg(
            Arg::new("columns")
                .long("columns")
                .value_name("NAMES")
                .value_delimiter(',')
                .value_parser(COLUMNS)
                .help("additional columns for a program, from a recording of its functions"),
        )
        .arg(
            Arg::new(CAPTURE)
                .long("from")
                .value_name("CAPTURE")
                .value_parser(value_parser!(PathBuf))
                .help_heading(OF_CAPTURES)
                .help("capture to read; more can follow"),
        )
        .arg(
            Arg::new("function")
                .long("function")
                .value_name("NAME")
                .requires(CAPTURE)
                .help_heading(OF_CAPTURES)
                .help("only functions of this name, in any module"),
        )
        .arg(
            Arg::new("n_functions")
                .short('n')
                .long("num-functions")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .default_value("10")
                .help_heading(OF_CAPTURES)
                .help("number of functions, largest at the peak first"),
        )
        .arg(
            flag("libraries", "also functions of installed packages and the standard library")
                .requires(CAPTURE)
                .help_heading(OF_CAPTURES),
        )
        .arg(
            arguments::json()
                .requires(CAPTURE)
                .help_heading(OF_CAPTURES),
        )
        .args(arguments::program())
        .arg(
            Arg::new("more")
                .value_name("CAPTURE")
                .num_args(0..)
                .value_parser(value_parser!(PathBuf))
                .requires(CAPTURE)
                .hide(true),
        )
        // Here `--from` names a capture, not a time.
        .args(
            filters::arguments()
                .into_iter()
                .filter(|filter| !["from", "to"].contains(&filter.get_id().as_str())),
        )
}

/// Prints the tables of a capture, or returns a plan to run a program.
pub(crate) fn run(matches: &ArgMatches, line: CommandLine) -> Result<Outcome, Failure> {
    match matches.get_one::<PathBuf>(CAPTURE) {
        Some(first) => from_captures(matches, first).map(|()| Outcome::Exit(exit::OK)),
        None => plan(matches, line).map(Outcome::Lines),
    }
}

fn plan(matches: &ArgMatches, line: CommandLine) -> Result<LinesPlan, Failure> {
    let (target, args) = line.target()?;
    let mut output = matches.get_one::<PathBuf>("output").cloned();
    let mut html = arguments::html_file(matches);
    if html.is_none() && arguments::page_named_by_output(matches).is_some() {
        html = output.take();
    }
    if let Some(path) = &html {
        Output::check_file(path, matches.get_flag("force"))?;
    }
    let columns = matches.get_many::<String>("columns");
    Ok(LinesPlan {
        target,
        args,
        precision: precision(matches),
        backend: matches
            .get_one::<String>("backend")
            .map_or("psutil", String::as_str)
            .to_owned(),
        columns: columns.into_iter().flatten().cloned().collect(),
        output,
        html,
    })
}

fn precision(matches: &ArgMatches) -> u8 {
    matches.get_one::<u8>("precision").copied().unwrap_or(3)
}

fn from_captures(matches: &ArgMatches, first: &PathBuf) -> Result<(), Failure> {
    Output::check(matches)?;
    let as_json = matches.get_flag("json");
    let named_by_output = arguments::page_named_by_output(matches).filter(|_| !as_json);
    let page = arguments::html_file(matches)
        .or(named_by_output.cloned())
        .or_else(|| {
            matches
                .contains_id("html")
                .then(|| beside(first, "lines", "html"))
        });
    if let Some(path) = &page {
        Output::check_file(path, matches.get_flag("force"))?;
    }
    let more = matches.get_many::<PathBuf>("more").into_iter().flatten();
    let captures = std::iter::once(first).chain(more);
    let session = input::session_of(captures, filters::request(matches))?;
    let function = matches.get_one::<String>("function");
    let choice = LineChoice {
        function: function.cloned(),
        libraries: matches.get_flag("libraries"),
        max_functions: matches
            .get_one::<u32>("n_functions")
            .map_or(10, |&n| n as usize),
    };
    let lines = heaptide_analysis::lines(&session, &choice);
    drop(session);
    if let (Some(function), true) = (function, lines.tables.is_empty()) {
        return Err(Failure::failed(format!(
            "no function {function} allocated memory in {}: heaptide summary lists those that did",
            first.display()
        )));
    }
    let options = Options {
        columns: &Column::RECORDED,
        precision: precision(matches).into(),
    };
    if let Some(path) = &page {
        let mut output = Output::file(path, matches.get_flag("force"))?;
        output.write(|out| html::lines::lines(out, &lines.tables, &options))?;
        output.finish()?;
        let output = matches.get_one::<PathBuf>("output");
        if !as_json && output.is_none_or(|output| output == path) {
            return Ok(());
        }
    }
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if as_json {
            json::write(out, &json::lines(&lines))
        } else {
            print(out, &lines, &options)
        }
    })?;
    output.finish()
}

fn print(out: &mut dyn std::io::Write, lines: &Lines, options: &Options) -> std::io::Result<()> {
    for note in notes::incomplete(&lines.quality) {
        writeln!(out, "{note}")?;
    }
    for table in &lines.tables {
        text::lines::lines(out, table, options)?;
    }
    if lines.tables.is_empty() {
        writeln!(
            out,
            "No function of the program itself allocated memory: --libraries shows those of libraries."
        )?;
    }
    if lines.n_functions > lines.tables.len() {
        let n_more = lines.n_functions - lines.tables.len();
        writeln!(
            out,
            "{n_more} more functions: -n {} shows all",
            lines.n_functions
        )?;
    }
    let moment = notes::peak_heading(&lines.quality).map(|it| format!("at the peak: {it}"));
    for note in moment
        .into_iter()
        .chain(notes::other_warnings(&lines.quality))
    {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::main;

    #[test]
    fn arguments_of_all_commands_are_consistent() {
        crate::command().debug_assert();
    }

    #[test]
    fn arguments_after_the_program_go_to_it_and_options_before_it_to_heaptide() {
        let words = "heaptide lines -p2 --columns allocated,alive -m package.job -p 9 --from x";
        let words = words.split(' ').map(OsString::from);
        let Outcome::Lines(plan) = main(words) else {
            panic!("a program must become a plan");
        };
        assert_eq!(plan.target, Target::Module("package.job".into()));
        assert_eq!(plan.args, ["-p", "9", "--from", "x"].map(OsString::from));
        assert_eq!(
            (plan.precision, plan.columns),
            (2, vec!["allocated".to_owned(), "alive".to_owned()])
        );
    }
}
