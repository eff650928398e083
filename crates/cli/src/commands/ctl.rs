//! `heaptide ctl`: a running job's control from a terminal. Finds local jobs by itself.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_control::Address;
use heaptide_control::client::{self, Answer};
use heaptide_control::json::{Json, object};
use heaptide_control::routes::BASE;

use crate::exit::Failure;
use crate::output::Output;
use crate::running_processes::{self, RunningProgram};

/// Large captures take their time; a job that waits for its interpreter, too.
const TIMEOUT: Duration = Duration::from_secs(600);
const ACTIONS: &[&str] = &[
    "list",
    "status",
    "start",
    "stop",
    "snapshot",
    "heap",
    "sessions",
    "show",
    "delete",
    "report",
    "flamegraph",
    "table",
    "stats",
    "summary",
    "tree",
    "timeline",
    "diff",
];

pub fn arguments() -> Command {
    Command::new("ctl")
        .about("Steer the profiler of a running job: status, start, stop, snapshot, reports")
        .long_about(
            "Steer the profiler of a running job: status, start, stop, snapshot, reports.\n\n\
             Jobs of this user with control (HEAPTIDE_CONTROL, heaptide serve, heaptide.asgi or heaptide.wsgi) are found by \
             themselves; `list` shows them. If there are several, say which with --pid. A job on another machine is named \
             by --url.",
        )
        .after_help(
            "Examples:\n  \
             heaptide ctl list\n  \
             heaptide ctl start mode=objects\n  \
             heaptide ctl flamegraph leaks=1\n  \
             heaptide ctl --pid 4711 stats format=json\n  \
             heaptide ctl --url http://job.example/pub/job/leak/1 stop\n\n\
             Exit codes: 0 done; 1 if the job refused or no job was found; 2 if the arguments were not understood.",
        )
        .args(target_arguments())
        .arg(
            Arg::new("session")
                .long("session")
                .value_name("ID")
                .help("the session to look at [default: the one that runs, or the last one]"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("where a page or a capture goes; - is standard output [default: the name the job gives it]"),
        )
        .arg(
            Arg::new("force")
                .short('f')
                .long("force")
                .action(ArgAction::SetTrue)
                .help("overwrite the file if it exists"),
        )
        .arg(
            Arg::new("action")
                .value_name("ACTION")
                .required(true)
                .value_parser(clap::builder::PossibleValuesParser::new(ACTIONS))
                .help("what to do"),
        )
        .arg(
            Arg::new("parameters")
                .value_name("NAME=VALUE")
                .num_args(0..)
                .help("options: of start (mode=objects), or of the report (leaks=1, num-largest=10, base=SESSION)"),
        )
}

pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let action = matches
        .get_one::<String>("action")
        .map_or("status", String::as_str);
    if action == "list" {
        return list();
    }
    let (address, prefix) = target(matches)?;
    let parameters = parameters(matches)?;
    let session = matches
        .get_one::<String>("session")
        .map_or("latest", String::as_str);
    let below = format!("{prefix}{BASE}");
    let (method, path) = match action {
        "status" | "sessions" => ("GET", format!("{below}/{action}")),
        "start" | "stop" | "snapshot" | "heap" => ("POST", format!("{below}/{action}")),
        "show" => ("GET", format!("{below}/sessions/{}", encode(session))),
        "delete" => ("DELETE", format!("{below}/sessions/{}", encode(session))),
        report => (
            "GET",
            format!("{below}/sessions/{}/{report}", encode(session)),
        ),
    };
    let (query, body) = if ["start", "heap"].contains(&action) {
        (String::new(), start_body(&parameters).to_string())
    } else {
        let pairs: Vec<String> = parameters
            .iter()
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
            .collect();
        (pairs.join("&"), String::new())
    };
    let path = if query.is_empty() {
        path
    } else {
        format!("{path}?{query}")
    };
    let answer = ask(matches, &address, method, &path, &body)?;
    show(matches, &address, answer).map(|_| ())
}

