//! On and off: what is recorded, start, stop, snapshot, and every object at once.

use super::{Handler, Style, is_for_this_process, json_body, links};
use crate::json::{Json, object};
use crate::program::{Done, Started};
use crate::recorder::Options;
use crate::request::Request;
use crate::response::Response;

impl Handler {
    pub(super) fn start(&self, prefix: &str, request: &Request) -> Response {
        let mut body = match json_body(request) {
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
        if let Some(reason) = self.program.changed_user(&self.config().directory) {
            return Response::error(500, "RecordingError", reason);
        }
        self.with_session(id, Style::Heaptide, |session| {
            self.started(prefix, self.program.start_here(session, &options))
        })
    }

    pub(super) fn start_with(&self, prefix: &str, options: &Options) -> Response {
        self.started(prefix, self.program.start(options))
    }

    pub(super) fn started(&self, prefix: &str, result: Result<Started, String>) -> Response {
        let started = match result {
            Ok(started) => started,
            Err(reason) => return Response::error(500, "RecordingError", reason),
        };
        let session = self.program.find(&started.session);
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
        match self.program.stop_here() {
            Ok(done) => {
                let status = if done == Done::Pending { 202 } else { 200 };
                Response::json(status, &object([("result", stopped(&done).into())]))
            }
            Err(reason) => Response::error(500, "RecordingError", reason),
        }
    }

    pub(super) fn stop_all(&self, prefix: &str) -> Response {
        let (done, session, warnings) = match self.program.stop() {
            Ok(stopped) => stopped,
            Err(reason) => return Response::error(500, "RecordingError", reason),
        };
        let mut answer = object([("result", stopped(&done).into())]);
        if let Some(session) = &session {
            let stats = self.program.quick_stats(session);
            let description = self.program.describe(session, stats.as_ref(), prefix);
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
                "nothing is recorded at the moment: start first",
            ),
            Err(reason) => Response::error(500, "RecordingError", reason),
        }
    }
}

fn stopped(done: &Done) -> &'static str {
    match done {
        Done::Yes => "stopped",
        Done::Already => "already_stopped",
        Done::Pending => "pending",
    }
}
