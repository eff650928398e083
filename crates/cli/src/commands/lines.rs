//! `heaptide lines`: memory line by line, of a program that is run now or of a capture that was made before.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_analysis::LineChoice;
use heaptide_analysis::model::Lines;
use heaptide_report::text::lines::{Column, Options};
use heaptide_report::text::notes;
use heaptide_report::{html, json, text};

use super::run::{Rest, Target, target};
use crate::exit::Failure;
use crate::filters;
use crate::input;
use crate::output::Output;

pub const NAME: &str = "lines";
/// For dividing the command line in front of the program.
pub const LONG_WITH_VALUE: &[&[u8]] = &[
    b"output",
    b"precision",
    b"backend",
    b"columns",
    b"html",
    b"from",
    b"function",
    b"num-functions",
    b"include",
    b"exclude",
    b"thread",
    b"process",
];
pub const SHORT_WITH_VALUE: &[u8] = b"opn";

const BACKENDS: [&str; 5] = ["psutil", "psutil_pss", "psutil_uss", "posix", "tracemalloc"];
const COLUMNS: [&str; 4] = ["allocated", "peak", "alive", "allocations"];

/// A program whose functions are to be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinesPlan {
    pub target: Target,
    /// The program's own arguments.
    pub args: Vec<OsString>,
    pub precision: u8,
    pub backend: String,
    /// Beyond memory_profiler's.
    pub columns: Vec<String>,
    /// Reports are appended; `None` is standard output.
    pub output: Option<PathBuf>,
    pub html: Option<PathBuf>,
}

pub fn arguments() -> Command {
    let path = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(help)
    };
    const OF_CAPTURES: &str = "With --from";
    Command::new(NAME)
        .about("Show functions line by line: watch a program's @profile functions, or ask a capture")
        .long_about(
            "Show functions line by line.\n\n\
             With a program: runs it as Python would, with `profile` as a builtin. Functions decorated with @profile are \
             watched, and shown when the program ends: the resident size after each line, what the line added, and how \
             often it ran.\n\n\
             With --from: shows the functions of a capture that `heaptide run` made, with what each line and what it \
             called allocated. No function needs to be decorated, and nothing is run.",
        )
        .override_usage(
            "heaptide lines [OPTIONS] (SCRIPT | -m MODULE | -c CODE | -) [ARGS]...\n       \
             heaptide lines --from CAPTURE [--function NAME] [OPTIONS]",
        )
        .after_help(
            "Everything behind the script, module or code is the program's own, options included.\n\
             The exit code is the program's own, too.",
        )
        .arg(
            Arg::new("precision")
                .short('p')
                .long("precision")
                .value_name("N")
                .value_parser(value_parser!(u8).range(0..=15))
                .default_value("3")
                .help("decimals of the sizes"),
        )
        .arg(
            path("output", "write the tables into this file; those of programs are appended")
                .short('o'),
        )
        .arg(path("html", "write a page with a bar for every line; of a program the tables are printed, too"))
        .arg(
            Arg::new("force")
                .short('f')
                .long("force")
                .action(ArgAction::SetTrue)
                .help("overwrite files that exist"),
        )
        .arg(
            Arg::new("backend")
                .long("backend")
                .value_name("NAME")
                .value_parser(BACKENDS)
                .default_value("psutil")
                .help("what is measured while a program runs"),
        )
        .arg(
            Arg::new("columns")
                .long("columns")
                .value_name("NAMES")
                .value_delimiter(',')
                .value_parser(COLUMNS)
                .help("further columns for a program, from a recording of its functions"),
        )
        .arg(
            Arg::new("capture")
                .long("from")
                .value_name("CAPTURE")
                .value_parser(value_parser!(PathBuf))
                .help_heading(OF_CAPTURES)
                .help("a capture to make the tables from; further ones may follow"),
        )
        .arg(
            Arg::new("function")
                .long("function")
                .value_name("NAME")
                .requires("capture")
                .help_heading(OF_CAPTURES)
                .help("functions of this name alone, of whatever module"),
        )
        .arg(
            Arg::new("n_functions")
                .short('n')
                .long("num-functions")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .default_value("10")
                .help_heading(OF_CAPTURES)
                .help("so many functions, those that held most at the peak"),
        )
        .arg(
            Arg::new("libraries")
                .long("libraries")
                .action(ArgAction::SetTrue)
                .requires("capture")
                .help_heading(OF_CAPTURES)
                .help("functions of installed packages and of the standard library, too"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .requires("capture")
                .help_heading(OF_CAPTURES)
                .help("print JSON for other programs"),
        )
        // These two are taken out before parsing; they stand here for the help.
        .arg(
            Arg::new("module")
                .short('m')
                .value_name("MODULE")
                .help("run a module, as python -m does"),
        )
        .arg(
            Arg::new("code")
                .short('c')
                .value_name("CODE")
                .help("run code, as python -c does"),
        )
        // Here `--from` names a capture, not a time.
        .args(
            filters::arguments()
                .into_iter()
                .filter(|filter| !["from", "to"].contains(&filter.get_id().as_str())),
        )
}

