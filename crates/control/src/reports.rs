//! Reports of a session.
//!
//! Query parameters are the options of the report command without leading dashes: `?leaks=1&num-largest=10`. The
//! command line declares the options, and the command checks their values.

use std::ffi::OsString;
use std::fs::File;

use crate::config::{Config, ReportCommand, ReportOption};
use crate::render::Renderer;
use crate::request::Request;
use crate::response::{Body, Response};
use crate::sessions::{Capture, Session};
use heaptide_capture::{Identity, ProcessSelector, identity};
use serde_json::Value;

/// A report that the control API serves: one command of the command line with two routes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The name of the command, of the routes' last segment and of the `ctl` action.
    pub name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) session_path: &'static str,
    /// Whether the report is an HTML page rather than text.
    pub(crate) is_page: bool,
    /// Whether the report compares the session with another one, named by `base`.
    pub(crate) needs_base: bool,
    /// Whether its text has memray's layout, which clients of memray's routes read.
    has_memray_layout: bool,
}

macro_rules! report {
    ($name:literal, is_page: $is_page:literal, needs_base: $needs_base:literal) => {
        Report {
            name: $name,
            path: concat!("/", $name),
            session_path: concat!("/sessions/{session}/", $name),
            is_page: $is_page,
            needs_base: $needs_base,
            has_memray_layout: false,
        }
    };
}

pub(crate) const FLAMEGRAPH: Report = report!("flamegraph", is_page: true, needs_base: false);
pub(crate) const STATS: Report = report!("stats", is_page: false, needs_base: false);
pub(crate) const MEMRAY_STATS: Report = Report {
    has_memray_layout: true,
    ..STATS
};

/// Every report. Routes, the OpenAPI document and the actions of `heaptide ctl` come from this list.
pub const REPORTS: &[Report] = &[
    FLAMEGRAPH,
    report!("table", is_page: true, needs_base: false),
    STATS,
    report!("summary", is_page: false, needs_base: false),
    report!("tree", is_page: false, needs_base: false),
    report!("timeline", is_page: true, needs_base: false),
    report!("diff", is_page: false, needs_base: true),
];

/// Returns the names of the download and of the reports that need no other session.
pub(crate) fn of_one_session() -> impl Iterator<Item = &'static str> {
    let reports = REPORTS.iter().filter(|report| !report.needs_base);
    std::iter::once("report").chain(reports.map(|report| report.name))
}

/// Returns an object that maps names of routes to their paths below `base`.
pub(crate) fn links(base: &str, names: impl Iterator<Item = &'static str>) -> Value {
    let link = |name: &str| (name.to_owned(), Value::from(format!("{base}/{name}")));
    Value::Object(names.map(link).collect())
}

/// Options for the destination of a report or for the exit code, which requests cannot set.
const NOT_FOR_REQUESTS: &[&str] = &[
    "output",
    "force",
    "help",
    "version",
    "json",
    "html",
    "fail-above",
];

/// Query parameters of the control API, which are not options of a command.
const API_PARAMETERS: &[&str] = &["format", "base", "process", "scope"];
/// `native=0` and `native=1` in a query mean the option `--hide-native` and its absence.
pub(crate) const NATIVE: &str = "native";
pub(crate) const HIDE_NATIVE: &str = "hide-native";

impl Report {
    pub(crate) fn command<'a>(&self, config: &'a Config) -> Option<&'a ReportCommand> {
        config
            .commands
            .iter()
            .find(|command| command.name == self.name)
    }

    /// Returns the values of `format=`, the default first.
    pub(crate) fn formats(&self, command: &ReportCommand) -> Vec<&'static str> {
        let has = |name: &str| command.options.iter().any(|option| option.name == name);
        if self.is_page {
            return vec!["html"];
        }
        let mut formats = vec!["text"];
        formats.extend(has("json").then_some("json"));
        formats.extend(has("html").then_some("html"));
        formats
    }

    /// Makes the report of `session`, or an error response.
    pub(crate) fn make(
        &self,
        config: &Config,
        renderer: &Renderer,
        request: &Request,
        session: &Session,
        base: Option<&Session>,
        is_gone: &dyn Fn() -> bool,
    ) -> Response {
        let Some(command) = self.command(config) else {
            return Response::error(404, "NotFound", format!("there is no report {}", self.name));
        };
        let formats = self.formats(command);
        let format = request.parameter("format").unwrap_or(formats[0]);
        if !formats.contains(&format) {
            let known = formats.join(", ");
            let sentence = format!("{} has no format {format:?}: use {known}", self.name);
            return Response::error(400, "ArgumentError", sentence);
        }
        let mut words: Vec<OsString> = vec![command.name.as_str().into()];
        if self.has_memray_layout {
            words.push("--layout=memray".into());
        }
        match format {
            "json" => words.push("--json".into()),
            "html" if !self.is_page => words.push("--html".into()),
            _ => {}
        }
        if format == "html" {
            words.extend(["--output".into(), "-".into()]);
        }
        match options(command, request) {
            Ok(options) => words.extend(options),
            Err(response) => return *response,
        }
        let takes_leaks = options_for_requests(command).any(|option| option.name == "leaks");
        let is_flamegraph = self.name == "flamegraph";
        if config.leaks && is_flamegraph && takes_leaks && request.parameter("leaks").is_none() {
            words.push("--leaks".into());
        }
        let captures = match captures(session, request.parameter("process")) {
            Ok(captures) => captures,
            Err(response) => return *response,
        };
        if let Some(base) = base {
            words.push("--before".into());
            words.extend(
                base.captures
                    .iter()
                    .map(|capture| capture.path.clone().into()),
            );
            words.push("--after".into());
        } else {
            words.push("--".into());
        }
        words.extend(captures.iter().map(|capture| capture.path.clone().into()));
        let is_changing = session.is_running() || base.is_some_and(Session::is_running);
        let (file, length) = match renderer.share(words, is_changing, is_gone) {
            Ok(output) => output,
            Err(failure) => return failure.response(),
        };
        self.answer(format, file, length)
    }

    fn answer(&self, format: &str, file: File, length: u64) -> Response {
        let content_type = content_type(format);
        let response = Response {
            status: 200,
            headers: vec![("Content-Type", content_type.to_owned())],
            body: Body::file_range(file, 0, length),
        };
        let response = response.with("Cache-Control", "no-store");
        if format == "html" {
            return response.with(
                "Content-Disposition",
                format!("inline; filename=\"heaptide-{}.html\"", self.name),
            );
        }
        response
    }
}

