//! `GET /status`: which processes are being recorded.

use heaptide_procfs as procfs;

use super::{Handler, is_for_this_process, links};
use crate::json::{Json, object};
use crate::program::Member;
use crate::request::Request;
use crate::response::Response;

impl Handler {
    pub(super) fn status(&self, prefix: &str, request: &Request) -> Response {
        let own = self.program.own_state();
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
            let mut members = self.program.siblings();
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
    procfs::kib_field(&procfs::status_text("self").ok()?, "VmRSS")
}
