//! `heaptide serve`: the job to serve, and the address. The caller, which has an interpreter, serves it.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::Outcome;
use crate::exit::Failure;
use crate::invocation::command_line::CommandLine;

pub(crate) const NAME: &str = "serve";

/// A job, and the address to serve it at.
#[derive(Clone, Debug, PartialEq)]
pub struct ServePlan {
    pub job: PathBuf,
    pub entrypoint: Option<String>,
    pub host: String,
    pub port: u16,
    pub name: Option<String>,
    pub version: String,
    pub grace_seconds: u32,
    pub guarded_elsewhere: bool,
}

pub(crate) fn arguments() -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new(NAME)
        .about("Serve a job over HTTP with control of the profiler")
        .long_about(
            "Serve a job over HTTP with control of the profiler.\n\n\
             The job is a class with a method perform, or a function, plain or async. POST …/api/v1/perform calls it \
             with JSON arguments; /docs has a form for every route; /live, /ready, /health and /metrics are for monitoring.\n\n\
             With HEAPTIDE_PROFILER=true (or MEMRAY_PROFILER=true) recording starts before the job's file is imported, and \
             the routes …/api/v1/profiler/start, stop, flamegraph, stats and others appear. On SIGTERM, running calls finish and \
             the capture is completed.",
        )
        .after_help(
            "Examples:\n  \
             HEAPTIDE_PROFILER=true heaptide serve examples/memory-leak/job.py\n  \
             curl -X POST http://127.0.0.1:7000/api/v1/perform -d '{}'\n  \
             curl -X POST http://127.0.0.1:7000/api/v1/profiler/stop\n  \
             curl http://127.0.0.1:7000/api/v1/profiler/stats",
        )
        .arg(
            Arg::new("job")
                .value_name("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Python file with the job"),
        )
        .arg(text("entrypoint", "NAME", "class or function to serve, if the file has several"))
        .arg(text("host", "HOST", "address to listen on").default_value("127.0.0.1"))
        .arg(
            text("port", "PORT", "port to listen on; 0 for any free port")
                .value_parser(value_parser!(u16))
                .default_value("7000"),
        )
        .arg(text("name", "NAME", "name of the job [default: its folder or file]"))
        .arg(text("version", "VERSION", "version of the job").default_value("0.0.1"))
        .arg(
            text("grace", "SECONDS", "time for running calls to finish after a signal")
                .value_parser(value_parser!(u32))
                .default_value("30"),
        )
        .arg(
            Arg::new("guarded_elsewhere")
                .long("guarded-elsewhere")
                .action(ArgAction::SetTrue)
                .help("require no token on a public address, because a gateway authenticates"),
        )
}

pub(crate) fn run(matches: &ArgMatches, _: CommandLine) -> Result<Outcome, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    Ok(Outcome::Serve(ServePlan {
        job: matches
            .get_one::<PathBuf>("job")
            .cloned()
            .unwrap_or_default(),
        entrypoint: text("entrypoint"),
        host: text("host").unwrap_or_default(),
        port: matches.get_one("port").copied().unwrap_or(7000),
        name: text("name"),
        version: text("version").unwrap_or_default(),
        grace_seconds: matches.get_one("grace").copied().unwrap_or(30),
        guarded_elsewhere: matches.get_flag("guarded_elsewhere"),
    }))
}
