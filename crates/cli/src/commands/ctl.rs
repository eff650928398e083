//! `heaptide ctl`: controls the profiler in a running program through its control API.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use heaptide_control::reports::REPORTS;
use serde_json::{Map, Value};

use crate::arguments::force;
use crate::control_client::{self, ControlClient};
use crate::exit::Failure;
use crate::output::Output;
use crate::running_processes;

/// The actions that are not reports, each with its request, if it sends one.
const ACTIONS: &[(&str, Option<Request>)] = &[
    ("list", None),
    ("status", Some(Request::new("GET", "status"))),
    ("start", Some(Request::new("POST", "start").with_body())),
    ("stop", Some(Request::new("POST", "stop"))),
    ("snapshot", Some(Request::new("POST", "snapshot"))),
    ("heap", Some(Request::new("POST", "heap").with_body())),
    ("sessions", Some(Request::new("GET", "sessions"))),
    ("show", Some(Request::new("GET", "sessions/{session}"))),
    ("delete", Some(Request::new("DELETE", "sessions/{session}"))),
    (
        "report",
        Some(Request::new("GET", "sessions/{session}/report")),
    ),
];

#[derive(Clone, Copy)]
struct Request {
    method: &'static str,
    path: &'static str,
    /// Whether parameters are sent as a JSON body rather than as a query.
    has_body: bool,
}

impl Request {
    const fn new(method: &'static str, path: &'static str) -> Request {
        Request {
            method,
            path,
            has_body: false,
        }
    }

    const fn with_body(self) -> Request {
        Request {
            has_body: true,
            ..self
        }
    }
}

pub(crate) fn arguments() -> Command {
    let actions = ACTIONS.iter().map(|action| action.0);
    let actions = actions.chain(REPORTS.iter().map(|report| report.name));
    Command::new("ctl")
        .about("Control the profiler in a running job")
        .long_about(
            "Control the profiler in a running job.\n\n\
             Finds programs of this user that have the control API (HEAPTIDE_CONTROL, heaptide serve, heaptide.asgi or \
             heaptide.wsgi); `list` shows them. If several are running, choose one with --pid. Name a program on another \
             machine with --url.",
        )
        .after_help(
            "Examples:\n  \
             heaptide ctl list\n  \
             heaptide ctl start mode=objects\n  \
             heaptide ctl flamegraph leaks=1\n  \
             heaptide ctl --pid 4711 stats format=json\n  \
             heaptide ctl --url http://job.example/pub/job/leak/1 stop\n\n\
             Exit codes: 0 success; 1 refused, or no program found; 2 invalid arguments.",
        )
        .args(control_client::arguments())
        .arg(
            Arg::new("session")
                .long("session")
                .value_name("ID")
                .help("session to use [default: the running one, or the latest]"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("file for a page or capture; - for standard output [default: named by the program]"),
        )
        .arg(force("overwrite an existing file"))
        .arg(
            Arg::new("action")
                .value_name("ACTION")
                .required(true)
                .value_parser(PossibleValuesParser::new(actions))
                .help("action or report"),
        )
        .arg(
            Arg::new("parameters")
                .value_name("NAME=VALUE")
                .num_args(0..)
                .help("options of start (mode=objects) or of the report (leaks=1, base=SESSION)"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let name = matches
        .get_one::<String>("action")
        .map_or("status", String::as_str);
    let request = match ACTIONS.iter().find(|action| action.0 == name) {
        Some((_, None)) => return list(),
        Some((_, Some(request))) => *request,
        None => Request::new("GET", "sessions/{session}/{report}"),
    };
    let client = ControlClient::new(matches)?;
    let parameters = parameters(matches)?;
    let session = matches
        .get_one::<String>("session")
        .map_or("latest", String::as_str);
    let mut path = request
        .path
        .replace("{session}", &encode(session))
        .replace("{report}", name);
    let mut body = String::new();
    if request.has_body {
        body = json_body(parameters).to_string();
    } else if !parameters.is_empty() {
        let pairs: Vec<String> = parameters
            .iter()
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
            .collect();
        path = format!("{path}?{}", pairs.join("&"));
    }
    let answer = client.send(request.method, &path, &body)?;
    client.deliver(answer).map(|_| ())
}

fn list() -> Result<(), Failure> {
    let programs = running_processes::list();
    let mut output = Output::standard();
    output.write(|out| {
        if programs.is_empty() {
            return writeln!(out, "no program with the control API is running");
        }
        programs
            .iter()
            .try_for_each(|program| writeln!(out, "{program}"))
    })?;
    output.finish()
}

fn parameters(matches: &ArgMatches) -> Result<Vec<(String, String)>, Failure> {
    let pairs = matches.get_many::<String>("parameters");
    pairs
        .into_iter()
        .flatten()
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) => Ok((name.trim_start_matches('-').to_owned(), value.to_owned())),
            None => Err(Failure::Usage(format!(
                "{pair:?} is not NAME=VALUE, for example leaks=1"
            ))),
        })
        .collect()
}

/// Returns parameters as a JSON object, with booleans and whole numbers converted.
fn json_body(parameters: Vec<(String, String)>) -> Value {
    let pairs = parameters.into_iter().map(|(name, value)| {
        let value = match value.as_str() {
            "true" | "yes" => true.into(),
            "false" | "no" => false.into(),
            text => text
                .parse::<i64>()
                .map_or_else(|_| Value::from(text), Value::from),
        };
        (name, value)
    });
    Value::Object(pairs.collect::<Map<String, Value>>())
}

fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
