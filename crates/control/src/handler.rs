//! Answers requests: resolves the route, checks access, and calls the operation.
//!
//! Requests arrive from Heaptide's own server or from the program's web server. [`status`], [`start_stop`] and [`heap`]
//! act on the running program; [`recordings`] serves its sessions.

mod heap;
mod recordings;
mod start_stop;
mod status;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::config::Config;
use crate::downloads;
use crate::lock;
use crate::openapi;
use crate::program::Program;
use crate::recorder::{HeapOptions, Options, Recorder};
use crate::reports;
use crate::request::{Request, percent_encoded};
use crate::response::{Body, Response};
use crate::routes::{self, BASE, Operation, ResolvedRoute};
use crate::security::{self, EntryPoint, Need, Rates};

pub struct Handler {
    program: Program,
    rates: Rates,
    /// The addresses at which this process answers, for `heaptide ctl`.
    addresses: Mutex<Vec<String>>,
}

/// The style of a response: Heaptide's, or the one that clients of memray's routes expect.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    Heaptide,
    Memray,
}

impl Handler {
    pub fn new(config: Config, recorder: Arc<dyn Recorder>) -> Handler {
        Handler {
            rates: Rates::new(config.requests_per_second),
            program: Program::new(config, recorder),
            addresses: Mutex::default(),
        }
    }

    /// Adds an address at which this process answers.
    pub fn add_address(&self, address: String) {
        lock(&self.addresses).push(address);
    }

    pub fn config(&self) -> &Config {
        &self.program.config
    }

    /// Records this process if its run is being recorded; see [`crate::wanted`]. May wait for the interpreter. Returns a
    /// warning.
    pub fn join_wanted(&self, is_forked: bool) -> Result<Option<String>, String> {
        self.program.join_wanted(is_forked)
    }

    /// Answers a request. `is_gone` returns whether the client has closed its connection, which cancels a report.
    pub fn handle(
        &self,
        request: &Request,
        entry_point: EntryPoint,
        is_gone: &dyn Fn() -> bool,
    ) -> Response {
        let bare = request.path.trim_end_matches('/');
        let route = routes::resolve(bare);
        let need = need(request, route.as_ref());
        let response = security::refuse(self.config(), &self.rates, request, entry_point, need)
            .unwrap_or_else(|| self.dispatch(request, bare, route, is_gone));
        security::allow_origin(self.config(), request, response)
            .with("X-Content-Type-Options", "nosniff")
    }

    fn dispatch(
        &self,
        request: &Request,
        bare: &str,
        route: Option<ResolvedRoute>,
        is_gone: &dyn Fn() -> bool,
    ) -> Response {
        let Some(route) = route else {
            let is_parent_folder = request.path.ends_with('/') && !request.path.contains(BASE);
            if is_parent_folder || bare.ends_with(BASE) {
                return redirect(&format!("{bare}/docs"));
            }
            let sentence = format!(
                "there is no route {}: {}/docs lists the routes",
                request.path,
                routes::home(bare)
            );
            return Response::error(404, "NotFound", sentence);
        };
        if bare != request.path {
            return redirect(bare);
        }
        let method = match request.method.as_str() {
            "HEAD" => "GET",
            method => method,
        };
        let operation = route
            .operations
            .iter()
            .find(|operation| operation.0 == method);
        match operation {
            Some((_, operation)) => match check_scope(request) {
                Ok(()) => self.run(*operation, &route, request, is_gone),
                Err(refusal) => refusal,
            },
            None => self.other_method(&route, request),
        }
    }

    fn other_method(&self, route: &ResolvedRoute, request: &Request) -> Response {
        let mut methods: Vec<&str> = route
            .operations
            .iter()
            .map(|operation| operation.0)
            .collect();
        if methods.contains(&"GET") {
            methods.push("HEAD");
        }
        methods.push("OPTIONS");
        let allowed = methods.join(", ");
        if request.method == "OPTIONS" {
            let response = Response {
                status: 204,
                headers: vec![("Allow", allowed.clone())],
                body: Body::default(),
            };
            if self.config().cors_origin.is_none() {
                return response;
            }
            let named = self.config().token_header.iter().map(String::as_str);
            let headers = ["Authorization", "Content-Type", "Range"].into_iter();
            let headers: Vec<&str> = headers.chain(named).collect();
            return response
                .with("Access-Control-Allow-Methods", allowed)
                .with("Access-Control-Allow-Headers", headers.join(", "));
        }
        let sentence = format!("{} is not allowed here: use {allowed}", request.method);
        Response::error(405, "MethodNotAllowed", sentence).with("Allow", allowed)
    }

