//! `heaptide heap take`: takes a heap snapshot of a running process, or of a program when it ends.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_attach::visit::{self, HeapRequest};
use heaptide_attach::{Target, shared_folder};
use heaptide_procfs as procfs;
use heaptide_report::units;
use serde_json::json;

use crate::commands::recording::{attach, detach};
use crate::control::control_client::{self, ControlClient};
use crate::control::running_processes;
use crate::exit::Failure;
use crate::invocation::reinvoke;
use crate::messages::message;
use crate::output::{self, Output};

pub(super) fn arguments() -> Command {
    Command::new("take")
        .about("Take a heap snapshot of a process or program")
        .long_about(
            "Take a heap snapshot of a process or program.\n\n\
             --pid names any Python process of this machine. Heaptide uses its control API if it has one (HEAPTIDE_CONTROL, \
             heaptide serve, heaptide.asgi or heaptide.wsgi), and otherwise attaches to it as heaptide attach does. --url names a \
             program on another machine. The process is paused during the walk, with --fork only during the fork; the length of \
             the pause is printed. The walk creates no object in it. A script is run to its end, and the snapshot is taken before \
             the interpreter is finalized. A program can take its own snapshot with heaptide.heap_snapshot().",
        )
        .after_help(
            "Examples:\n  \
             heaptide heap take --pid 4711 -o before.heap\n  \
             heaptide heap take --url http://job.example/pub/job/leak/1 --fork\n  \
             heaptide heap take -o job.heap job.py --size 3\n\n\
             Exit codes: 0 success; 1 refused, or no process found; 2 invalid arguments; with a script, its exit code.",
        )
        .args(process_arguments())
        .arg(
            Arg::new("program")
                .value_name("SCRIPT")
                .num_args(0..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .conflicts_with_all(["pid", "url", "fork"])
                .value_parser(value_parser!(OsString))
                .help("script to run, and its arguments"),
        )
}

/// The arguments for the process, the file and the walk.
pub(super) fn process_arguments() -> Vec<Arg> {
    let output = output::arguments().map(|argument| match argument.get_id().as_str() {
        "output" => {
            argument.help("snapshot file, usually .heap [default: named after the process]")
        }
        _ => argument,
    });
    let how = [
        Arg::new("values")
            .long("values")
            .action(ArgAction::SetTrue)
            .help("also store short strings and integers, which may contain private data"),
        Arg::new("redact")
            .long("redact")
            .value_name("PATTERN")
            .action(ArgAction::Append)
            .help("hide matching values and dict keys, and values under such names; * and ? match as in a shell; repeatable"),
        Arg::new("fork")
            .long("fork")
            .action(ArgAction::SetTrue)
            .help("walk a forked copy, which shortens the pause"),
    ];
    control_client::arguments()
        .into_iter()
        .chain(output)
        .chain(how)
        .collect()
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let program: Vec<&OsString> = matches.get_many("program").into_iter().flatten().collect();
    if !program.is_empty() {
        Output::check(matches)?;
        return run_program(matches, &program);
    }
    of_process(matches).map(|_| ())
}

/// Takes a snapshot of a running process. Returns the path of the file.
pub(super) fn of_process(matches: &ArgMatches) -> Result<PathBuf, Failure> {
    Output::check(matches)?;
    if let Some(&pid) = matches.get_one::<u32>("pid") {
        let programs = running_processes::list();
        if !programs.iter().any(|program| program.pids.contains(&pid)) {
            return by_attaching(matches, pid);
        }
    } else if !matches.contains_id("url") && running_processes::list().is_empty() {
        return Err(Failure::failed(
            "no program with the control API is running: name a process with --pid, an address with --url, or a program to run",
        ));
    }
    let body = json!({
        "values": matches.get_flag("values"),
        "redact": patterns(matches).collect::<Vec<_>>(),
        "fork": matches.get_flag("fork"),
    });
    let client = ControlClient::new(matches)?;
    let answer = client.send("POST", "heap", &body.to_string())?;
    let pause_ms = answer.header("X-Heaptide-Paused-Ms").map(str::to_owned);
    let path = client.deliver(answer)?;
    if let Some(pause_ms) = &pause_ms {
        report_pause(pause_ms);
    }
    Ok(path.unwrap_or_else(|| "-".into()))
}

fn report_pause(milliseconds: &str) {
    if let Ok(milliseconds) = milliseconds.parse::<f64>() {
        let pause = units::duration(milliseconds / 1e3);
        message!("the program was paused for {pause}");
    }
}

fn patterns(matches: &ArgMatches) -> impl Iterator<Item = &String> {
    matches.get_many::<String>("redact").into_iter().flatten()
}

/// Takes a snapshot of a process without the control API, by attaching.
fn by_attaching(matches: &ArgMatches, pid: u32) -> Result<PathBuf, Failure> {
    if matches
        .get_one::<PathBuf>("output")
        .is_some_and(|path| path.as_os_str() == "-")
    {
        return Err(Failure::Usage(format!(
            "process {pid} has no control API, so its snapshot cannot go to standard output: name a file with -o"
        )));
    }
    let target = Target::find(pid).map_err(Failure::failed)?;
    let final_path = attach::destination(matches, pid, "heap")?;
    let is_direct = procfs::sees_same_files(pid);
    let made = is_direct
        && shared_folder::make_for(&target, &final_path)
            .map_err(|error| Failure::writing(final_path.display(), &error))?;
    let request = HeapRequest {
        final_path: final_path.clone(),
        is_direct,
        overwrite: made || matches.get_flag("force"),
        values: matches.get_flag("values"),
        redact: patterns(matches).cloned().collect(),
        fork: matches.get_flag("fork"),
    };
    let visited = visit::take_heap(&target, &request).map_err(|refusal| {
        if made {
            // The file is still empty.
            let _ = std::fs::remove_file(&final_path);
        }
        Failure::failed(refusal)
    })?;
    if !is_direct {
        detach::fetch(pid, &visited.capture, &final_path)?;
    }
    message!(
        "wrote the heap snapshot of process {pid} to {}",
        final_path.display()
    );
    report_pause(&visited.note);
    Ok(final_path)
}

/// Replaces this process by the interpreter that runs the program.
fn run_program(matches: &ArgMatches, program: &[&OsString]) -> Result<(), Failure> {
    let output = matches.get_one::<PathBuf>("output");
    // The folder is checked before the program runs, because afterwards the heap would be lost.
    let folder = output.and_then(|path| path.parent());
    if let Some(folder) = folder {
        if !folder.as_os_str().is_empty() && !folder.is_dir() {
            return Err(Failure::failed(format!(
                "there is no folder {}: create it, or choose another with -o",
                folder.display()
            )));
        }
    }
    let plan = json!({
        "kind": "script",
        "force": matches.get_flag("force"),
        "values": matches.get_flag("values"),
        "redact": patterns(matches).collect::<Vec<_>>(),
    });
    let interpreter = reinvoke::interpreter("heap");
    let error = std::process::Command::new(&interpreter)
        .args(["-m", "heaptide.commands.heap_take", &plan.to_string()])
        // Separate words, because JSON cannot hold names that are not UTF-8.
        .arg(output.map_or(OsStr::new(""), |path| path.as_os_str()))
        .args(program)
        .exec();
    Err(Failure::failed(format!(
        "cannot start {} ({error}): run heaptide with the Python that it is installed in",
        interpreter.to_string_lossy()
    )))
}
