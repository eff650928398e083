//! What each route does. The same for a connection of ours and for a request that the job's own web server took.

use crate::config::Config;
use crate::json::{Json, object};
use crate::openapi;
use crate::reports::{self, REPORTS, Report};
use crate::request::Request;
use crate::response::{Body, Response};
use crate::routes::{self, BASE, Found, Operation};
use crate::security::{self, Door, Rate};
use crate::sessions::Session;
use crate::steering::{HeapOptions, Options, Steering};
use crate::switch::{Done, Member, Started, Switch};

use std::sync::Arc;

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
            if request.path.ends_with('/') && !request.path.contains(BASE) {
                return redirect(format!("{bare}/docs"));
            }
            let sentence = format!(
                "there is nothing at {}: /docs lists the routes",
                request.path
            );
            return Response::error(404, "NotFound", sentence);
        };
        if bare != request.path {
            return redirect(bare.to_owned());
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
            Some((_, operation)) => self.run(*operation, &found, request),
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
            return response.with("Access-Control-Allow-Methods", allowed).with(
                "Access-Control-Allow-Headers",
                "Authorization, Content-Type, Range",
            );
        }
        let sentence = format!("{} is not allowed here: use {allowed}", request.method);
        Response::error(405, "MethodNotAllowed", sentence).with("Allow", allowed)
    }

    fn run(&self, operation: Operation, found: &Found, request: &Request) -> Response {
        let prefix = found.prefix.as_str();
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
                self.make(report("flamegraph"), id, request, Manners::Memray)
            }
            Operation::MemrayStats => self.make(report("stats"), id, request, Manners::Memray),
            Operation::OpenApi => {
                let document = openapi::document(self.config(), prefix);
                Response::json(200, &document)
            }
            Operation::Docs => docs(),
        }
    }

    fn status(&self, prefix: &str, request: &Request) -> Response {
        let own = self.switch.own_state();
        let state = if own.output.is_some() {
            "recording"
        } else {
            "stopped"
        };
        let mut answer = object([
            ("state", state.into()),
            ("pid", own.pid.into()),
            ("session", own.session.clone().into()),
            ("output", own.output.clone().into()),
            ("name", self.config().name.as_str().into()),
            ("command", self.config().command.as_str().into()),
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("resident_bytes", resident_bytes().into()),
            (
                "directory",
                self.config().directory.display().to_string().into(),
            ),
        ]);
        if !is_for_this_process(request) {
            let mut members = self.switch.siblings();
            let is_recording = members.iter().any(|member| member.session.is_some());
            if is_recording {
                answer.set("state", "recording".into());
            }
            members.push(own);
            members.sort_by_key(|member| member.pid);
            let members: Vec<Json> = members.iter().map(describe_member).collect();
            answer.set("processes", members.into());
            answer.set("links", links(prefix));
        }
        Response::json(200, &answer)
    }

    fn start(&self, prefix: &str, request: &Request) -> Response {
        let mut body = match options_in(request) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let session = body.get("session").cloned();
        if let Json::Object(pairs) = &mut body {
            pairs.retain(|pair| pair.0 != "session");
        }
        let options = match Options::from_json(&body) {
            Ok(options) => options,
            Err(reason) => return Response::error(422, "ValueError", reason),
        };
        if !is_for_this_process(request) && session.is_none() {
            return self.start_with(prefix, &options);
        }
        let Some(id) = session.as_ref().and_then(Json::as_text) else {
            let sentence = "a start of one process needs the session that it joins";
            return Response::error(422, "ValueError", sentence);
        };
        self.with_session(id, Manners::Ours, |session| {
            self.started(prefix, self.switch.start_here(session, &options))
        })
    }

    fn start_with(&self, prefix: &str, options: &Options) -> Response {
        self.started(prefix, self.switch.start(options))
    }

    fn started(&self, prefix: &str, result: Result<Started, String>) -> Response {
        let started = match result {
            Ok(started) => started,
            Err(reason) => return Response::error(500, "RecordingError", reason),
        };
        let session = self.switch.find(&started.session);
        let pids = session.as_ref().map_or(Vec::new(), |session| {
            session
                .captures
                .iter()
                .map(|capture| Json::from(capture.pid))
                .collect()
        });
        let (status, result) = match started.done {
            Done::Yes => (200, "started"),
            Done::Already => (200, "already_running"),
            Done::Pending => (202, "pending"),
        };
        let warnings = started
            .warnings
            .into_iter()
            .map(Json::Text)
            .collect::<Vec<_>>();
        let answer = object([
            ("result", result.into()),
            ("session", started.session.into()),
            ("pid", std::process::id().into()),
            ("pids", pids.into()),
            ("output", started.output.display().to_string().into()),
            ("warnings", warnings.into()),
            ("links", links(prefix)),
        ]);
        Response::json(status, &answer)
    }

    fn stop(&self, prefix: &str, request: &Request) -> Response {
        if !is_for_this_process(request) {
            return self.stop_all(prefix);
        }
        match self.switch.stop_here() {
            Ok(done) => {
                let status = if done == Done::Pending { 202 } else { 200 };
                Response::json(status, &object([("result", stopped(&done).into())]))
            }
            Err(reason) => Response::error(500, "RecordingError", reason),
        }
    }

    fn stop_all(&self, prefix: &str) -> Response {
        let (done, session, warnings) = match self.switch.stop() {
            Ok(stopped) => stopped,
            Err(reason) => return Response::error(500, "RecordingError", reason),
        };
        let mut answer = object([("result", stopped(&done).into())]);
        if let Some(session) = &session {
            let stats = self.switch.quick_stats(session);
            let description = self.switch.describe(session, stats.as_ref(), prefix);
            for key in ["bytes", "peak_bytes", "duration_ms", "processes"] {
                answer.set(key, description.get(key).cloned().unwrap_or(Json::Null));
            }
        }
        answer.set("session", session.map(|session| session.id).into());
        answer.set(
            "warnings",
            warnings
                .into_iter()
                .map(Json::Text)
                .collect::<Vec<_>>()
                .into(),
        );
        answer.set("links", links(prefix));
        let status = if done == Done::Pending { 202 } else { 200 };
        Response::json(status, &answer)
    }

    fn snapshot(&self, prefix: &str) -> Response {
        match self.switch.snapshot() {
            Ok(Some(session)) => {
                let stats = self.switch.quick_stats(&session);
                Response::json(200, &self.switch.describe(&session, stats.as_ref(), prefix))
            }
            Ok(None) => Response::error(
                409,
                "NotRecording",
                "nothing is recorded at the moment: start first",
            ),
            Err(reason) => Response::error(500, "RecordingError", reason),
        }
    }

    fn heap(&self, request: &Request) -> Response {
        let body = match options_in(request) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let options = match HeapOptions::from_json(&body) {
            Ok(options) => options,
            Err(reason) => return Response::error(422, "ValueError", reason),
        };
        match self.switch.heap(&options) {
            Ok(Some((file, length, stood_still_ms))) => {
                let name = format!("{}-{}.heap", self.config().name, std::process::id());
                let name = name.replace(['"', '/', '\\'], "_");
                Response {
                    status: 200,
                    headers: vec![("Content-Type", "application/octet-stream".to_owned())],
                    body: Body::stretch(file, 0, length),
                }
                .with(
                    "Content-Disposition",
                    format!("attachment; filename=\"{name}\""),
                )
                .with("X-Heaptide-Stood-Still-Ms", format!("{stood_still_ms:.1}"))
                .with("Cache-Control", "no-store")
            }
            Ok(None) => Response::error(
                503,
                "Busy",
                "the interpreter is busy, so the heap could not be looked at: try again",
            ),
            Err(reason) => Response::error(500, "RecordingError", reason),
        }
    }

    fn sessions(&self, prefix: &str) -> Response {
        let mut sessions = self.switch.sessions.list();
        // A recording that was not started here has no folder, but it is there.
        sessions.splice(0..0, self.switch.find(crate::sessions::CURRENT));
        let sessions: Vec<Json> = sessions
            .iter()
            .map(|session| {
                self.switch
                    .describe(session, session.known_stats().as_ref(), prefix)
            })
            .collect();
        let keep = object([
            ("sessions", (self.config().keep_sessions as u64).into()),
            ("bytes", self.config().keep_bytes.into()),
        ]);
        let answer = object([("sessions", sessions.into()), ("keep", keep)]);
        Response::json(200, &answer)
    }

    fn delete(&self, id: &str) -> Response {
        self.with_session(id, Manners::Ours, |session| {
            if session.is_running() || session.folder.is_none() {
                let sentence = format!(
                    "the session {} is being recorded: stop it first",
                    session.id
                );
                return Response::error(409, "StillRecording", sentence);
            }
            match self.switch.sessions.delete(session) {
                Ok(()) => Response::json(200, &object([("deleted", session.id.as_str().into())])),
                Err(error) => {
                    let sentence =
                        format!("the session {} cannot be deleted ({error})", session.id);
                    Response::error(500, "CommandError", sentence)
                }
            }
        })
    }

    fn make(&self, report: Report, id: &str, request: &Request, manners: Manners) -> Response {
        self.with_session(id, manners, |session| {
            let base = match (report.needs_base, request.parameter("base")) {
                (false, _) => None,
                (true, None) => {
                    let sentence = "say what to compare with: ?base=SESSION";
                    return Response::error(400, "ArgumentError", sentence);
                }
                (true, Some(base)) => match self.switch.find(base) {
                    Some(base) if !base.captures.is_empty() => Some(base),
                    _ => return no_session(base, Manners::Ours),
                },
            };
            let switch = &self.switch;
            let mut response = report.make(
                &switch.config,
                &switch.renderer,
                request,
                session,
                base.as_ref(),
            );
            if manners == Manners::Memray {
                for header in &mut response.headers {
                    if header.0 == "Content-Disposition" {
                        header.1 = "inline; filename=\"memray-flamegraph.html\"".to_owned();
                    }
                }
            }
            response
        })
    }

    fn with_session(
        &self,
        id: &str,
        manners: Manners,
        answer: impl FnOnce(&Session) -> Response,
    ) -> Response {
        match self.switch.find(id) {
            Some(session) => answer(&session),
            None => no_session(id, manners),
        }
    }
}

