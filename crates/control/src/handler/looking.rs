//! What was recorded: sessions, their captures, and the reports that can be made of them.

use super::{Handler, Manners};
use crate::json::{Json, object};
use crate::reports::Report;
use crate::request::Request;
use crate::response::Response;
use crate::routes::BASE;
use crate::sessions::Session;
use crate::switch::MAX_BYTES_IN_PASSING;

impl Handler {
    pub(super) fn sessions(&self, prefix: &str) -> Response {
        let mut sessions = self.switch.sessions.list();
        // A recording that was not started here has no folder, but it is there.
        sessions.splice(0..0, self.switch.find(crate::sessions::CURRENT));
        // One that ended with its process was not looked through yet.
        let mut n_bytes = 0;
        let sessions: Vec<Json> = sessions
            .iter()
            .map(|session| {
                let known = session.known_stats();
                let stats = known.or_else(|| {
                    n_bytes += session.bytes();
                    let is_quick = n_bytes <= MAX_BYTES_IN_PASSING && !session.is_running();
                    is_quick.then(|| self.switch.stats(session)).flatten()
                });
                self.switch.describe(session, stats.as_ref(), prefix)
            })
            .collect();
        // No limit is no number.
        let limit = |most: u64| (most < i64::MAX as u64).then_some(most).into();
        let keep = object([
            ("sessions", limit(self.config().keep_sessions as u64)),
            ("bytes", limit(self.config().keep_bytes)),
        ]);
        let answer = object([("sessions", sessions.into()), ("keep", keep)]);
        Response::json(200, &answer)
    }

    pub(super) fn delete(&self, id: &str) -> Response {
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

    pub(super) fn make(
        &self,
        report: Report,
        id: &str,
        request: &Request,
        manners: Manners,
    ) -> Response {
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

    pub(super) fn with_session(
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
