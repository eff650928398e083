//! `heaptide run`: what to run and how to record it. Running is left to whoever has an interpreter.
//!
//! Everything behind the script, module or code belongs to the program, options included, so the arguments are divided
//! before they are parsed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_capture::header::DEFAULT_SAMPLE_BYTES;

use crate::exit::Failure;
use crate::live::runner::{LivePlan, LiveViewer};
use crate::sizes;

pub const NAME: &str = "run";

/// Options in front of a target that take a value, of each command that runs a program.
struct Splitting {
    name: &'static str,
    long: &'static [&'static [u8]],
    short: &'static [u8],
}

const SPLITTING: [Splitting; 2] = [
    Splitting {
        name: NAME,
        long: &[b"output", b"interval", b"live-port"],
        short: b"o",
    },
    Splitting {
        name: super::lines::NAME,
        long: super::lines::LONG_WITH_VALUE,
        short: super::lines::SHORT_WITH_VALUE,
    },
];

/// A program, and how it is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlan {
    pub target: Target,
    /// The program's own arguments.
    pub args: Vec<OsString>,
    /// `None`: `heaptide-<script>.<pid>.tide` in the current directory.
    pub output: Option<PathBuf>,
    pub force: bool,
    pub quiet: bool,
    pub objects: bool,
    pub native: bool,
    pub sample_bytes: Option<u64>,
    pub aggregate: bool,
    pub follow_fork: bool,
    pub interval_ms: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Script(PathBuf),
    Module(String),
    Code(String),
    /// `-`: the program comes on standard input.
    Stdin,
}

pub fn arguments() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    Command::new(NAME)
        .about("Run a program as Python would, and record every allocation")
        .override_usage("heaptide run [OPTIONS] (SCRIPT | -m MODULE | -c CODE | -) [ARGS]...")
        .after_help(
            "Everything behind the script, module or code is the program's own, options included.\n\
             The exit code is the program's own, too.",
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("the capture's name [default: heaptide-<script>.<pid>.tide here]"),
        )
        .arg(flag("force", "overwrite the capture if it exists").short('f'))
        .arg(flag("quiet", "say nothing but what the program says").short('q'))
        .arg(
            flag("objects", "record Python's own allocators, too: every object")
                .visible_alias("trace-python-allocators"),
        )
        .arg(flag("native", "show the C, C++ and Rust functions between the Python functions, too"))
        .arg(sample())
        .arg(flag("aggregate", "keep sums instead of every event: the file stays small however long it runs"))
        .arg(flag("follow-fork", "record forked children, too, each in a file of its own"))
        .arg(interval())
        .arg(
            flag("live", "show what the program holds in this terminal while it runs")
                .conflicts_with("live-remote"),
        )
        .arg(
            Arg::new("live-remote")
                .long("live-remote")
                .value_name("PORT")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("0")
                .value_parser(value_parser!(u16))
                .help("show it to `heaptide live PORT` in another terminal [default: a port is chosen and printed]"),
        )
        .arg(
            Arg::new("live-port")
                .long("live-port")
                .value_name("PORT")
                .requires("live-remote")
                .value_parser(value_parser!(u16).range(1..))
                .help("the port of --live-remote, as memray has it"),
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
}

/// `--sample`, of every command that records.
pub(super) fn sample() -> Arg {
    Arg::new("sample")
        .long("sample")
        .value_name("BYTES")
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value(DEFAULT_SAMPLE_BYTES.to_string())
        .value_parser(sizes::parse)
        .help(
            "record one allocation about every so many bytes, such as 512k or 1MiB [default: 512k]",
        )
}

/// `--interval`, likewise.
pub(super) fn interval() -> Arg {
    Arg::new("interval")
        .long("interval")
        .value_name("MS")
        .value_parser(value_parser!(u32).range(1..=86_400_000))
        .default_value("10")
        .help("milliseconds between two looks at the resident size")
}

/// Words that are about watching, for whoever runs the program as a child.
fn is_live(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    bytes == b"--live" || bytes.starts_with(b"--live-remote") || bytes.starts_with(b"--live-port")
}

/// The target and what follows it, taken off the command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rest(pub(super) Vec<OsString>);

/// Divides command lines that run a program in front of the target; leaves others as they are.
pub fn split(mut arguments: Vec<OsString>) -> (Vec<OsString>, Rest) {
    let is_word = |at: usize, word: &str| arguments.get(at).is_some_and(|given| given == word);
    if is_word(1, super::live::NAME) && is_word(2, "--") {
        // `live -- job.py` is `run --live job.py`.
        arguments[1] = NAME.into();
        arguments[2] = "--live".into();
    }
    let name = arguments.get(1);
    let Some(splitting) = SPLITTING
        .iter()
        .find(|known| name.is_some_and(|name| name == known.name))
    else {
        return (arguments, Rest::default());
    };
    let mut at = 2;
    while let Some(argument) = arguments.get(at) {
        match kind(argument, splitting) {
            Kind::Option { takes_next: false } => at += 1,
            Kind::Option { takes_next: true } => at += 2,
            Kind::Target => break,
            // `-fqm module`: the cluster is cut in two.
            Kind::OptionsThenTarget { cut } => {
                let bytes = argument.as_bytes();
                let options = OsStr::from_bytes(&bytes[..cut]).to_owned();
                let target = [b"-", &bytes[cut..]].concat();
                arguments[at] = OsString::from_vec(target);
                arguments.insert(at, options);
                at += 1;
                break;
            }
        }
    }
    let rest = arguments.split_off(at.min(arguments.len()));
    (arguments, Rest(rest))
}

