//! Builds the arguments that several commands share, so that names and help are the same everywhere.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use heaptide_capture::header::{DEFAULT_INTERVAL_MS, DEFAULT_SAMPLE_BYTES, Mode};

use crate::options::sizes;

/// The IDs of `-m` and `-c`. A command that has them runs a program; see [`crate::invocation::command_line`].
pub(crate) const MODULE: &str = "module";
pub(crate) const CODE: &str = "code";
/// The ID of the option that names a capture instead of a program.
pub(crate) const CAPTURE: &str = "capture";

pub(crate) const PROGRAM_HELP: &str =
    "Arguments after the script, module or code go to the program. Its exit code is unchanged.";

/// The usage of a command that runs a program.
pub(crate) fn program_usage(name: &str) -> String {
    let programs = ["(SCRIPT | -)", "-m MODULE", "-c CODE"];
    let lines = programs.map(|program| format!("heaptide {name} [OPTIONS] {program} [ARGS]..."));
    lines.join("\n       ")
}

/// `--NAME`
pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

/// `--NAME FILE`
pub(crate) fn file(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help(help)
}

/// `--html[=FILE]`: a page instead of text. [`html_file`] returns its file.
pub(crate) fn html(help: &'static str) -> Arg {
    file("html", help)
        .num_args(0..=1)
        .value_parser(value_parser!(OsString))
        .default_missing_value("")
}

/// Returns the file of [`html`]: `None` if the option has none, or is absent.
pub(crate) fn html_file(matches: &ArgMatches) -> Option<PathBuf> {
    let file = matches.try_get_one::<OsString>("html").ok().flatten()?;
    (!file.is_empty()).then(|| file.into())
}

/// Returns whether a page is wanted: by [`html`], or by `-o` with a name that ends in `.html`.
pub(crate) fn asks_for_page(matches: &ArgMatches) -> bool {
    matches.contains_id("html")
        || page_named_by_output(matches).is_some() && !matches.get_flag("json")
}

/// Returns the file of `-o` if its name is that of a page.
pub(crate) fn page_named_by_output(matches: &ArgMatches) -> Option<&PathBuf> {
    let output = matches.get_one::<PathBuf>("output");
    output.filter(|path| {
        path.extension()
            .is_some_and(|it| it == "html" || it == "htm")
    })
}

/// `-n N`, the number of rows.
pub(crate) fn num_largest(default: &'static str, help: &'static str) -> Arg {
    Arg::new("n_largest")
        .short('n')
        .long("num-largest")
        .value_name("N")
        .value_parser(value_parser!(u32).range(1..))
        .default_value(default)
        .help(help)
}

/// Returns the value of [`num_largest`].
pub(crate) fn n_largest(matches: &ArgMatches) -> usize {
    matches
        .get_one("n_largest")
        .map_or(0, |&n: &u32| n as usize)
}

pub(crate) fn output(help: &'static str) -> Arg {
    file("output", help).short('o')
}

pub(crate) fn force(help: &'static str) -> Arg {
    flag("force", help).short('f')
}

pub(crate) fn quiet() -> Arg {
    flag("quiet", "suppress Heaptide's output").short('q')
}

pub(crate) fn json() -> Arg {
    flag("json", "print JSON")
}

/// The process to record or to inspect, as a positional argument.
pub(crate) fn pid() -> Arg {
    Arg::new("pid")
        .value_name("PID")
        .required(true)
        .value_parser(value_parser!(u32).range(1..))
        .help("process ID")
}

/// The arguments of `heaptide run` and `heaptide attach` for the capture file.
pub(crate) fn capture_file() -> [Arg; 3] {
    [
        output("capture file [default: heaptide-<script>.<pid>.tide]"),
        force("overwrite an existing capture"),
        quiet(),
    ]
}

/// The arguments of every command that records allocations.
pub(crate) fn recording() -> [Arg; 5] {
    [
        flag("objects", "also record Python's allocators: every object")
            .visible_alias("trace-python-allocators"),
        flag("native", "also record native frames (C, C++, Rust)"),
        Arg::new("sample")
            .long("sample")
            .value_name("BYTES")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(DEFAULT_SAMPLE_BYTES.to_string())
            .value_parser(sizes::parse)
            .help("sample about one allocation per BYTES [default: 512k]"),
        flag(
            "aggregate",
            "store sums instead of events: bounds the file size",
        ),
        Arg::new("interval")
            .long("interval")
            .value_name("MS")
            .value_parser(value_parser!(u32).range(1..=86_400_000))
            .default_value(DEFAULT_INTERVAL_MS.to_string())
            .help("milliseconds between two samples of the resident size"),
    ]
}

/// Reads the mode from the arguments of [`recording`].
pub(crate) fn mode(matches: &ArgMatches) -> Mode {
    Mode {
        objects: matches.get_flag("objects"),
        native: matches.get_flag("native"),
        sample_bytes: matches.get_one::<u64>("sample").copied().unwrap_or(0),
        aggregate: matches.get_flag("aggregate"),
        follow_fork: false,
    }
}

/// Reads the interval from the arguments of [`recording`].
pub(crate) fn interval_ms(matches: &ArgMatches) -> u32 {
    let chosen = matches.get_one::<u32>("interval");
    chosen.copied().unwrap_or(DEFAULT_INTERVAL_MS)
}

/// `-m` and `-c`. They are only shown in the help: the command line is split before it is parsed.
pub(crate) fn program() -> [Arg; 2] {
    [
        Arg::new(MODULE)
            .short('m')
            .value_name("MODULE")
            .help("run a module, as python -m does"),
        Arg::new(CODE)
            .short('c')
            .value_name("CODE")
            .help("run code, as python -c does"),
    ]
}
