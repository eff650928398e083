//! `POST /start`, `/stop`, `/mode` and `/snapshot`.

use serde_json::{Value, json};

use super::{Handler, Style, is_for_this_process, json_body, links};
use crate::program::{Started, StateChange};
use crate::recorder::{ModeOptions, Options, mode_to_json};
use crate::request::Request;
use crate::response::Response;

impl Handler {
    pub(super) fn start(&self, prefix: &str, request: &Request) -> Response {
        let mut body = match json_body(request) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let session = match &mut body {
            Value::Object(options) => options.remove("session"),
            _ => None,
        };
        let options = match Options::from_json(&body) {
            Ok(options) => options,
            Err(reason) => return Response::error(422, "ValueError", reason),
        };
        if !is_for_this_process(request) && session.is_none() {
            return self.start_all(prefix, &options);
        }
        let Some(id) = session.as_ref().and_then(Value::as_str) else {
            let sentence = "scope=process needs the session to join: add \"session\" to the body";
            return Response::error(422, "ValueError", sentence);
        };
        if let Some(reason) = self.program.changed_user(&self.config().directory) {
            return Response::error(500, "RecordingError", reason);
        }
        self.with_session(id, Style::Heaptide, |session| {
            self.started(prefix, self.program.start_here(session, &options))
        })
    }

    pub(super) fn start_all(&self, prefix: &str, options: &Options) -> Response {
        self.started(prefix, self.program.start(options))
    }

    fn started(&self, prefix: &str, result: Result<Started, String>) -> Response {
        let started = match result {
            Ok(started) => started,
            Err(reason) => return Response::error(500, "RecordingError", reason),
        };
        let session = self.program.find(&started.session);
        let captures = session.iter().flat_map(|session| &session.captures);
        let pids: Vec<u32> = captures.map(|capture| capture.pid).collect();
        let result = match started.change {
            StateChange::Done => "started",
            StateChange::Already => "already_running",
            StateChange::Pending => "pending",
        };
        let answer = json!({
            "result": result,
            "session": started.session,
            "pid": std::process::id(),
            "pids": pids,
            "output": started.output.display().to_string(),
            "warnings": started.warnings,
            "links": links(prefix),
        });
        Response::json(status(started.change), &answer)
    }

    pub(super) fn stop(&self, prefix: &str, request: &Request) -> Response {
        if !is_for_this_process(request) {
            return self.stop_all(prefix);
        }
        match self.program.stop_here() {
            Ok(change) => Response::json(status(change), &json!({"result": stopped(change)})),
            Err(reason) => Response::error(500, "RecordingError", reason),
        }
    }

    pub(super) fn stop_all(&self, prefix: &str) -> Response {
        let (change, session, warnings) = match self.program.stop() {
            Ok(stopped) => stopped,
            Err(reason) => return Response::error(500, "RecordingError", reason),
        };
        let mut answer = json!({"result": stopped(change)});
        if let Some(session) = &session {
            let stats = self.program.quick_stats(session);
            let mut description = self.program.describe(session, stats.as_ref(), prefix);
            for key in ["bytes", "peak_bytes", "duration_ms", "processes"] {
                answer[key] = description[key].take();
            }
        }
        answer["session"] = session.map(|session| session.id).into();
        answer["warnings"] = warnings.into();
        answer["links"] = links(prefix);
        Response::json(status(change), &answer)
    }

    pub(super) fn change_mode(&self, prefix: &str, request: &Request) -> Response {
        let body = match json_body(request) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let wanted = match ModeOptions::from_json(&body) {
            Ok(wanted) => wanted,
            Err(reason) => return Response::error(422, "ValueError", reason),
        };
        let changed = match is_for_this_process(request) {
            true => self.program.change_mode_here(&wanted),
            false => self.program.change_mode(&wanted, &body),
        };
        let (change, warnings) = match changed {
            Ok(Some(changed)) => changed,
            Ok(None) => {
                let sentence = "no recording is active: start one first";
                return Response::error(409, "NotRecording", sentence);
            }
            Err(reason) => return Response::error(500, "RecordingError", reason),
        };
        let result = match change {
            StateChange::Done => "changed",
            StateChange::Already => "unchanged",
            StateChange::Pending => "pending",
        };
        let answer = json!({
            "result": result,
            "session": self.program.own_state().session,
            "mode": self.program.mode().map(mode_to_json),
            "warnings": warnings,
            "links": links(prefix),
        });
        Response::json(status(change), &answer)
    }

    pub(super) fn snapshot(&self, prefix: &str) -> Response {
        match self.program.snapshot() {
            Ok(Some(session)) => {
                let stats = self.program.quick_stats(&session);
                Response::json(
                    200,
                    &self.program.describe(&session, stats.as_ref(), prefix),
                )
            }
            Ok(None) => Response::error(
                409,
                "NotRecording",
                "no recording is active: start one first",
            ),
            Err(reason) => Response::error(500, "RecordingError", reason),
        }
    }
}

fn status(change: StateChange) -> u16 {
    match change {
        StateChange::Done | StateChange::Already => 200,
        StateChange::Pending => 202,
    }
}

fn stopped(change: StateChange) -> &'static str {
    match change {
        StateChange::Done => "stopped",
        StateChange::Already => "already_stopped",
        StateChange::Pending => "pending",
    }
}
