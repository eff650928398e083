//! `heaptide record`: samples the memory of a process tree over time, from outside.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use heaptide_capture::redact::Redaction;
use heaptide_procfs as procfs;
use heaptide_report::{shell, units};
use heaptide_timeline::{Backend, Ending, Format, Header, header_text};
use heaptide_watch::cgroup;
use heaptide_watch::node::{self, Node};
use heaptide_watch::{Finished, Plan, Target, watch};

use crate::exit::Failure;
use crate::invocation::reinvoke;
use crate::messages::message;
use crate::options::arguments::{self, flag, force, quiet};
use crate::output::timeline_file;

pub(crate) const NAME: &str = "record";

/// The default of --timeout with --attach, as in mprof: an attached process may run forever.
const ATTACH_TIMEOUT_S: f64 = 3600.0;
/// Sampling more often costs more than it shows.
const MIN_INTERVAL_S: f64 = 0.001;

pub(crate) fn arguments() -> Command {
    Command::new(NAME)
        .about("Record the memory of a process tree over time")
        .long_about(
            "Record the memory of a process tree over time.\n\n\
             Works on any program in any language; nothing needs to be installed in it. Samples the resident size at every \
             interval, and the proportional size, unique size and swap as often as 1% of one core allows. View the result \
             with heaptide plot and heaptide peak.",
        )
        .override_usage("heaptide record [OPTIONS] [--] COMMAND [ARGS]...\n       heaptide record [OPTIONS] --attach PID|NAME")
        .after_help(
            "Arguments after the command go to the command. A name that ends in .py is run by Python.\n\
             Exit code, streams and signals of the command are unchanged.\n\n\
             Examples:\n  \
               heaptide record -- python app.py          then: heaptide plot\n  \
               heaptide record --dat -C -M app.py        a file for mprof, with children\n  \
               mpirun -n 4 heaptide record --node app.py a file for each rank\n  \
               heaptide record --attach 4711 --timeout 60",
        )
        .arg(
            Arg::new("interval")
                .short('T')
                .long("interval")
                .value_name("SECONDS")
                .value_parser(interval)
                .default_value("0.1")
                .help("time between two samples"),
        )
        .arg(flag("include-children", "in a .dat: add all processes to the main curve").short('C'))
        .arg(flag("multiprocess", "in a .dat: one curve for each child process").short('M'))
        .arg(arguments::output(
            "timeline file; .dat for mprof's format [default: heaptide-<program>.<pid>.timeline]",
        ))
        .arg(force("replace an existing file"))
        .arg(
            Arg::new("backend")
                .long("backend")
                .value_name("KIND")
                .value_parser(["rss", "pss", "uss", "psutil", "psutil_pss", "psutil_uss", "posix"])
                .hide_possible_values(true)
                .default_value("rss")
                .help("measure of the main curve: rss (resident), pss (proportional), uss (unique), or mprof's name"),
        )
        .arg(
            Arg::new("attach")
                .short('a')
                .long("attach")
                .value_name("PID|NAME")
                .conflicts_with("command")
                .help("sample a running process, by process ID or part of its name"),
        )
        .arg(
            Arg::new("timeout")
                .short('t')
                .long("timeout")
                .value_name("SECONDS")
                .value_parser(positive)
                .help("stop recording after this time; the program continues [default: none; with --attach one hour]"),
        )
        .arg(flag("dat", "write mprof's format [default file: mprofile_<YYYYmmddHHMMSS>.dat]"))
        .arg(flag(
            "node",
            "name the file by rank: mprofile_<YYYYmmddHHMMSS>.dat for rank 0, <host>.dat for others; \
             HEAPTIDE_OUT or COMPSS_WORKER_PROFILE_PATH sets the folder",
        ))
        .arg(
            flag("fresh", "for mprof: add the rank to the file name, and move an earlier file aside")
                .hide(true),
        )
        .arg(flag("python", "run the command with Python even if its name does not end in .py"))
        .arg(
            flag("nopython", "run the command directly even if its name ends in .py")
                .conflicts_with("python"),
        )
        .arg(
            flag("exit-code", "accepted for mprof; the exit code is always the command's")
                .short('E')
                .hide(true),
        )
        .arg(quiet())
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .num_args(0..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .value_parser(value_parser!(OsString))
                .help("command and its arguments"),
        )
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    if number > 0.0 && number < 1e9 {
        Ok(number)
    } else {
        Err("must be more than 0 and less than 1000000000".into())
    }
}

