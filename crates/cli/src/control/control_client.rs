//! Sends requests to the control API of a running program, and prints or saves the responses.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgMatches, value_parser};
use heaptide_control::Address;
use heaptide_control::client::{self, Answer};
use heaptide_control::routes::BASE;
use serde_json::Value;

use crate::control::running_processes::{self, RunningProgram};
use crate::exit::Failure;
use crate::messages::message;
use crate::output::Output;

/// Long enough for a large capture and for an interpreter that is busy.
const TIMEOUT: Duration = Duration::from_secs(600);
const DEFAULT_NAME: &str = "heaptide-answer";

/// The arguments that name a program.
pub(crate) fn arguments() -> [Arg; 3] {
    [
        Arg::new("url")
            .long("url")
            .value_name("URL")
            .conflicts_with("pid")
            .help("address of the program: http://host:port[/prefix] or unix:path"),
        Arg::new("pid")
            .long("pid")
            .value_name("PID")
            .value_parser(value_parser!(u32))
            .help("process ID of the program"),
        Arg::new("token_file")
            .long("token-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("file with the token [default: HEAPTIDE_TOKEN_FILE, HEAPTIDE_TOKEN, or the created token]"),
    ]
}

/// The control API of one program.
pub(crate) struct ControlClient<'a> {
    matches: &'a ArgMatches,
    address: Address,
    /// The part of the path before [`BASE`].
    prefix: String,
    token: Option<String>,
}

impl<'a> ControlClient<'a> {
    /// Finds the program that the arguments name, or the only running one.
    pub(crate) fn new(matches: &'a ArgMatches) -> Result<ControlClient<'a>, Failure> {
        let token_file = matches.get_one::<PathBuf>("token_file");
        match matches.get_one::<String>("url") {
            Some(url) => ControlClient::at_url(matches, url, token_file),
            None => {
                let address = find_address(matches)?;
                ControlClient::at(matches, address, String::new(), token_file)
            }
        }
    }

    pub(crate) fn at_url(
        matches: &'a ArgMatches,
        url: &str,
        token_file: Option<&PathBuf>,
    ) -> Result<ControlClient<'a>, Failure> {
        let (address, prefix) = parse_url(url)?;
        ControlClient::at(matches, address, prefix, token_file)
    }

    pub(crate) fn at(
        matches: &'a ArgMatches,
        mut address: Address,
        prefix: String,
        token_file: Option<&PathBuf>,
    ) -> Result<ControlClient<'a>, Failure> {
        let mut token = match token_file {
            Some(path) => Some(read_token(path)?),
            None => token_of_environment()?,
        };
        if let (None, Address::Tcp { host, port }) = (&token, &address) {
            if let Some((found, created)) = running_processes::find_token(host, *port) {
                let (host, port) = (found.ip().to_string(), found.port());
                address = Address::Tcp { host, port };
                token = Some(created);
            }
        }
        Ok(ControlClient {
            matches,
            address,
            prefix,
            token,
        })
    }

    /// Sends a request for a path below [`BASE`].
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> Result<Answer, Failure> {
        self.request(method, path, body, &[])
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the JSON answer of a GET request that must succeed.
    pub(crate) fn json(&self, path: &str) -> Result<Value, Failure> {
        let answer = self.send("GET", path, "")?;
        if answer.status >= 400 {
            return Err(Failure::failed(self.reason(answer)));
        }
        let address = &self.address;
        answer.json().map_err(|error| {
            Failure::failed(format!("the answer of {address} is not valid ({error})"))
        })
    }

    /// Returns why the program refused a request.
    pub(crate) fn reason(&self, answer: Answer) -> String {
        let (address, status) = (&self.address, answer.status);
        let answer = answer.json().ok();
        let reason = answer.as_ref().and_then(|body| body.get("error")?.as_str());
        reason.map_or_else(
            || format!("{address} answered with status {status}"),
            |reason| reason.trim_start_matches("heaptide: ").to_owned(),
        )
    }

    /// Like [`ControlClient::send`], with further headers.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        body: &str,
        more: &[(&str, &str)],
    ) -> Result<Answer, Failure> {
        let path = format!("{}{BASE}/{path}", self.prefix);
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut headers: Vec<(&str, &str)> = bearer
            .iter()
            .map(|bearer| ("Authorization", bearer.as_str()))
            .collect();
        headers.extend(more);
        client::call(
            &self.address,
            method,
            &path,
            &headers,
            body.as_bytes(),
            TIMEOUT,
        )
        .map_err(|error| {
            Failure::failed(format!(
                "{} does not answer ({error}): check that the program is running",
                self.address
            ))
        })
    }

    /// Prints a text response, or saves the response to a file. Returns the file's path.
    pub(crate) fn deliver(&self, mut answer: Answer) -> Result<Option<PathBuf>, Failure> {
        let address = &self.address;
        let interrupted = |error: io::Error| {
            Failure::failed(format!("the answer of {address} is incomplete ({error})"))
        };
        if answer.status >= 400 {
            return Err(Failure::failed(self.reason(answer)));
        }
        let content_type = answer.header("Content-Type").unwrap_or_default().to_owned();
        let is_json = content_type.starts_with("application/json");
        let output = self.matches.get_one::<PathBuf>("output").cloned();
        if output.is_none() && (is_json || content_type.starts_with("text/plain")) {
            let bytes = answer.bytes(64 << 20).map_err(interrupted)?;
            let text = match serde_json::from_slice::<Value>(&bytes) {
                Ok(value) if is_json => format!("{value:#}\n"),
                _ => String::from_utf8_lossy(&bytes).into_owned(),
            };
            let mut output = Output::standard();
            output.write(|out| out.write_all(text.as_bytes()))?;
            return output.finish().map(|()| None);
        }
        let suggested = answer
            .header("Content-Disposition")
            .and_then(|value| value.split("filename=\"").nth(1)?.split('"').next())
            // Only the last component: the response must not choose a folder other than the current one.
            .and_then(|name| Path::new(name).file_name())
            .map(PathBuf::from);
        let path = output.or(suggested).unwrap_or_else(|| DEFAULT_NAME.into());
        let mut output = if path.as_os_str() == "-" {
            Output::exact()
        } else {
            Output::file(&path, self.matches.get_flag("force"))?
        };
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let n_read = answer.body.read(&mut buffer).map_err(interrupted)?;
            if n_read == 0 {
                return output.finish().map(|()| Some(path));
            }
            output.write(|out| out.write_all(&buffer[..n_read]))?;
        }
    }
}

