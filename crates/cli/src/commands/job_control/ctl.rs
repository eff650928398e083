//! `heaptide ctl`: controls the profiler in a running program through its control API.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_capture::LabelSelector;
use heaptide_control::client::Answer;
use heaptide_control::reports::REPORTS;
use heaptide_report::text::controls::escape_line;
use serde_json::{Map, Value};

use crate::control::collect::{self, encode};
use crate::control::control_client::{self, ControlClient};
use crate::control::running_processes::{self, ProgramFilter, RunningProgram};
use crate::exit::Failure;
use crate::messages::{answer, message};
use crate::options::arguments::force;
use crate::output::Output;

/// The maximum number of programs that get a request at the same time.
const MAX_AT_ONCE: usize = 32;

/// The actions that are not reports, each with its request. `list` and `collect` are not single requests.
const ACTIONS: &[(&str, Option<Request>)] = &[
    ("list", None),
    ("collect", None),
    ("status", Some(Request::new("GET", "status"))),
    (
        "start",
        Some(Request::new("POST", "start").with_body().concurrent()),
    ),
    ("stop", Some(Request::new("POST", "stop").concurrent())),
    (
        "mode",
        Some(Request::new("POST", "mode").with_body().concurrent()),
    ),
    (
        "snapshot",
        Some(Request::new("POST", "snapshot").concurrent()),
    ),
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
    /// Whether several programs get the request at the same time. Their answers must be small, because they are read in
    /// turn.
    is_concurrent: bool,
}

impl Request {
    const fn new(method: &'static str, path: &'static str) -> Request {
        Request {
            method,
            path,
            has_body: false,
            is_concurrent: false,
        }
    }

    const fn with_body(self) -> Request {
        Request {
            has_body: true,
            ..self
        }
    }