/// How a job is named.
pub fn target_arguments() -> [Arg; 3] {
    [
        Arg::new("url")
            .long("url")
            .value_name("URL")
            .conflicts_with("pid")
            .help("where the job answers: http://host:port, with whatever stands before /api, or unix:path"),
        Arg::new("pid")
            .long("pid")
            .value_name("PID")
            .value_parser(value_parser!(u32))
            .help("the job's process, or one of them"),
        Arg::new("token_file")
            .long("token-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("a file with the token [default: HEAPTIDE_TOKEN_FILE or HEAPTIDE_TOKEN, if it is set]"),
    ]
}

/// Whether there is any job with control on this machine.
pub fn finds_jobs() -> bool {
    !running_processes::list().is_empty()
}

/// Whether a process has control.
pub fn answers(pid: u32) -> bool {
    running_processes::list()
        .iter()
        .any(|job| job.pids.contains(&pid))
}

/// What a job sent.
pub struct Kept {
    /// Where it is.
    pub path: PathBuf,
    /// For how long the job stood still for it, if it says so.
    pub stood_still_ms: Option<String>,
}

/// Asks the job for something and keeps what it sends.
pub fn post(matches: &ArgMatches, what: &str, body: &str) -> Result<Kept, Failure> {
    let (address, prefix) = target(matches)?;
    let answer = ask(
        matches,
        &address,
        "POST",
        &format!("{prefix}{BASE}/{what}"),
        body,
    )?;
    let stood_still_ms = answer
        .header("X-Heaptide-Stood-Still-Ms")
        .map(str::to_owned);
    let path = show(matches, &address, answer)?;
    Ok(Kept {
        path: path.unwrap_or_else(|| "-".into()),
        stood_still_ms,
    })
}

fn ask(
    matches: &ArgMatches,
    address: &Address,
    method: &str,
    path: &str,
    body: &str,
) -> Result<Answer, Failure> {
    let bearer = token(matches)?.map(|token| format!("Bearer {token}"));
    let headers: Vec<(&str, &str)> = bearer
        .iter()
        .map(|bearer| ("Authorization", bearer.as_str()))
        .collect();
    client::call(address, method, path, &headers, body.as_bytes(), TIMEOUT).map_err(|error| {
        Failure::failed(format!(
            "{address} does not answer ({error}): does the job run?"
        ))
    })
}

/// Where to ask, and what stands before the routes.
fn target(matches: &ArgMatches) -> Result<(Address, String), Failure> {
    if let Some(url) = matches.get_one::<String>("url") {
        return from_url(url);
    }
    let found = running_processes::list();
    let wanted = matches.get_one::<u32>("pid");
    let fitting: Vec<&RunningProgram> = found
        .iter()
        .filter(|job| wanted.is_none_or(|pid| job.pids.contains(pid)))
        .collect();
    match (fitting.as_slice(), wanted) {
        ([job], _) => {
            let at = wanted.and_then(|pid| job.pids.iter().position(|one| one == pid));
            Ok((job.addresses[at.unwrap_or(0)].clone(), String::new()))
        }
        ([], Some(pid)) => Err(Failure::failed(match running_processes::other_user(*pid) {
            Some(user) => format!(
                "process {pid} belongs to another user, whose jobs you may not ask: do so as user {user}"
            ),
            None => format!(
                "process {pid} has no control: start it with HEAPTIDE_CONTROL=PORT, or see `heaptide ctl list`"
            ),
        })),
        ([], None) => Err(Failure::failed(
            "no job with control was found: start it with HEAPTIDE_CONTROL=PORT, or name it with --url",
        )),
        (several, _) => Err(Failure::Usage(format!(
            "there are several jobs: choose one with --pid\n{}",
            several
                .iter()
                .map(|job| describe(job))
                .collect::<Vec<_>>()
                .join("\n")
        ))),
    }
}

fn from_url(url: &str) -> Result<(Address, String), Failure> {
    let refuse = |reason: String| Failure::Usage(reason);
    if url.starts_with("unix:") {
        return Ok((Address::parse(url).map_err(refuse)?, String::new()));
    }
    let rest = url.strip_prefix("http://").ok_or_else(|| {
        Failure::Usage(format!(
            "{url:?} is not an address: write http://host:port or unix:path"
        ))
    })?;
    let (host, prefix) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = if has_port {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let prefix = prefix.split(BASE).next().unwrap_or_default();
    Ok((
        Address::parse(&host).map_err(refuse)?,
        prefix.trim_end_matches('/').to_owned(),
    ))
}

fn token(matches: &ArgMatches) -> Result<Option<String>, Failure> {
    // As the job itself reads it: the file before the text.
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let named = matches.get_one::<PathBuf>("token_file").cloned();
    let Some(path) = named.or_else(|| set("HEAPTIDE_TOKEN_FILE").map(PathBuf::from)) else {
        return Ok(set("HEAPTIDE_TOKEN").map(|token| token.to_string_lossy().trim().to_owned()));
    };
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Failure::failed(format!(
            "the token in {} cannot be read ({error})",
            path.display()
        ))
    })?;
    Ok(Some(text.trim().to_owned()))
}

fn parameters(matches: &ArgMatches) -> Result<Vec<(String, String)>, Failure> {
    let given = matches
        .get_many::<String>("parameters")
        .into_iter()
        .flatten();
    given
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) => Ok((name.trim_start_matches('-').to_owned(), value.to_owned())),
            None => Err(Failure::Usage(format!(
                "{pair:?} is not NAME=VALUE, such as leaks=1"
            ))),
        })
        .collect()
}

