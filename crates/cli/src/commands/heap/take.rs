//! `heaptide heap take`: the snapshot that the other questions are asked of, from a job with control or from a program
//! that is run for it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_control::json::{Json, object};

use crate::again;
use crate::commands::ctl;
use crate::exit::Failure;
use crate::output::{self, Output};

pub fn arguments() -> Command {
    Command::new("take")
        .about("Write down every Python object of a running job, or of a program at its end")
        .long_about(
            "Write down every Python object of a running job, or of a program at its end.\n\n\
             A job with control (HEAPTIDE_CONTROL, heaptide serve, heaptide.asgi or heaptide.wsgi) is named by --pid or --url; \
             if there is just one, by nothing. It stands still while it is looked at, with --fork only while it is copied; how \
             long is said afterwards. Looking makes no object in it. A program that is named is run to its end, and its heap \
             taken before it is torn down. Any program can take one of itself: heaptide.heap_snapshot().",
        )
        .after_help(
            "Examples:\n  \
             heaptide heap take --pid 4711 -o before.heap\n  \
             heaptide heap take --url http://job.example/pub/job/leak/1 --fork\n  \
             heaptide heap take -o job.heap job.py --size 3\n\n\
             Exit codes: 0 done; 1 if the job refused or no job was found; 2 if the arguments were not understood; of a \
             program, its own.",
        )
        .args(ctl::target_arguments())
        .args(output::arguments().map(|argument| match argument.get_id().as_str() {
            "output" => argument.help("the snapshot's file; its ending is usually .heap [default: a name with the process in it]"),
            _ => argument,
        }))
        .arg(
            Arg::new("values")
                .long("values")
                .action(ArgAction::SetTrue)
                .help("keep short texts of strings and whole numbers, too: the program's data, so mind who gets the file"),
        )
        .arg(
            Arg::new("redact")
                .long("redact")
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .help("hide values and keys of dicts that match, and values under such names; * and ? as in a shell; repeatable"),
        )
        .arg(
            Arg::new("fork")
                .long("fork")
                .action(ArgAction::SetTrue)
                .conflicts_with("program")
                .help("walk in a forked copy of the job, so that it does not stand still"),
        )
        .arg(
            Arg::new("program")
                .value_name("SCRIPT")
                .num_args(0..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .conflicts_with_all(["pid", "url"])
                .value_parser(value_parser!(OsString))
                .help("a program to run, and its arguments"),
        )
}

pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    Output::check(matches)?;
    let program: Vec<&OsString> = matches.get_many("program").into_iter().flatten().collect();
    if !program.is_empty() {
        return run_program(matches, &program);
    }
    let patterns = matches.get_many::<String>("redact").into_iter().flatten();
    let patterns: Vec<Json> = patterns.map(|pattern| pattern.as_str().into()).collect();
    let body = object([
        ("values", matches.get_flag("values").into()),
        ("redact", patterns.into()),
        ("fork", matches.get_flag("fork").into()),
    ]);
    let stood_still = ctl::post(matches, "heap", &body.to_string())?;
    if let Some(milliseconds) = stood_still {
        eprintln!("heaptide: the job stood still for {milliseconds} ms");
    }
    Ok(())
}

/// Becomes the interpreter that runs the program.
fn run_program(matches: &ArgMatches, program: &[&OsString]) -> Result<(), Failure> {
    let texts: Option<Vec<&str>> = program.iter().map(|word| word.to_str()).collect();
    let output = matches
        .get_one::<PathBuf>("output")
        .map(|path| path.to_str());
    let (Some(texts), None | Some(Some(_))) = (texts, output) else {
        return Err(Failure::Usage(
            "a word of the command is not text: name files in UTF-8".into(),
        ));
    };
    let list = |words: &[&str]| Json::Array(words.iter().map(|word| (*word).into()).collect());
    let patterns = matches.get_many::<String>("redact").into_iter().flatten();
    let patterns: Vec<&str> = patterns.map(String::as_str).collect();
    let plan = object([
        ("kind", "script".into()),
        ("target", texts[0].into()),
        ("arguments", list(&texts[1..])),
        ("output", output.flatten().map(str::to_owned).into()),
        ("force", matches.get_flag("force").into()),
        ("values", matches.get_flag("values").into()),
        ("redact", list(&patterns)),
    ]);
    let interpreter = again::interpreter("heap");
    let error = std::process::Command::new(&interpreter)
        .args(["-m", "heaptide.heap_program", &plan.to_string()])
        .exec();
    Err(Failure::failed(format!(
        "{} cannot be started ({error}): run heaptide with the Python that has it installed",
        interpreter.to_string_lossy()
    )))
}
