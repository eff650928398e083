//! `heaptide run`: the program to run, and its recording options. The caller, which has an interpreter, runs it.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use heaptide_capture::Mode;
use heaptide_files::{Existing, NewFile};

use crate::Outcome;
use crate::exit::Failure;
use crate::invocation::command_line::{CommandLine, Target, nothing_to_run};
use crate::live::runner::{LivePlan, LiveViewer};
use crate::options::arguments::{self, file, flag};
use crate::options::memray_options;
use crate::output::exists;

pub(crate) const NAME: &str = "run";

/// A program and its recording options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlan {
    pub target: Target,
    /// The program's arguments.
    pub args: Vec<OsString>,
    /// `None`: `heaptide-<script>.<pid>.tide` in the current directory.
    pub output: Option<PathBuf>,
    pub force: bool,
    pub quiet: bool,
    /// The page to write after the program has ended.
    pub report: Option<PathBuf>,
    /// Whether to open that page in a browser. Without `report`, it lies beside the capture.
    pub open: bool,
    /// Another interpreter for the program.
    pub python: Option<PathBuf>,
    pub mode: Mode,
    pub interval_ms: u32,
}

pub(crate) fn arguments() -> Command {
    Command::new(NAME)
        .about("Run a program and record every allocation")
        .override_usage(arguments::program_usage(NAME))
        .after_help(arguments::PROGRAM_HELP)
        .args(arguments::capture_file())
        .args(arguments::recording())
        .arg(flag(
            "follow-fork",
            "also record forked children, each in its own file",
        ))
        .arg(
            flag(
                "live",
                "show the live heap in this terminal while the program runs",
            )
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
                .help("serve the live heap to `heaptide live PORT` [default: any free port]"),
        )
        .arg(
            Arg::new("live-port")
                .long("live-port")
                .short('p')
                .value_name("PORT")
                .requires("live-remote")
                .value_parser(value_parser!(u16).range(1..))
                .help("port of --live-remote (memray's option)"),
        )
        .arg(
            file(
                "report",
                "also write a flame graph page after the program has ended",
            )
            .conflicts_with_all(["live", "live-remote"]),
        )
        .arg(
            flag("open", "open the flame graph page in the browser")
                .conflicts_with_all(["live", "live-remote"]),
        )
        .arg(
            file("python", "interpreter for the program [default: this one; in a uv tool or pipx install, VIRTUAL_ENV's]")
                .value_name("PATH"),
        )
        .args(memray_options::compression())
        .arg(memray_options::buffering())
        .args(arguments::program())
}

pub(crate) fn run(matches: &ArgMatches, line: CommandLine) -> Result<Outcome, Failure> {
    let port = matches.get_one::<u16>("live-port");
    let viewer = match matches.get_one::<u16>("live-remote") {
        Some(&chosen) => Some(LiveViewer::Port(port.copied().unwrap_or(chosen))),
        None => matches.get_flag("live").then_some(LiveViewer::ThisTerminal),
    };
    match viewer {
        Some(viewer) => live_plan(matches, line, viewer).map(Outcome::Live),
        None => plan(matches, line).map(Outcome::Run),
    }
}

/// Returns the options without those of the live view, which the child's `heaptide run` refuses.
fn without_live_options(mut words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--live" => {}
            b"--live-port" => drop(words.next()),
            long if long.starts_with(b"--live-remote") || long.starts_with(b"--live-port=") => {}
            [b'-', letters @ ..] if !letters.starts_with(b"-") => {
                // `-p`, maybe after other letters, takes the rest of the word or the next word. So does `-o`.
                let with_value = letters.iter().position(|letter| b"op".contains(letter));
                let Some(port) = with_value.filter(|&at| letters[at] == b'p') else {
                    kept.push(word);
                    continue;
                };
                if port + 1 == letters.len() {
                    words.next();
                }
                if port > 0 {
                    kept.push(OsStr::from_bytes(&word.as_bytes()[..1 + port]).to_owned());
                }
            }
            _ => kept.push(word),
        }
    }
    kept
}

fn live_plan(
    matches: &ArgMatches,
    line: CommandLine,
    viewer: LiveViewer,
) -> Result<LivePlan, Failure> {
    let output = matches.get_one::<PathBuf>("output").cloned();
    if matches.get_flag("follow-fork") && output.is_none() {
        return Err(Failure::Usage(
            "--follow-fork with a live view needs -o FILE: forked children write their captures beside it".into(),
        ));
    }
    if line.program.is_empty() {
        return Err(nothing_to_run());
    }
    let words = line.own.into_iter().skip_while(|word| word != NAME).skip(1);
    Ok(LivePlan {
        viewer,
        options: without_live_options(words),
        program: line.program,
        output,
        quiet: matches.get_flag("quiet"),
        aggregate: matches.get_flag("aggregate"),
    })
}