fn find_address(matches: &ArgMatches) -> Result<Address, Failure> {
    let pid: Option<u32> = matches.get_one("pid").copied();
    let programs = running_processes::list();
    let matching: Vec<&RunningProgram> = programs
        .iter()
        .filter(|program| pid.is_none_or(|pid| program.pids.contains(&pid)))
        .collect();
    match (matching.as_slice(), pid) {
        ([program], _) => {
            let at = pid.and_then(|pid| program.pids.iter().position(|&one| one == pid));
            Ok(program.addresses[at.unwrap_or(0)].clone())
        }
        ([], Some(pid)) => Err(Failure::failed(match running_processes::other_user(pid) {
            Some(user) => {
                format!("process {pid} belongs to another user: run this as user {user} or as root")
            }
            None => format!(
                "process {pid} has no control API: start it with HEAPTIDE_CONTROL=PORT, or see `heaptide ctl list`"
            ),
        })),
        ([], None) => Err(Failure::failed(
            "no program with the control API is running: start it with HEAPTIDE_CONTROL=PORT, or name one with --url",
        )),
        (several, _) => {
            // One message each: a message escapes line feeds, because a name may contain them.
            for program in several {
                message!("{program}");
            }
            // Only `ctl` has these options. A flag has a value even if it is not given.
            let more = match matches.ids().any(|id| id == "all") {
                true => ", or several with --name, --label or --all",
                false => "",
            };
            Err(Failure::Usage(format!(
                "{} programs are running: choose one with --pid{more}",
                several.len()
            )))
        }
    }
}

/// Returns the address in a URL and the part of its path before [`BASE`].
fn parse_url(url: &str) -> Result<(Address, String), Failure> {
    if url.starts_with("unix:") {
        return Ok((Address::parse(url).map_err(Failure::Usage)?, String::new()));
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
        Address::parse(&host).map_err(Failure::Usage)?,
        prefix.trim_end_matches('/').to_owned(),
    ))
}

/// Reads the token from the same variables as the program does; a file takes precedence over a value.
pub(crate) fn token_of_environment() -> Result<Option<String>, Failure> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = set("HEAPTIDE_TOKEN_FILE") {
        return read_token(Path::new(&path)).map(Some);
    }
    Ok(set("HEAPTIDE_TOKEN").map(|token| token.to_string_lossy().trim().to_owned()))
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::failed(format!(
            "cannot read the token in {} ({error})",
            path.display()
        ))
    })?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_divided_into_host_port_and_prefix() {
        let read = |url| parse_url(url).unwrap();
        let (address, prefix) = read("http://job.example/pub/job/leak/1/api/v1/profiler/status");
        assert_eq!(address.to_string(), "http://job.example:80");
        assert_eq!(prefix, "/pub/job/leak/1");
        assert_eq!(read("http://127.0.0.1:7000").1, "");
        assert_eq!(
            read("unix:/run/x.sock").0,
            Address::Unix("/run/x.sock".into())
        );
        assert!(parse_url("ftp://x").is_err());
    }
}
