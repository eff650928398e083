//! `GET /status`: the processes of the program and whether they are being recorded.

use std::time::SystemTime;

use heaptide_procfs as procfs;
use serde_json::{Value, json};

use super::{Handler, is_for_this_process, links};
use crate::calendar::unix_ms;
use crate::lock;
use crate::program::Member;
use crate::recorder::mode_to_json;
use crate::request::Request;
use crate::response::Response;

impl Handler {
    pub(super) fn status(&self, prefix: &str, request: &Request) -> Response {
        let config = self.config();
        let own = self.program.own_state();
        let mut answer = json!({
            "state": if own.output.is_some() { "recording" } else { "stopped" },
            "pid": own.pid,
            "identity": own.identity,
            "title": own.title,
            "labels": own.labels,
            "run": config.run,
            "session": own.session,
            "output": own.output,
            "failed": own.has_failed,
            "mode": self.program.mode().map(mode_to_json),
            "name": config.name,
            "command": config.command,
            "version": env!("CARGO_PKG_VERSION"),
            "resident_bytes": resident_bytes(),
            "time_unix_ms": unix_ms(SystemTime::now()),
            "directory": config.directory.display().to_string(),
            "addresses": *lock(&self.addresses),
        });
        if !is_for_this_process(request) {
            let mut members = self.program.siblings();
            if members.iter().any(|member| member.session.is_some()) {
                answer["state"] = "recording".into();
            }
            members.push(own);
            members.sort_by_key(|member| member.pid);
            answer["processes"] = members.iter().map(describe_member).collect();
            let wanted = self.program.wanted();
            answer["wanted_session"] = wanted.map(|(session, _)| session.id).into();
            answer["links"] = links(prefix);
        }
        Response::json(200, &answer)
    }
}

fn describe_member(member: &Member) -> Value {
    let state = match (&member.problem, &member.output) {
        (Some(_), _) => "unknown",
        (None, Some(_)) => "recording",
        (None, None) => "stopped",
    };
    let failure = "its recording has failed; stop closes the capture";
    let failure = member.has_failed.then(|| failure.to_owned());
    json!({
        "pid": member.pid,
        "identity": member.identity,
        "title": member.title,
        "labels": member.labels,
        "state": state,
        "session": member.session,
        "output": member.output,
        "problem": member.problem.clone().or(failure),
    })
}

/// Returns the resident size of this process.
fn resident_bytes() -> Option<u64> {
    procfs::kib_field(&procfs::status_text("self").ok()?, "VmRSS")
}