enum Kind {
    Option { takes_next: bool },
    OptionsThenTarget { cut: usize },
    Target,
}

fn kind(argument: &OsStr, splitting: &Splitting) -> Kind {
    let bytes = argument.as_bytes();
    match bytes {
        b"-" | b"--" => Kind::Target,
        [b'-', b'-', name @ ..] => Kind::Option {
            takes_next: splitting.long.contains(&name),
        },
        [b'-', cluster @ ..] => {
            // The first letter that takes a value, or begins the target, ends the cluster.
            let decisive = cluster.iter().position(|letter| {
                matches!(letter, b'm' | b'c') || splitting.short.contains(letter)
            });
            match decisive.map(|at| (at, cluster[at])) {
                Some((at, letter)) if splitting.short.contains(&letter) => Kind::Option {
                    takes_next: at + 1 == cluster.len(),
                },
                Some((0, _)) => Kind::Target,
                Some((at, _)) => Kind::OptionsThenTarget { cut: at + 1 },
                None => Kind::Option { takes_next: false },
            }
        }
        _ => Kind::Target,
    }
}

/// How the program is to be watched, if it is. `arguments` are those that `matches` came from.
pub fn live_plan(
    matches: &ArgMatches,
    arguments: &[OsString],
    rest: &Rest,
) -> Result<Option<LivePlan>, Failure> {
    let port = matches.get_one::<u16>("live-port");
    let viewer = match matches.get_one::<u16>("live-remote") {
        Some(&chosen) => LiveViewer::Port(port.copied().unwrap_or(chosen)),
        None if matches.get_flag("live") => LiveViewer::ThisTerminal,
        None => return Ok(None),
    };
    let output = matches.get_one::<PathBuf>("output").cloned();
    if matches.get_flag("follow-fork") && output.is_none() {
        return Err(Failure::Usage(
            "forked children have captures of their own: say with -o where they are to stay".into(),
        ));
    }
    if rest.0.is_empty() {
        return Err(nothing_to_run());
    }
    let mut options = Vec::new();
    let mut words = arguments.iter().skip(2);
    while let Some(word) = words.next() {
        if word == "--live-port" {
            words.next();
        } else if !is_live(word) {
            options.push(word.clone());
        }
    }
    Ok(Some(LivePlan {
        viewer,
        options,
        rest: rest.0.clone(),
        output,
        quiet: matches.get_flag("quiet"),
        aggregate: matches.get_flag("aggregate"),
    }))
}

pub fn plan(matches: &ArgMatches, rest: Rest) -> Result<RunPlan, Failure> {
    let (target, args) = target(rest.0)?;
    Ok(RunPlan {
        target,
        args,
        output: matches.get_one::<PathBuf>("output").cloned(),
        force: matches.get_flag("force"),
        quiet: matches.get_flag("quiet"),
        objects: matches.get_flag("objects"),
        native: matches.get_flag("native"),
        sample_bytes: matches.get_one::<u64>("sample").copied(),
        aggregate: matches.get_flag("aggregate"),
        follow_fork: matches.get_flag("follow-fork"),
        interval_ms: matches.get_one::<u32>("interval").copied().unwrap_or(10),
    })
}

pub(super) fn target(rest: Vec<OsString>) -> Result<(Target, Vec<OsString>), Failure> {
    let mut rest = rest.into_iter();
    let mut first = rest.next();
    if first.as_deref() == Some(OsStr::new("--")) {
        let script = rest.next().ok_or_else(nothing_to_run)?;
        return Ok((Target::Script(script.into()), rest.collect()));
    }
    let first = first.take().ok_or_else(nothing_to_run)?;
    let bytes = first.as_bytes();
    let target = match bytes {
        b"-" => Target::Stdin,
        [b'-', letter @ (b'm' | b'c'), attached @ ..] => {
            let value = match attached {
                [] => rest.next().ok_or_else(nothing_to_run)?,
                attached => OsStr::from_bytes(attached).to_owned(),
            };
            let text = value.into_string().map_err(|_| {
                Failure::Usage("the text behind -m or -c is not valid UTF-8: write it into a file and run that".into())
            })?;
            if *letter == b'm' {
                Target::Module(text)
            } else {
                Target::Code(text)
            }
        }
        _ => Target::Script(first.into()),
    };
    Ok((target, rest.collect()))
}