    const fn concurrent(self) -> Request {
        Request {
            is_concurrent: true,
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
             heaptide.wsgi); `list` shows them. If several are running, choose one with --pid, or several with --name, \
             --label or --all. Name a program on another machine with --url. `collect` copies captures, timelines and job \
             records of several programs and hosts into a folder, which every report accepts.",
        )
        .after_help(
            "Examples:\n  \
             heaptide ctl list\n  \
             heaptide ctl start mode=objects\n  \
             heaptide ctl mode sampled\n  \
             heaptide ctl flamegraph leaks=1\n  \
             heaptide ctl --pid 4711 stats format=json\n  \
             heaptide ctl --url http://job.example/pub/job/leak/1 stop\n  \
             heaptide ctl --name 'celery*' start\n  \
             heaptide ctl --url http://web-1:7001 --url http://web-2:7001 -o collected collect\n\n\
             Exit codes: 0 success; 1 refused, or no program found; 2 invalid arguments.",
        )
        .args(control_client::arguments())
        .mut_arg("url", |arg| {
            arg.action(ArgAction::Append)
                .help("address of the program: http://host:port[/prefix] or unix:path; repeatable for collect")
        })
        .mut_arg("token_file", |arg| {
            arg.action(ArgAction::Append).help(
                "file with the token; repeatable for collect, one per --url in their order [default: HEAPTIDE_TOKEN_FILE, \
                 HEAPTIDE_TOKEN, or the created token]",
            )
        })
        .args(selection())
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
                .help("file for a page or capture, folder for collect; - for standard output [default: named by the program]"),
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
                .help("options of start and mode (mode=objects) or of the report (leaks=1, base=SESSION)"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let name = matches
        .get_one::<String>("action")
        .map_or("status", String::as_str);
    let request = match ACTIONS.iter().find(|action| action.0 == name) {
        Some((name, None)) if *name == "collect" => return collect_all(matches),
        Some((_, None)) => return list(&program_filter(matches)),
        Some((_, Some(request))) => *request,
        None => Request::new("GET", "sessions/{session}/{report}"),
    };
    for (name, option) in [("url", "--url"), ("token_file", "--token-file")] {
        if n_given(matches, name) > 1 {
            let sentence = format!("several {option} are only for collect: name one");
            return Err(Failure::Usage(sentence));
        }
    }
    let parameters = parameters(matches, name == "mode")?;
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
    if chooses_several(matches) {
        return send_to_all(matches, request, &path, &body);
    }
    let client = ControlClient::new(matches)?;
    let answer = client.send(request.method, &path, &body)?;
    client.deliver(answer).map(|_| ())
}

/// The options that choose several programs of this machine.
fn selection() -> [Arg; 3] {
    let several = |arg: Arg| arg.conflicts_with_all(["pid", "url"]);
    [
        several(Arg::new("all").long("all"))
            .action(ArgAction::SetTrue)
            .help("all programs of this user on this machine"),
        several(Arg::new("names").long("name").value_name("PATTERN"))
            .action(ArgAction::Append)
            .help("programs with this name, run or role; * and ? match as in a shell; repeatable"),
        several(Arg::new("labels").long("label").value_name("KEY=VALUE"))
            .action(ArgAction::Append)
            .value_parser(value_parser!(LabelSelector))
            .help("programs that have a process with this label; repeatable"),
    ]
}

fn program_filter(matches: &ArgMatches) -> ProgramFilter {
    let names = matches.get_many::<String>("names").into_iter().flatten();
    let labels = matches.get_many::<LabelSelector>("labels");
    ProgramFilter {
        names: names.cloned().collect(),
        labels: labels.into_iter().flatten().cloned().collect(),
    }
}

fn n_given(matches: &ArgMatches, name: &str) -> usize {
    let values = matches.get_raw(name);
    values.map_or(0, |values| values.len())
}

fn chooses_several(matches: &ArgMatches) -> bool {
    matches.get_flag("all") || n_given(matches, "names") + n_given(matches, "labels") > 0
}

/// Returns the chosen programs of this machine. Fails if there are none.
fn chosen_programs(matches: &ArgMatches) -> Result<Vec<RunningProgram>, Failure> {
    let filter = program_filter(matches);
    let mut programs = running_processes::list();
    programs.retain(|program| filter.wants(program));
    if programs.is_empty() {
        return Err(Failure::failed(
            "no running program with the control API matches: `heaptide ctl list` shows them",
        ));
    }
    Ok(programs)
}

/// Sends a request to each chosen program. If one fails, the others still get the request.
fn send_to_all(
    matches: &ArgMatches,
    request: Request,
    path: &str,
    body: &str,
) -> Result<(), Failure> {
    if matches.contains_id("output") {
        let sentence = "-o names one file: omit it, or choose one program with --pid";
        return Err(Failure::Usage(sentence.to_owned()));
    }
    let token_file = matches.get_one::<PathBuf>("token_file");
    let programs = chosen_programs(matches)?;
    let clients = programs.iter().map(|program| {
        let address = program.addresses[0].clone();
        ControlClient::at(matches, address, String::new(), token_file)
    });
    let clients: Vec<ControlClient> = clients.collect::<Result<_, _>>()?;
    let mut n_failed = 0;
    let n_at_once = if request.is_concurrent {
        MAX_AT_ONCE
    } else {
        1
    };
    for (programs, clients) in programs.chunks(n_at_once).zip(clients.chunks(n_at_once)) {
        let answers = send_at_once(clients, request.method, path, body);
        for ((program, client), answer) in programs.iter().zip(clients).zip(answers) {
            answer!("{program}");
            if let Err(failure) = answer.and_then(|answer| client.deliver(answer)) {
                n_failed += 1;
                message!("{}: {failure}", program.name);
            }
        }
    }
    match n_failed {
        0 => Ok(()),
        n => Err(Failure::failed(format!(
            "{n} of {} programs refused the request",
            programs.len()
        ))),
    }
}

/// Sends a request to several programs at the same time, so that a slow one delays no other.
fn send_at_once(
    clients: &[ControlClient],
    method: &str,
    path: &str,
    body: &str,
) -> Vec<Result<Answer, Failure>> {
    std::thread::scope(|scope| {
        let requests = clients.iter();
        let requests: Vec<_> = requests
            .map(|client| scope.spawn(move || client.send(method, path, body)))
            .collect();
        let requests = requests.into_iter();
        let answers = requests.map(|request| request.join());
        answers
            .map(|answer| answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn collect_all(matches: &ArgMatches) -> Result<(), Failure> {
    let folder = matches
        .get_one::<PathBuf>("output")
        .ok_or_else(|| Failure::Usage("collect needs a folder: add -o FOLDER".to_owned()))?;
    let urls: Vec<&String> = matches.get_many("url").into_iter().flatten().collect();
    let tokens: Vec<&PathBuf> = matches
        .get_many("token_file")
        .into_iter()
        .flatten()
        .collect();
    if tokens.len() > 1 && tokens.len() != urls.len() {
        return Err(Failure::Usage(format!(
            "{} token files for {} addresses: give one for all, or one for each --url in their order",
            tokens.len(),
            urls.len()
        )));
    }
    let token_of = |at: usize| match tokens.len() {
        1 => Some(tokens[0]),
        _ => tokens.get(at).copied(),
    };
    let clients: Vec<ControlClient> = if !urls.is_empty() {
        let urls = urls.iter().enumerate();
        urls.map(|(at, url)| ControlClient::at_url(matches, url, token_of(at)))
            .collect::<Result<_, _>>()?
    } else if matches.contains_id("pid") {
        vec![ControlClient::new(matches)?]
    } else {
        let programs = chosen_programs(matches)?;
        let clients = programs.iter().map(|program| {
            let address = program.addresses[0].clone();
            ControlClient::at(matches, address, String::new(), token_of(0))
        });
        clients.collect::<Result<_, _>>()?
    };
    collect::collect(&clients, folder)
}

fn list(filter: &ProgramFilter) -> Result<(), Failure> {
    let mut programs = running_processes::list();
    let nothing = match programs.is_empty() {
        true => "no program with the control API is running",
        false => "no running program with the control API matches",
    };
    programs.retain(|program| filter.wants(program));
    let mut output = Output::standard();
    output.write(|out| {
        if programs.is_empty() {
            return writeln!(out, "{nothing}");
        }
        programs
            .iter()
            .try_for_each(|program| writeln!(out, "{}", escape_line(&program.to_string())))
    })?;
    output.finish()
}

/// Returns the parameters. A word without a value is the mode, where one is expected.
fn parameters(matches: &ArgMatches, takes_mode: bool) -> Result<Vec<(String, String)>, Failure> {
    let pairs = matches.get_many::<String>("parameters");
    pairs
        .into_iter()
        .flatten()
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) => Ok((name.trim_start_matches('-').to_owned(), value.to_owned())),
            None if takes_mode => Ok(("mode".to_owned(), pair.clone())),
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::sync::Barrier;

    use heaptide_control::Address;

    use super::*;

    #[test]
    fn all_programs_get_a_request_before_the_first_one_answers() {
        let folder = std::env::temp_dir().join(format!("heaptide-ctl-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let matches = arguments().get_matches_from(["ctl", "--all", "stop"]);
        let paths = ["one", "two", "three"].map(|name| folder.join(name));
        let listeners = paths.clone().map(|path| UnixListener::bind(path).unwrap());
        let all_requests_arrived = Barrier::new(listeners.len());
        std::thread::scope(|scope| {
            for listener in &listeners {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let n_read = stream.read(&mut [0; 4096]).unwrap();
                    assert!(n_read > 0);
                    all_requests_arrived.wait();
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
                    stream.write_all(answer).unwrap();
                });
            }
            let clients = paths.clone().map(|path| {
                let address = Address::Unix(path);
                ControlClient::at(&matches, address, String::new(), None).unwrap()
            });
            let answers = send_at_once(&clients, "POST", "stop", "").into_iter();
            let statuses: Vec<u16> = answers.map(|answer| answer.unwrap().status).collect();
            assert_eq!(statuses, [200, 200, 200]);
        });
        std::fs::remove_dir_all(folder).unwrap();
    }
}
