//! `heaptide worker`: the job to run, the number of runs, and the report. The caller, which has an interpreter, runs it.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, value_parser};

use crate::Outcome;
use crate::exit::Failure;
use crate::invocation::command_line::CommandLine;

pub(crate) const NAME: &str = "worker";

/// A job and its options. `None` means the value of the setting.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerPlan {
    pub job: String,
    pub params: Option<String>,
    pub trace_memory: Option<bool>,
    pub trace_memory_type: Option<String>,
    pub trace_memory_output_dir: Option<PathBuf>,
    pub greenlets: Option<u32>,
    pub max_jobs: Option<u32>,
    pub max_memory: Option<u64>,
}

pub(crate) fn arguments() -> Command {
    let value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let number = |name: &'static str, help: &'static str| {
        value(name, "N", help).value_parser(value_parser!(u32).range(1..))
    };
    Command::new(NAME)
        .about("Run a job repeatedly and report what each run leaks")
        .long_about(
            "Run a job repeatedly and report what each run leaks: exact bytes, types, allocating lines.\n\n\
             1. Start with --trace_memory. After each job, a report lists the types of the leaked objects.\n\
             2. Choose the most specific type of that list, usually not list or dict, and start again with\n   \
             --trace_memory --trace_memory_type=TYPE --trace_memory_output_dir=memdbg.\n\
             3. The folder memdbg then has a graph for each job, with the objects that keep the leaked ones alive.\n\n\
             Every option is also a setting (`heaptide worker --trace_memory` is HEAPTIDE_TRACE_MEMORY=yes), also under MRQ's \
             name (MRQ_TRACE_MEMORY). The command line takes precedence.",
        )
        .after_help(
            "Examples:\n  \
             heaptide worker --trace_memory tasks.mail:send --params '{\"to\": \"me\"}'\n  \
             heaptide worker --trace_memory --trace_memory_type=Document --max_jobs 5 job.py\n  \
             heaptide worker --max_memory 500 --max_jobs 100000 jobs.jsonl\n\n\
             After SIGINT or SIGTERM the current jobs finish. The exit code is 1 if a job failed.",
        )
        .arg(
            Arg::new("job").value_name("JOB").required(true).help(
                "module:function, or module:Class with a method perform or run; a Python file with one of these; or a .jsonl \
                 file with lines {\"path\": \"module:function\", \"params\": {…}}",
            ),
        )
        .arg(value("params", "JSON", "arguments of each call, as a JSON object"))
        .arg(
            value("trace_memory", "YES", "report after each job what it leaked")
                .alias("trace-memory")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("yes")
                .value_parser(PossibleValuesParser::new(["yes", "no", "true", "false", "1", "0", "True", "False"])),
        )
        .arg(
            value("trace_memory_type", "TYPE", "draw what keeps leaked objects of this type alive")
                .alias("trace-memory-type"),
        )
        .arg(
            value("trace_memory_output_dir", "DIR", "folder for the graphs [default: memory_traces]")
                .alias("trace-memory-output-dir")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(number("greenlets", "number of concurrent jobs [default: 1]"))
        .arg(
            number("max_jobs", "exit after N jobs [default: 10; for a .jsonl file, each job once]")
                .alias("max-jobs"),
        )
        .arg(
            value("max_memory", "N", "exit after the current jobs once the process exceeds N MiB; write a report of the growth")
                .alias("max-memory")
                .value_parser(value_parser!(u64)),
        )
}

pub(crate) fn run(matches: &ArgMatches, _: CommandLine) -> Result<Outcome, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    Ok(Outcome::Worker(WorkerPlan {
        job: text("job").unwrap_or_default(),
        params: text("params"),
        trace_memory: text("trace_memory")
            .map(|word| matches!(word.to_lowercase().as_str(), "yes" | "true" | "1")),
        trace_memory_type: text("trace_memory_type"),
        trace_memory_output_dir: matches
            .get_one::<PathBuf>("trace_memory_output_dir")
            .cloned(),
        greenlets: matches.get_one("greenlets").copied(),
        max_jobs: matches.get_one("max_jobs").copied(),
        max_memory: matches.get_one("max_memory").copied(),
    }))
}
