//! `POST /heap`: downloads a heap snapshot of this process.

use super::{Handler, json_body};
use crate::recorder::HeapOptions;
use crate::request::Request;
use crate::response::{Body, Response};

impl Handler {
    pub(super) fn heap(&self, request: &Request) -> Response {
        let body = match json_body(request) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let options = match HeapOptions::from_json(&body) {
            Ok(options) => options,
            Err(reason) => return Response::error(422, "ValueError", reason),
        };
        match self.program.heap(&options) {
            Ok(Some((file, length, pause_ms))) => {
                let name = format!("{}-{}.heap", self.config().name, std::process::id());
                let name = name.replace(['"', '/', '\\'], "_");
                Response {
                    status: 200,
                    headers: vec![("Content-Type", "application/octet-stream".to_owned())],
                    body: Body::file_range(file, 0, length),
                }
                .with(
                    "Content-Disposition",
                    format!("attachment; filename=\"{name}\""),
                )
                .with("X-Heaptide-Paused-Ms", format!("{pause_ms:.1}"))
                .with("Cache-Control", "no-store")
            }
            Ok(None) => Response::error(
                503,
                "Busy",
                "the interpreter is busy, so no heap snapshot could be taken: try again",
            ),
            Err(reason) => Response::error(500, "RecordingError", reason),
        }
    }
}
