//! What is told of a session: its numbers, its processes, and where its reports are.

use std::fs;
use std::time::SystemTime;

use super::Program;
use crate::calendar::unix_ms;
use crate::json::{Json, object};
use crate::reports;
use crate::routes::BASE;
use crate::sessions::{STATS, Session};

/// Larger sessions are not looked through just because they were stopped or listed.
pub(crate) const MAX_BYTES_IN_PASSING: u64 = 256 << 20;

impl Program {
    /// Its numbers; made by another process and kept, once it has ended.
    pub(crate) fn stats(&self, session: &Session) -> Option<Json> {
        if let Some(known) = session.known_stats() {
            return Some(known);
        }
        if session.captures.is_empty() {
            return None;
        }
        let mut words = vec!["stats".into(), "--json".into(), "--".into()];
        words.extend(
            session
                .captures
                .iter()
                .map(|capture| capture.path.clone().into()),
        );
        let (file, length) = self.renderer.run(words).ok()?;
        let mut body = crate::Body::file_range(file, 0, length.min(1 << 20));
        let mut bytes = vec![0; 1 << 16];
        let mut text = Vec::new();
        while let Ok(n_read @ 1..) = body.read(&mut bytes) {
            text.extend_from_slice(&bytes[..n_read]);
        }
        let stats = Json::parse(&text).ok()?;
        if let (Some(folder), false) = (&session.folder, session.is_running()) {
            // Beside the captures for the next one who asks; without it they are made again.
            let _ = fs::write(folder.join(STATS), stats.to_string());
        }
        Some(stats)
    }

    /// The same, unless the session is so large that nobody wants to wait for it now.
    pub(crate) fn quick_stats(&self, session: &Session) -> Option<Json> {
        if session.bytes() > MAX_BYTES_IN_PASSING {
            return session.known_stats();
        }
        self.stats(session)
    }

    /// What is told of a session everywhere.
    pub(crate) fn describe(&self, session: &Session, stats: Option<&Json>, prefix: &str) -> Json {
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
        let peak = stats.and_then(|stats| stats.get("metadata")?.get("peak_memory").cloned());
        let total = stats.and_then(|stats| stats.get("total_bytes_allocated").cloned());
        let count = stats.and_then(|stats| stats.get("total_num_allocations").cloned());
        let processes: Vec<Json> = session
            .captures
            .iter()
            .map(|capture| {
                object([
                    ("pid", capture.pid.into()),
                    ("bytes", capture.bytes.into()),
                    ("output", capture.path.display().to_string().into()),
                    ("recording", capture.is_being_written().into()),
                ])
            })
            .collect();
        let below = format!("{prefix}{BASE}/sessions/{}", session.id);
        let links = reports::links(&below, reports::of_one_session());
        object([
            ("id", session.id.as_str().into()),
            ("kind", session.kind().into()),
            ("of", session.meta.get("of").cloned().unwrap_or(Json::Null)),
            (
                "state",
                if is_running { "recording" } else { "finished" }.into(),
            ),
            ("started", started.map(crate::calendar::timestamp).into()),
            ("duration_ms", duration.into()),
            ("bytes", session.bytes().into()),
            ("peak_bytes", peak.unwrap_or(Json::Null)),
            ("total_bytes", total.unwrap_or(Json::Null)),
            ("n_allocations", count.unwrap_or(Json::Null)),
            ("options", options_of(session)),
            ("processes", processes.into()),
            ("links", links),
        ])
    }
}

/// How it was started.
pub(super) fn options_of(session: &Session) -> Json {
    let options = session.meta.get("options").cloned();
    options.unwrap_or(Json::Object(Vec::new()))
}