pub(crate) fn interval(text: &str) -> Result<f64, String> {
    match positive(text)? {
        seconds if seconds < MIN_INTERVAL_S => Err("must be at least 0.001".into()),
        seconds => Ok(seconds),
    }
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let target = target(matches)?;
    let node = Node::of_this_process();
    let is_node = matches.get_flag("node");
    let named = matches.get_one::<PathBuf>("output");
    let is_dat = is_node
        || matches.get_flag("dat")
        || named.is_some_and(|path| path.extension().is_some_and(|ending| ending == "dat"));
    let format = if is_dat {
        Format::Mprof {
            include_children: is_node || matches.get_flag("include-children"),
            multiprocess: is_node || matches.get_flag("multiprocess"),
        }
    } else {
        Format::Heaptide
    };
    let seconds = |name: &str| matches.get_one::<f64>(name).copied();
    let interval_s = seconds("interval").unwrap_or(0.1);
    let is_attached = matches!(target, Target::Process(_));
    let timeout = seconds("timeout").or(is_attached.then_some(ATTACH_TIMEOUT_S));
    let backend = matches
        .get_one::<String>("backend")
        .and_then(|name| Backend::parse(name));
    let mut header = Header {
        host: Some(node.host.clone()),
        rank: node.rank.filter(|_| is_node),
        interval_s,
        backend: backend.unwrap_or_default(),
        ..Header::default()
    };
    target.describe(&mut header, redacted);
    let (file, path) = open(matches, &target, &node, &header_text(format, &header))?;
    let plan = Plan {
        target,
        interval: Duration::from_secs_f64(interval_s),
        timeout: timeout.map(Duration::from_secs_f64),
        format,
        groups: cgroup::ROOT.into(),
        membership: None,
        header,
        hide: redacted,
    };
    let finished = watch(plan, file, &path).map_err(|error| {
        // Nothing was recorded. Remove only a regular file, never a device or a pipe.
        if path.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let _ = std::fs::remove_file(&path);
        }
        message!("{error}");
        Failure::Ended(error.exit_code())
    })?;
    if !matches.get_flag("quiet") {
        report_end(&finished, &path, format);
    }
    if let Some(error) = &finished.write_error {
        message!(
            "{} is incomplete ({error}): check the disk space; the program was not affected",
            path.display()
        );
    }
    end(finished.ending, is_attached)
}

/// Hides secrets in the command line. The same environment variables configure this for recorded programs.
fn redacted(words: Vec<String>) -> Vec<String> {
    let value = |long: &str, short: &str| {
        let value = std::env::var(long).or_else(|_| std::env::var(short));
        value.unwrap_or_default()
    };
    let patterns = value("HEAPTIDE__PROFILING__REDACT", "HEAPTIDE_REDACT");
    let patterns: Vec<String> = patterns
        .split(',')
        .map(|pattern| pattern.trim().to_owned())
        .collect();
    let token = value("HEAPTIDE__PROFILING__TOKEN", "HEAPTIDE_TOKEN");
    Redaction::new(&patterns, &[token]).command(words)
}

fn target(matches: &ArgMatches) -> Result<Target, Failure> {
    if let Some(hint) = matches.get_one::<String>("attach") {
        return attached(hint).map(Target::Process);
    }
    let mut words: Vec<OsString> = matches
        .get_many::<OsString>("command")
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let Some(first) = words.first() else {
        return Err(Failure::Usage(
            "nothing to record: name a command, or a process with --attach".into(),
        ));
    };
    let is_script = first.to_string_lossy().ends_with(".py") && !matches.get_flag("nopython");
    if is_script || matches.get_flag("python") {
        words.insert(0, reinvoke::interpreter(NAME));
    }
    Ok(Target::Command(words))
}