    fn run(
        &self,
        operation: Operation,
        route: &ResolvedRoute,
        request: &Request,
        is_gone: &dyn Fn() -> bool,
    ) -> Response {
        // A proxy may have removed the configured prefix from the path; links must contain it.
        let configured = self.config().prefix.as_str();
        let prefix = if route.prefix.starts_with(configured) {
            route.prefix.clone()
        } else {
            format!("{configured}{}", route.prefix)
        };
        let prefix = prefix.as_str();
        let id = route.session.as_deref().unwrap_or("latest");
        match operation {
            Operation::Status => self.status(prefix, request),
            Operation::Start => self.start(prefix, request),
            Operation::MemrayStart => self.start_all(prefix, &Options::every_object()),
            Operation::Stop => self.stop(prefix, request),
            Operation::MemrayStop => self.stop_all(prefix),
            Operation::Mode => self.change_mode(prefix, request),
            Operation::Snapshot => self.snapshot(prefix),
            Operation::Heap => self.heap(request),
            Operation::Sessions => self.sessions(prefix),
            Operation::Session => self.with_session(id, Style::Heaptide, |session| {
                let stats = self.program.stats(session);
                Response::json(200, &self.program.describe(session, stats.as_ref(), prefix))
            }),
            Operation::DeleteSession => self.delete(id),
            Operation::Download => self.with_session(id, Style::Heaptide, |session| {
                downloads::tide(request, session, &format!("{}.tide", session.id))
            }),
            Operation::Files => crate::run_files::answer(self.config(), request),
            Operation::MemrayDownload => self.with_session(id, Style::Memray, |session| {
                downloads::memray(request, session, &self.program.renderer, is_gone)
            }),
            Operation::Report(report) => self.report(report, id, request, Style::Heaptide, is_gone),
            Operation::MemrayReport(report) => {
                self.report(report, id, request, Style::Memray, is_gone)
            }
            Operation::OpenApi => {
                let document = openapi::document(self.config(), prefix);
                Response::json(200, &document)
            }
            Operation::Docs => docs(),
        }
    }
}

/// Returns the access that a request requires. The page and the document that list the routes reveal nothing about the
/// program, and browsers send OPTIONS without a token.
fn need(request: &Request, route: Option<&ResolvedRoute>) -> Need {
    if request.method == "OPTIONS" {
        return Need::Nothing;
    }
    let Some(route) = route else {
        // A path with a trailing slash only redirects to the page.
        let is_folder = request.path.ends_with('/');
        return if is_folder {
            Need::Nothing
        } else {
            Need::Reports
        };
    };
    let needs = route
        .operations
        .iter()
        .map(|(method, operation)| match operation {
            Operation::Docs | Operation::OpenApi => Need::Nothing,
            Operation::MemrayStart
            | Operation::MemrayStop
            | Operation::MemrayDownload
            | Operation::MemrayReport(_) => Need::ReportsOfJob,
            Operation::DeleteSession if *method == request.method => Need::Everything,
            Operation::Heap if asks_for_values(request) => Need::Everything,
            _ => Need::Reports,
        });
    needs.max().unwrap_or(Need::Reports)
}

fn asks_for_values(request: &Request) -> bool {
    let options = json_body(request)
        .ok()
        .map(|body| HeapOptions::from_json(&body));
    options.is_some_and(|options| options.is_ok_and(|options| options.values))
}

/// Redirects to a path of this server. Leading slashes are removed, because `//host/` would name another server.
fn redirect(path: &str) -> Response {
    let path = path.trim_start_matches(['/', '\\']);
    let location = percent_encoded(path, |byte| byte.is_ascii_graphic());
    Response::new(307, "text/plain; charset=utf-8", "").with("Location", format!("/{location}"))
}

/// Refuses an unknown `scope`: a misspelt one must not act on all processes.
fn check_scope(request: &Request) -> Result<(), Response> {
    match request.parameter("scope") {
        None | Some("job" | "process") => Ok(()),
        Some(other) => {
            let sentence = format!("unknown scope {other:?}: use job or process");
            Err(Response::error(400, "ArgumentError", sentence))
        }
    }
}

/// Returns the page that lists the routes and lets users try them. It loads nothing from other servers.
fn docs() -> Response {
    Response::new(200, "text/html; charset=utf-8", crate::DOCS_PAGE)
        .with("Cache-Control", "no-cache")
        .with(
            "Content-Security-Policy",
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
             connect-src 'self'; img-src data: blob:",
        )
}

/// Returns the body of a request as JSON; an empty object if there is no body.
fn json_body(request: &Request) -> Result<Value, Response> {
    if request.body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(&request.body).map_err(|reason| {
        let sentence = format!("the body is not JSON: {reason}");
        Response::error(400, "ValueError", sentence)
    })
}

fn is_for_this_process(request: &Request) -> bool {
    request.parameter("scope") == Some("process")
}

fn links(prefix: &str) -> Value {
    let names = ["status", "sessions"].into_iter();
    let names = names.chain(reports::of_one_session()).chain(["docs"]);
    reports::links(&format!("{prefix}{BASE}"), names)
}