pub(crate) fn content_type(format: &str) -> &'static str {
    match format {
        "html" => "text/html; charset=utf-8",
        "json" => "application/json",
        _ => "text/plain; charset=utf-8",
    }
}

/// Returns the options of a command that a request can set.
pub(crate) fn options_for_requests(command: &ReportCommand) -> impl Iterator<Item = &ReportOption> {
    let options = command.options.iter();
    options.filter(|option| {
        !NOT_FOR_REQUESTS.contains(&option.name.as_str())
            && !API_PARAMETERS.contains(&option.name.as_str())
    })
}

/// Converts query parameters to arguments of the command.
fn options(command: &ReportCommand, request: &Request) -> Result<Vec<OsString>, Box<Response>> {
    let refuse = |sentence: String| Err(Box::new(Response::error(400, "ArgumentError", sentence)));
    let mut words = Vec::new();
    for (name, value) in &request.query {
        if API_PARAMETERS.contains(&name.as_str()) {
            continue;
        }
        let wanted = name.replace('_', "-");
        let is_native = wanted == NATIVE;
        let wanted = if is_native {
            HIDE_NATIVE.to_owned()
        } else {
            wanted
        };
        let known = options_for_requests(command).find(|option| option.name == wanted);
        let Some(option) = known else {
            let known: Vec<&str> = options_for_requests(command)
                .map(|option| option.name.as_str())
                .collect();
            return refuse(format!(
                "{} has no parameter {name:?}: use {}",
                command.name,
                known.join(", ")
            ));
        };
        if option.takes_value {
            words.push(format!("--{wanted}={value}").into());
            continue;
        }
        let is_on = match value.to_ascii_lowercase().as_str() {
            "" | "1" | "true" | "yes" | "on" => true,
            "0" | "false" | "no" | "off" => false,
            _ => return refuse(format!("{name} must be 1 or 0, not {value:?}")),
        };
        if is_on != is_native {
            words.push(format!("--{wanted}").into());
        }
    }
    Ok(words)
}

/// Returns the captures of a session, or only those of one process.
pub(crate) fn captures<'a>(
    session: &'a Session,
    process: Option<&str>,
) -> Result<Vec<&'a Capture>, Box<Response>> {
    let all: Vec<&Capture> = session.captures.iter().collect();
    let refused = |status, sentence| Err(Box::new(Response::error(status, "NotFound", sentence)));
    if all.is_empty() {
        return refused(404, format!("session {} has no capture yet", session.id));
    }
    let Some(process) = process else {
        return Ok(all);
    };
    let (identities, titles): (Vec<Identity>, Vec<String>) = all
        .iter()
        .map(|capture| (capture.identity(), capture.header().title()))
        .unzip();
    let chosen = match process.parse::<ProcessSelector>() {
        Ok(selector) => selector.choose(&identities, &titles),
        Err(_) => Err(Vec::new()),
    };
    match chosen {
        Ok(chosen) => Ok(chosen.into_iter().map(|at| all[at]).collect()),
        Err(none) if none.is_empty() => {
            let known = identity::names(&identities).join(", ");
            let sentence = format!(
                "session {} has no process {process}: its processes are {known}",
                session.id
            );
            refused(404, sentence)
        }
        Err(matches) => {
            let sentence = format!(
                "process {process} of session {} matches {} processes: use one of {}",
                session.id,
                matches.len(),
                matches.join(", ")
            );
            Err(Box::new(Response::error(400, "ArgumentError", sentence)))
        }
    }
}
