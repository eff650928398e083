//! Which route a request takes. The same for a connection of ours and for a request that the job's own web server took.
//!
//! [`switching`] answers what begins and ends recordings, [`looking`] what shows them.

mod looking;
mod switching;

use std::sync::Arc;

use crate::config::Config;
use crate::json::Json;
use crate::openapi;
use crate::reports::{self, Report};
use crate::request::Request;
use crate::response::{Body, Response};
use crate::routes::{self, BASE, Found, Operation};
use crate::security::{self, Door, Rate};
use crate::steering::{Options, Steering};
use crate::switch::Switch;

pub struct Handler {
    pub switch: Switch,
    rate: Rate,
}

/// Which manners an answer has: ours, or those that clients of memray's routes know.
#[derive(Clone, Copy, PartialEq)]
enum Manners {
    Ours,
    Memray,
}

impl Handler {
    pub fn new(config: Config, steering: Arc<dyn Steering>) -> Handler {
        Handler {
            rate: Rate::new(config.requests_per_second),
            switch: Switch::new(config, steering),
        }
    }

    fn config(&self) -> &Config {
        &self.switch.config
    }

    pub fn handle(&self, request: &Request, door: Door) -> Response {
        let response = security::refuse(self.config(), &self.rate, request, door)
            .unwrap_or_else(|| self.dispatch(request));
        security::allow_origin(self.config(), request, response)
            .with("X-Content-Type-Options", "nosniff")
    }

    fn dispatch(&self, request: &Request) -> Response {
        let bare = request.path.trim_end_matches('/');
        let Some(found) = routes::find(bare) else {
            let is_above = request.path.ends_with('/') && !request.path.contains(BASE);
            if is_above || bare.ends_with(BASE) {
                return redirect(&format!("{bare}/docs"));
            }
            let sentence = format!(
                "there is nothing at {}: {}/docs lists the routes",
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
        let operation = found
            .operations
            .iter()
            .find(|operation| operation.0 == method);
        match operation {
            Some((_, operation)) => match scope_of(request) {
                Ok(()) => self.run(*operation, &found, request),
                Err(refusal) => refusal,
            },
            None => self.other_method(&found, request),
        }
    }

    fn other_method(&self, found: &Found, request: &Request) -> Response {
        let mut methods: Vec<&str> = found
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

    fn run(&self, operation: Operation, found: &Found, request: &Request) -> Response {
        // What a proxy took off the path is put in front again; what it left there is there already.
        let configured = self.config().prefix.as_str();
        let prefix = if found.prefix.starts_with(configured) {
            found.prefix.clone()
        } else {
            format!("{configured}{}", found.prefix)
        };
        let prefix = prefix.as_str();
        let id = found.session.as_deref().unwrap_or("latest");
        match operation {
            Operation::Status => self.status(prefix, request),
            Operation::Start => self.start(prefix, request),
            Operation::MemrayStart => self.start_with(prefix, &Options::default()),
            Operation::Stop => self.stop(prefix, request),
            Operation::MemrayStop => self.stop_all(prefix),
            Operation::Snapshot => self.snapshot(prefix),
            Operation::Heap => self.heap(request),
            Operation::Sessions => self.sessions(prefix),
            Operation::Session => self.with_session(id, Manners::Ours, |session| {
                let stats = self.switch.stats(session);
                Response::json(200, &self.switch.describe(session, stats.as_ref(), prefix))
            }),
            Operation::DeleteSession => self.delete(id),
            Operation::Download => self.with_session(id, Manners::Ours, |session| {
                reports::download(request, session, &format!("{}.tide", session.id))
            }),
            Operation::MemrayDownload => self.with_session(id, Manners::Memray, |session| {
                reports::download(request, session, "memray-report.bin")
            }),
            Operation::Make(report) => self.make(report, id, request, Manners::Ours),
            Operation::MemrayFlamegraph => {
                self.make(Report::named("flamegraph"), id, request, Manners::Memray)
            }
            Operation::MemrayStats => {
                self.make(Report::named("stats"), id, request, Manners::Memray)
            }
            Operation::OpenApi => {
                let document = openapi::document(self.config(), prefix);
                Response::json(200, &document)
            }
            Operation::Docs => docs(),
        }
    }
}

/// To another path of this very server, whatever the path that was asked for looks like: `//host/` names another one.
fn redirect(path: &str) -> Response {
    let mut location = "/".to_owned();
    for byte in path.trim_start_matches(['/', '\\']).bytes() {
        if byte.is_ascii_graphic() {
            location.push(byte.into());
        } else {
            location.push_str(&format!("%{byte:02X}"));
        }
    }
    Response::new(307, "text/plain; charset=utf-8", "").with("Location", location)
}

/// `scope` is `job` or `process`; whoever meant something else must not get the other.
fn scope_of(request: &Request) -> Result<(), Response> {
    match request.parameter("scope") {
        None | Some("job" | "process") => Ok(()),
        Some(other) => {
            let sentence = format!("scope is job or process, not {other:?}");
            Err(Response::error(400, "ArgumentError", sentence))
        }
    }
}

/// The page that lists the routes and tries them, with nothing from elsewhere.
pub fn docs() -> Response {
    Response::new(200, "text/html; charset=utf-8", include_str!("docs.html"))
        .with("Cache-Control", "no-cache")
        .with(
            "Content-Security-Policy",
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
             connect-src 'self'; img-src data: blob:",
        )
}

fn links(prefix: &str) -> Json {
    let names = ["status", "sessions"].into_iter();
    let names = names.chain(reports::of_one_session()).chain(["docs"]);
    reports::links(&format!("{prefix}{BASE}"), names)
}