/// Makes the tables of a capture, or a plan for whoever has an interpreter.
pub fn run(matches: &ArgMatches, rest: Rest) -> Result<Option<LinesPlan>, Failure> {
    match matches.get_one::<PathBuf>("capture") {
        Some(first) => from_captures(matches, first, &rest).map(|()| None),
        None => plan(matches, rest).map(Some),
    }
}

fn plan(matches: &ArgMatches, rest: Rest) -> Result<LinesPlan, Failure> {
    let (target, args) = target(rest.0)?;
    if let Some(path) = matches.get_one::<PathBuf>("html") {
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
        output: matches.get_one::<PathBuf>("output").cloned(),
        html: matches.get_one::<PathBuf>("html").cloned(),
    })
}

fn precision(matches: &ArgMatches) -> u8 {
    matches.get_one::<u8>("precision").copied().unwrap_or(3)
}

fn from_captures(matches: &ArgMatches, first: &PathBuf, rest: &Rest) -> Result<(), Failure> {
    Output::check(matches)?;
    let page = matches.get_one::<PathBuf>("html");
    if let Some(path) = page {
        Output::check_file(path, matches.get_flag("force"))?;
    }
    let more: Vec<PathBuf> = rest.0.iter().map(PathBuf::from).collect();
    let captures = std::iter::once(first).chain(&more);
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
            "no function {function} allocated anything in {}: see heaptide summary for those that did",
            first.display()
        )));
    }
    let options = Options {
        columns: &Column::RECORDED,
        precision: precision(matches).into(),
    };
    if let Some(path) = page {
        let mut output = Output::file(path, matches.get_flag("force"))?;
        output.write(|out| html::lines::lines(out, &lines.tables, &options))?;
        output.finish()?;
        if matches.get_one::<PathBuf>("output").is_none() && !matches.get_flag("json") {
            return Ok(());
        }
    }
    let mut output = Output::open(matches)?;
    output.write(|out| {
        if matches.get_flag("json") {
            json::write(out, &json::lines(&lines))
        } else {
            print(out, &lines, &options)
        }
    })?;
    output.finish()
}

fn print(out: &mut dyn std::io::Write, lines: &Lines, options: &Options) -> std::io::Result<()> {
    for table in &lines.tables {
        text::lines::lines(out, table, options)?;
    }
    if lines.tables.is_empty() {
        writeln!(
            out,
            "No function of the program's own allocated anything: --libraries shows those of others."
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
    for note in notes::warnings(&lines.quality) {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, main};

    #[test]
    fn every_command_has_arguments_that_do_not_contradict_each_other() {
        crate::command().debug_assert();
    }

    #[test]
    fn what_follows_the_program_is_its_own_and_what_comes_before_is_ours() {
        let words = "heaptide lines -p2 --columns allocated,alive -m package.job -p 9 --from x";
        let words = words.split(' ').map(OsString::from);
        let Outcome::Lines(plan) = main(words) else {
            panic!("a program is a plan");
        };
        assert_eq!(plan.target, Target::Module("package.job".into()));
        assert_eq!(plan.args, ["-p", "9", "--from", "x"].map(OsString::from));
        assert_eq!(
            (plan.precision, plan.columns),
            (2, vec!["allocated".to_owned(), "alive".to_owned()])
        );
    }
}
