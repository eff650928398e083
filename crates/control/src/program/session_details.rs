//! The description of a session that the control API returns: its numbers, its processes and its links.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::Program;
use crate::calendar::{timestamp, unix_ms};
use crate::reports;
use crate::routes::BASE;
use crate::sessions::{Capture, Session};
use heaptide_capture::{Header, Identity, Labels, identity};

/// The most bytes of captures whose numbers one request to stop or to list sessions computes.
pub(crate) const MAX_BYTES_FOR_QUICK_STATS: u64 = 256 << 20;
const MAX_STATS_BYTES: u64 = 1 << 20;

impl Program {
    /// Computes the numbers of a session in another process. Stores the numbers of a finished session.
    pub(crate) fn stats(&self, session: &Session) -> Option<Value> {
        if let Some(known) = session.known_stats() {
            return Some(known);
        }
        if session.captures.is_empty() {
            return None;
        }
        let mut words = vec!["stats".into(), "--json".into(), "--".into()];
        let captures = session.captures.iter();
        words.extend(captures.map(|capture| capture.path.clone().into()));
        let (file, length) = self.renderer.run(&words, &|| (), &|| false).ok()?;
        let mut body = crate::Body::file_range(file, 0, length.min(MAX_STATS_BYTES));
        let mut buffer = vec![0; 1 << 16];
        let mut text = Vec::new();
        while let Ok(n_read @ 1..) = body.read(&mut buffer) {
            text.extend_from_slice(&buffer[..n_read]);
        }
        let stats: Value = serde_json::from_slice(&text).ok()?;
        if !session.is_running() {
            // If the file cannot be written, the next request computes the numbers again.
            let _ = session.store_stats(&stats);
        }
        Some(stats)
    }

    /// Returns the numbers of a session, unless they are unknown and the session is too large to compute them now.
    pub(crate) fn quick_stats(&self, session: &Session) -> Option<Value> {
        if session.bytes() > MAX_BYTES_FOR_QUICK_STATS {
            return session.known_stats();
        }
        self.stats(session)
    }

    /// Returns the JSON description of a session. Links start with `prefix`.
    pub(crate) fn describe(&self, session: &Session, stats: Option<&Value>, prefix: &str) -> Value {
        let is_running = session.is_running();
        let started = session.started_unix_ms();
        let ended = if is_running {
            Some(unix_ms(SystemTime::now()))
        } else {
            session.modified_unix_ms()
        };
        let duration = session.recorded_ms().or(ended
            .zip(started)
            .map(|(ended, started)| ended.saturating_sub(started)));
        let captures = session.captures.iter();
        let headers: Vec<Header> = captures.clone().map(Capture::header).collect();
        let identities: Vec<Identity> = headers.iter().map(Header::identity).collect();
        let names = identity::names(&identities);
        let processes: Vec<Value> = captures
            .zip(headers.iter().zip(names))
            .map(|(capture, (header, name))| {
                json!({
                    "pid": capture.pid,
                    "process": name,
                    "title": header.title(),
                    "labels": labels_to_json(&header.labels()),
                    "identity": to_json(&header.identity()),
                    "bytes": capture.bytes,
                    "output": capture.path.display().to_string(),
                    "recording": capture.is_being_written(),
                })
            })
            .collect();
        let base = format!("{prefix}{BASE}/sessions/{}", session.id);
        json!({
            "id": session.id,
            "kind": session.category(),
            "run": session.meta.get("run"),
            "of": session.meta.get("of"),
            "state": if is_running { "recording" } else { "finished" },
            "started": started.map(timestamp),
            "duration_ms": duration,
            "bytes": session.bytes(),
            "peak_bytes": stats.and_then(|stats| stats.get("metadata")?.get("peak_memory")),
            "total_bytes": stats.and_then(|stats| stats.get("total_bytes_allocated")),
            "n_allocations": stats.and_then(|stats| stats.get("total_num_allocations")),
            "options": options_of(session),
            "processes": processes,
            "links": reports::links(&base, reports::of_one_session()),
        })
    }
}

/// The identity of a process. Unknown parts are `null`.
pub(crate) fn to_json(identity: &Identity) -> Value {
    let mut value: Value = identity.named_parts().into_iter().collect();
    value["pid"] = identity.pid.into();
    value
}

/// The labels of a process as an object.
pub(crate) fn labels_to_json(labels: &Labels) -> Value {
    let pairs = labels.iter();
    pairs
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

/// Returns the options that the session was started with.
pub(super) fn options_of(session: &Session) -> Value {
    let options = session.meta.get("options").cloned();
    options.unwrap_or_else(|| json!({}))
}
