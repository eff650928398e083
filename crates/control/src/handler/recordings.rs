//! Sessions: list, show, download and delete them, and make reports of them.

use serde_json::{Value, json};

use super::{Handler, Style};
use crate::program::MAX_BYTES_FOR_QUICK_STATS;
use crate::reports::Report;
use crate::request::Request;
use crate::response::Response;
use crate::routes::BASE;
use crate::sessions::Session;

impl Handler {
    pub(super) fn sessions(&self, prefix: &str) -> Response {
        let mut sessions = self.program.sessions.list();
        // A recording that the program itself started has no folder, but is listed.
        sessions.splice(0..0, self.program.find(crate::sessions::CURRENT));
        // Sessions that ended with their process have no stored numbers yet: they are computed here up to a limit.
        let mut n_bytes = 0;
        let sessions: Vec<Value> = sessions
            .iter()
            .map(|session| {
                let stats = session.known_stats().or_else(|| {
                    n_bytes += session.bytes();
                    let is_quick = n_bytes <= MAX_BYTES_FOR_QUICK_STATS && !session.is_running();
                    is_quick.then(|| self.program.stats(session)).flatten()
                });
                self.program.describe(session, stats.as_ref(), prefix)
            })
            .collect();
        // `null` means no limit.
        let limit = |most: u64| (most < i64::MAX as u64).then_some(most);
        let keep = json!({
            "sessions": limit(self.config().keep_sessions as u64),
            "bytes": limit(self.config().keep_bytes),
        });
        Response::json(200, &json!({"sessions": sessions, "keep": keep}))
    }

    pub(super) fn delete(&self, id: &str) -> Response {
        self.with_session(id, Style::Heaptide, |session| {
            if session.is_running() || session.folder.is_none() {
                let sentence = format!("session {} is being recorded: stop it first", session.id);
                return Response::error(409, "StillRecording", sentence);
            }
            match self.program.sessions.delete(session) {
                Ok(()) => Response::json(200, &json!({"deleted": session.id})),
                Err(error) => {
                    let sentence = format!("cannot delete session {} ({error})", session.id);
                    Response::error(500, "CommandError", sentence)
                }
            }
        })
    }

    pub(super) fn report(
        &self,
        report: Report,
        id: &str,
        request: &Request,
        style: Style,
        is_gone: &dyn Fn() -> bool,
    ) -> Response {
        self.with_session(id, style, |session| {
            let base = match (report.needs_base, request.parameter("base")) {
                (false, _) => None,
                (true, None) => {
                    let sentence = "name the session to compare with: ?base=SESSION";
                    return Response::error(400, "ArgumentError", sentence);
                }
                (true, Some(base)) => match self.program.find(base) {
                    Some(base) if !base.captures.is_empty() => Some(base),
                    _ => return no_session(base, Style::Heaptide),
                },
            };
            let program = &self.program;
            let mut response = report.make(
                &program.config,
                &program.renderer,
                request,
                session,
                base.as_ref(),
                is_gone,
            );
            if style == Style::Memray {
                for header in &mut response.headers {
                    if header.0 == "Content-Disposition" {
                        header.1 = "inline; filename=\"memray-flamegraph.html\"".to_owned();
                    }
                }
            }
            response
        })
    }

    pub(super) fn with_session(
        &self,
        id: &str,
        style: Style,
        answer: impl FnOnce(&Session) -> Response,
    ) -> Response {
        let Some(session) = self.program.find(id) else {
            return no_session(id, style);
        };
        let response = answer(&session);
        // Another request, or the limit of kept sessions, can delete the session while this one reads it.
        if response.status == 500 && session.is_deleted() {
            return no_session(&session.id, style);
        }
        response
    }
}

fn no_session(id: &str, style: Style) -> Response {
    let sentence = match id {
        "latest" => "there is no report yet: start the profiler first".to_owned(),
        id => format!("there is no session {id:?}: {BASE}/sessions lists them"),
    };
    match style {
        Style::Heaptide => Response::error(404, "NotFound", sentence),
        Style::Memray => Response::error(400, "ValueError", sentence),
    }
}