/// Numbers and yes or no as what they are; everything else as text.
fn start_body(parameters: &[(String, String)]) -> Json {
    let mut body = object([]);
    for (name, value) in parameters {
        let value = match value.as_str() {
            "true" | "yes" => Json::Bool(true),
            "false" | "no" => Json::Bool(false),
            text => text
                .parse()
                .map_or_else(|_| Json::Text(text.to_owned()), Json::Integer),
        };
        body.set(name, value);
    }
    body
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

/// Prints an answer, or keeps it in a file and returns which.
fn show(
    matches: &ArgMatches,
    address: &Address,
    mut answer: Answer,
) -> Result<Option<PathBuf>, Failure> {
    let kind = answer.header("Content-Type").unwrap_or_default().to_owned();
    let broken =
        |error: io::Error| Failure::failed(format!("the answer of {address} broke off ({error})"));
    if answer.status >= 400 {
        let status = answer.status;
        let reason = answer.json().ok();
        let reason = reason
            .as_ref()
            .and_then(|body| body.get("error")?.as_text());
        return Err(Failure::failed(reason.map_or_else(
            || format!("{address} answered with {status}"),
            |reason| reason.trim_start_matches("heaptide: ").to_owned(),
        )));
    }
    let named = matches.get_one::<PathBuf>("output").cloned();
    let is_text = kind.starts_with("text/plain") || kind.starts_with("application/json");
    if is_text && named.is_none() {
        let text = answer.bytes(64 << 20).map_err(broken)?;
        let text = match Json::parse(&text) {
            Ok(value) if kind.starts_with("application/json") => pretty(&value, 0) + "\n",
            _ => String::from_utf8_lossy(&text).into_owned(),
        };
        let mut output = Output::standard();
        output.write(|out| out.write_all(text.as_bytes()))?;
        return output.finish().map(|()| None);
    }
    let told = answer
        .header("Content-Disposition")
        .and_then(|value| value.split("filename=\"").nth(1));
    let told = told
        .and_then(|rest| rest.split('"').next())
        .unwrap_or("heaptide-answer");
    // Whatever the other side says, the file lies here.
    let told = Path::new(told).file_name().map(PathBuf::from);
    let path = named.or(told).unwrap_or_else(|| "heaptide-answer".into());
    let mut output = if path.as_os_str() == "-" {
        Output::standard()
    } else {
        Output::file(&path, matches.get_flag("force"))?
    };
    let mut piece = vec![0; 64 * 1024];
    loop {
        let n_read = answer.body.read(&mut piece).map_err(broken)?;
        if n_read == 0 {
            return output.finish().map(|()| Some(path));
        }
        output.write(|out| out.write_all(&piece[..n_read]))?;
    }
}

/// JSON with a line for each value, for people.
fn pretty(value: &Json, depth: usize) -> String {
    let indent = "  ".repeat(depth + 1);
    let close = "  ".repeat(depth);
    match value {
        Json::Object(pairs) if !pairs.is_empty() => {
            let lines: Vec<String> = pairs
                .iter()
                .map(|(key, value)| {
                    format!(
                        "{indent}{}: {}",
                        Json::from(key.as_str()),
                        pretty(value, depth + 1)
                    )
                })
                .collect();
            format!("{{\n{}\n{close}}}", lines.join(",\n"))
        }
        Json::Array(items) if !items.is_empty() => {
            let lines: Vec<String> = items
                .iter()
                .map(|item| format!("{indent}{}", pretty(item, depth + 1)))
                .collect();
            format!("[\n{}\n{close}]", lines.join(",\n"))
        }
        other => other.to_string(),
    }
}

fn list() -> Result<(), Failure> {
    let found = running_processes::list();
    let mut output = Output::standard();
    output.write(|out| {
        if found.is_empty() {
            return writeln!(out, "no job with control was found");
        }
        found
            .iter()
            .try_for_each(|job| writeln!(out, "{}", describe(job)))
    })?;
    output.finish()
}

fn describe(job: &RunningProgram) -> String {
    let pids: Vec<String> = job.pids.iter().map(u32::to_string).collect();
    format!(
        "  {}  {}  pid {}  {}",
        job.name,
        job.state,
        pids.join(" "),
        job.command
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_host_a_port_and_whatever_stands_before_the_routes() {
        let read = |url| from_url(url).unwrap();
        let (address, prefix) = read("http://job.example/pub/job/leak/1/api/v1/profiler/status");
        assert_eq!(address.to_string(), "http://job.example:80");
        assert_eq!(prefix, "/pub/job/leak/1");
        assert_eq!(read("http://127.0.0.1:7000").1, "");
        assert_eq!(
            read("unix:/run/x.sock").0,
            Address::Unix("/run/x.sock".into())
        );
        assert!(from_url("ftp://x").is_err());
    }
}