fn attached(hint: &str) -> Result<u32, Failure> {
    if hint.is_empty() {
        return Err(Failure::Usage(
            "--attach needs a process ID or part of a name".into(),
        ));
    }
    if hint.bytes().all(|byte| byte.is_ascii_digit()) {
        let pid = hint.parse::<u32>().ok().filter(|&pid| procfs::exists(pid));
        return pid.ok_or_else(|| {
            Failure::failed(format!(
                "there is no process {hint}: check the process ID, it may have ended"
            ))
        });
    }
    procfs::find_by_name(hint).ok_or_else(|| {
        Failure::failed(format!(
            "no process has {hint} in its name: check it with ps, or use a process ID"
        ))
    })
}

fn open(
    matches: &ArgMatches,
    target: &Target,
    node: &Node,
    header: &str,
) -> Result<(std::fs::File, PathBuf), Failure> {
    if let Some(path) = matches.get_one::<PathBuf>("output") {
        if matches.get_flag("fresh") {
            return timeline_file::fresh(&node.own_path(path), header);
        }
        return timeline_file::named(path, matches.get_flag("force"), header);
    }
    let folder = node::folder()
        .filter(|_| matches.get_flag("node"))
        .unwrap_or_default();
    if matches.get_flag("node") {
        timeline_file::node(&folder, node, header)
    } else if matches.get_flag("dat") {
        timeline_file::mprof(&folder, header)
    } else {
        timeline_file::own(&folder, &program_name(target), header)
    }
}

/// Returns the name of the program for the file name: the script if there is one, else the command.
fn program_name(target: &Target) -> String {
    let name = match target {
        Target::Process(pid) => format!("pid{pid}"),
        Target::Command(words) => {
            let is_script = |word: &&OsString| word.to_string_lossy().ends_with(".py");
            let word = words.iter().find(is_script).or(words.first());
            let name = word
                .and_then(|word| Path::new(word).file_name())
                .unwrap_or_default();
            name.to_string_lossy().into_owned()
        }
    };
    name.replace(
        |letter: char| letter.is_control() || letter.is_whitespace(),
        "_",
    )
}

fn report_end(finished: &Finished, path: &Path, format: Format) {
    let shown = path.display().to_string();
    if finished.n_oom_kills > 0 {
        message!("the kernel killed a process of this run because memory ran out");
    }
    if finished.n_resident_only > 0 {
        message!(
            "shared memory of {} processes of other users is unreadable: their resident size is used instead",
            finished.n_resident_only
        );
    }
    message!(
        "peak memory: {}, all processes together",
        units::size(finished.peak_bytes)
    );
    let first = finished.first_process_peak_bytes;
    if is_of_first_process(format) && first < finished.peak_bytes {
        message!(
            "{shown} has only the first process, at most {}: -C adds its children, and a .timeline file has all",
            units::size(first)
        );
    }
    message!("recorded into {shown}");
    message!("view it with: heaptide plot {}", shell::quote(&shown));
}

fn is_of_first_process(format: Format) -> bool {
    let without_children = Format::Mprof {
        include_children: false,
        multiprocess: false,
    };
    format == without_children
}

/// Exits like the program, so that the parent sees the same exit code or signal.
fn end(ending: Ending, is_attached: bool) -> Result<(), Failure> {
    match ending {
        _ if is_attached => Ok(()),
        Ending::Exit(0) | Ending::StillRunning | Ending::Unknown => Ok(()),
        Ending::Exit(code) => Err(Failure::Ended(code)),
        Ending::Signal(signal) => {
            heaptide_watch::die_of(signal);
            Err(Failure::Ended(128 + signal))
        }
    }
}