fn plan(matches: &ArgMatches, line: CommandLine) -> Result<RunPlan, Failure> {
    let (target, args) = line.target()?;
    let output = matches.get_one::<PathBuf>("output").cloned();
    let (force, open) = (matches.get_flag("force"), matches.get_flag("open"));
    let report = matches.get_one::<PathBuf>("report").cloned();
    let report = report.or(output
        .as_ref()
        .filter(|_| open)
        .map(|it| it.with_extension("html")));
    if let Some(report) = &report {
        check_report(report, force)?;
    }
    Ok(RunPlan {
        target,
        args,
        output,
        force,
        quiet: matches.get_flag("quiet"),
        report,
        open,
        python: matches.get_one::<PathBuf>("python").cloned(),
        mode: Mode {
            follow_fork: matches.get_flag("follow-fork"),
            ..arguments::mode(matches)
        },
        interval_ms: arguments::interval_ms(matches),
    })
}

/// Refuses a page that could not be written after the program has ended.
fn check_report(path: &Path, force: bool) -> Result<(), Failure> {
    let existing = match force {
        true => Existing::Replace,
        false => Existing::Refuse,
    };
    match NewFile::create(path, existing) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(Failure::CannotRecord(exists(path).to_string()))
        }
        Err(error) => Err(Failure::CannotRecord(format!(
            "cannot write {} ({error}): check the folder, or choose another name",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::main;

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
    fn arguments_after_the_target_go_to_the_program() {
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
    fn options_before_the_target_go_to_heaptide() {
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
                report: None,
                open: false,
                python: None,
                mode: Mode {
                    objects: true,
                    native: true,
                    sample_bytes: 1 << 20,
                    aggregate: true,
                    follow_fork: true,
                },
                interval_ms: 50,
            }
        );
        assert!(plan_of("run --trace-python-allocators x.py").mode.objects);
        let plan = plan_of("-v run --no-compress --buffered-file-io x.py");
        assert_eq!(plan.target, Target::Script("x.py".into()));
    }

    #[test]
    fn sample_without_a_value_does_not_swallow_the_script() {
        let plan = plan_of("run --sample job.py 5");
        assert_eq!(plan.mode.sample_bytes, 512 << 10);
        assert_eq!(plan.target, Target::Script("job.py".into()));
        assert_eq!(plan_of("run job.py").mode.sample_bytes, 0);
        assert_eq!(plan_of("run job.py").interval_ms, 10);
    }

    #[test]
    fn short_options_can_be_combined() {
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
    fn standard_input_and_scripts_named_like_options_can_be_run() {
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
    fn live_program_gets_all_options_except_those_of_the_live_view() {
        let plan = live_plan_of("run -f --live --objects job.py --live");
        assert_eq!(plan.viewer, LiveViewer::ThisTerminal);
        assert_eq!(plan.options, words("-f --objects"));
        assert_eq!(plan.program, words("job.py --live"));
        let plan = live_plan_of("run --live-remote -o x.tide -m job 5");
        assert_eq!(plan.viewer, LiveViewer::Port(0));
        assert_eq!(plan.options, words("-o x.tide"));
        assert_eq!(plan.output, Some("x.tide".into()));
        assert_eq!(plan.program, words("-m job 5"));
        let plan = live_plan_of("run --live-port 4000 --live-remote job.py");
        assert_eq!(plan.viewer, LiveViewer::Port(4000));
        assert_eq!(plan.options, words(""));
        for port in ["-p 4000", "-p4000"] {
            let plan = live_plan_of(&format!("run {port} --live-remote job.py"));
            assert_eq!(plan.viewer, LiveViewer::Port(4000));
            assert_eq!(plan.options, words(""));
        }
        for (combined, kept) in [
            ("-qp 4000", "-q"),
            ("-qfp4000", "-qf"),
            ("-fp 4000 -q", "-f -q"),
            ("-p 4000 -qo p.tide", "-qo p.tide"),
            ("-p 4000 -op.tide", "-op.tide"),
        ] {
            let plan = live_plan_of(&format!("run --live-remote {combined} job.py -p 5"));
            assert_eq!(plan.viewer, LiveViewer::Port(4000), "{combined}");
            assert_eq!(plan.options, words(kept), "{combined}");
            assert_eq!(plan.program, words("job.py -p 5"), "{combined}");
        }
        let plan = live_plan_of("run --live-remote=4001 job.py");
        assert_eq!(plan.viewer, LiveViewer::Port(4001));
        assert_eq!(live_plan_of("live -- job.py x").program, words("job.py x"));
    }

    #[test]
    fn invalid_arguments_exit_with_2() {
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
            "run --live --open x.py",
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
