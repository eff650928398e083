//! On and off: what is recorded, start, stop, snapshot, and every object at once.

use super::{Handler, Manners, links};
use crate::json::{Json, object};
use crate::request::Request;
use crate::response::{Body, Response};
use crate::steering::{HeapOptions, Options};
use crate::switch::{Done, Member, Started};

impl Handler {
    pub(super) fn status(&self, prefix: &str, request: &Request) -> Response {
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

    pub(super) fn start(&self, prefix: &str, request: &Request) -> Response {
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
        if let Some(reason) = self.switch.changed_user(&self.config().directory) {
            return Response::error(500, "RecordingError", reason);
        }
        self.with_session(id, Manners::Ours, |session| {
            self.started(prefix, self.switch.start_here(session, &options))
        })
    }

    pub(super) fn start_with(&self, prefix: &str, options: &Options) -> Response {
        self.started(prefix, self.switch.start(options))
    }

    pub(super) fn started(&self, prefix: &str, result: Result<Started, String>) -> Response {
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

    pub(super) fn stop(&self, prefix: &str, request: &Request) -> Response {
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

    pub(super) fn stop_all(&self, prefix: &str) -> Response {
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

    pub(super) fn snapshot(&self, prefix: &str) -> Response {
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

    pub(super) fn heap(&self, request: &Request) -> Response {
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

/// What the kernel says this process occupies.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