/// The options in a request's body; none if it is empty.
fn options_in(request: &Request) -> Result<Json, Response> {
    if request.body.is_empty() {
        return Ok(Json::Object(Vec::new()));
    }
    Json::parse(&request.body).map_err(|reason| {
        let sentence = format!("the body is not JSON: {reason}");
        Response::error(400, "ValueError", sentence)
    })
}

fn no_session(id: &str, manners: Manners) -> Response {
    let sentence = match id {
        "latest" => "there is no report yet: start the profiler first".to_owned(),
        id => format!("there is no session {id:?}: {BASE}/sessions lists them"),
    };
    match manners {
        Manners::Ours => Response::error(404, "NotFound", sentence),
        Manners::Memray => Response::error(400, "ValueError", sentence),
    }
}

fn report(route: &str) -> Report {
    let found = REPORTS.iter().find(|report| report.route == route);
    *found.unwrap_or(&REPORTS[0])
}

fn is_for_this_process(request: &Request) -> bool {
    request.parameter("scope") == Some("process")
}

fn stopped(done: &Done) -> &'static str {
    match done {
        Done::Yes => "stopped",
        Done::Already => "already_stopped",
        Done::Pending => "pending",
    }
}

fn describe_member(member: &Member) -> Json {
    let state = match (&member.problem, &member.output) {
        (Some(_), _) => "unknown",
        (None, Some(_)) => "recording",
        (None, None) => "stopped",
    };
    object([
        ("pid", member.pid.into()),
        ("state", state.into()),
        ("session", member.session.clone().into()),
        ("output", member.output.clone().into()),
        ("problem", member.problem.clone().into()),
    ])
}

fn links(prefix: &str) -> Json {
    let names = [
        "status",
        "sessions",
        "report",
        "flamegraph",
        "table",
        "stats",
        "summary",
        "tree",
    ];
    let link = |name: &&str| {
        (
            (*name).to_owned(),
            Json::Text(format!("{prefix}{BASE}/{name}")),
        )
    };
    Json::Object(names.iter().map(link).collect())
}

fn redirect(location: String) -> Response {
    Response::new(307, "text/plain; charset=utf-8", "").with("Location", location)
}

/// The page that lists the routes and tries them, with nothing from elsewhere.
pub fn docs() -> Response {
    Response::new(200, "text/html; charset=utf-8", include_str!("docs.html"))
        .with("Cache-Control", "no-cache")
        .with(
            "Content-Security-Policy",
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
             connect-src 'self'; img-src data:",
        )
}

/// What the kernel says this process occupies.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