fn nothing_to_run() -> Failure {
    Failure::Usage(
        "there is nothing to run: name a script, -m MODULE, -c CODE, or - for standard input"
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, main};

    fn plan_of(line: &str) -> RunPlan {
        let words = std::iter::once("heaptide").chain(line.split(' '));
        match main(words.map(OsString::from)) {
            Outcome::Run(plan) => plan,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn what_follows_the_target_belongs_to_the_program() {
        let plan = plan_of("run -q job.py --help -m x -o y");
        assert_eq!(plan.target, Target::Script("job.py".into()));
        assert_eq!(plan.args, words("--help -m x -o y"));
        assert!(plan.quiet && plan.output.is_none());
        let plan = plan_of("run -m package.job -f --version");
        assert_eq!(plan.target, Target::Module("package.job".into()));
        assert_eq!(plan.args, words("-f --version"));
        assert!(!plan.force);
    }

    #[test]
    fn options_before_the_target_are_ours() {
        let plan = plan_of(
            "run -o out.tide --force --objects --native --sample=1MiB --aggregate --follow-fork --interval 50 -c pass a",
        );
        assert_eq!(
            plan,
            RunPlan {
                target: Target::Code("pass".into()),
                args: words("a"),
                output: Some("out.tide".into()),
                force: true,
                quiet: false,
                objects: true,
                native: true,
                sample_bytes: Some(1 << 20),
                aggregate: true,
                follow_fork: true,
                interval_ms: 50,
            }
        );
        assert!(plan_of("run --trace-python-allocators x.py").objects);
    }

    #[test]
    fn sample_without_a_value_does_not_eat_the_script() {
        let plan = plan_of("run --sample job.py 5");
        assert_eq!(plan.sample_bytes, Some(512 << 10));
        assert_eq!(plan.target, Target::Script("job.py".into()));
        assert_eq!(plan_of("run job.py").sample_bytes, None);
        assert_eq!(plan_of("run job.py").interval_ms, 10);
    }

    #[test]
    fn short_options_may_be_written_together() {
        let plan = plan_of("run -fqo out.tide job.py");
        assert!(plan.force && plan.quiet);
        assert_eq!(plan.output, Some("out.tide".into()));
        let plan = plan_of("run -fqmjson.tool -x");
        assert!(plan.force && plan.quiet);
        assert_eq!(plan.target, Target::Module("json.tool".into()));
        assert_eq!(plan.args, words("-x"));
        assert_eq!(
            plan_of("run -oout.tide -cpass").target,
            Target::Code("pass".into())
        );
    }

    #[test]
    fn standard_input_and_scripts_that_look_like_options_can_be_run() {
        assert_eq!(plan_of("run - a").target, Target::Stdin);
        let plan = plan_of("run -q -- -odd.py -x");
        assert_eq!(plan.target, Target::Script("-odd.py".into()));
        assert_eq!(plan.args, words("-x"));
    }

    fn live_plan_of(line: &str) -> LivePlan {
        let words = std::iter::once("heaptide").chain(line.split(' '));
        match main(words.map(OsString::from)) {
            Outcome::Live(plan) => plan,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn program_that_is_watched_gets_all_options_but_those_about_watching() {
        let plan = live_plan_of("run -f --live --objects job.py --live");
        assert_eq!(plan.viewer, LiveViewer::ThisTerminal);
        assert_eq!(plan.options, words("-f --objects"));
        assert_eq!(plan.rest, words("job.py --live"));
        let plan = live_plan_of("run --live-remote -o x.tide -m job 5");
        assert_eq!(plan.viewer, LiveViewer::Port(0));
        assert_eq!(plan.options, words("-o x.tide"));
        assert_eq!(plan.output, Some("x.tide".into()));
        assert_eq!(plan.rest, words("-m job 5"));
        let plan = live_plan_of("run --live-port 4000 --live-remote job.py");
        assert_eq!(plan.viewer, LiveViewer::Port(4000));
        assert_eq!(plan.options, words(""));
        let plan = live_plan_of("run --live-remote=4001 job.py");
        assert_eq!(plan.viewer, LiveViewer::Port(4001));
        assert_eq!(live_plan_of("live -- job.py x").rest, words("job.py x"));
    }

    #[test]
    fn nothing_to_run_is_a_mistake_in_the_arguments() {
        for line in [
            "run",
            "run -q",
            "run -m",
            "run --",
            "run --nonsense x.py",
            "run --interval 0 x.py",
            "run --live",
            "run --live --live-remote x.py",
            "run --live-port 4000 x.py",
            "run --live-remote=70000 x.py",
            "run --live --follow-fork x.py",
            "live 70000",
            "live 0",
        ] {
            let words = std::iter::once("heaptide").chain(line.split(' '));
            assert!(
                matches!(main(words.map(OsString::from)), Outcome::Exit(2)),
                "{line}"
            );
        }
    }
}
