//! Every route, declared once: the handler looks here what a path means, the OpenAPI document what there is to say.

use crate::reports::{REPORTS, Report};

pub const BASE: &str = "/api/v1/profiler";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    Status,
    Start,
    Stop,
    Snapshot,
    Heap,
    Sessions,
    Session,
    DeleteSession,
    Download,
    Make(Report),
    MemrayStart,
    MemrayStop,
    MemrayDownload,
    MemrayFlamegraph,
    MemrayStats,
    Docs,
    OpenApi,
}

pub struct Route {
    pub method: &'static str,
    /// Below [`BASE`]; `{session}` stands for a session's name.
    pub path: String,
    pub operation: Operation,
    pub summary: &'static str,
}

/// Where a path leads.
pub struct Found {
    /// What stands before the routes.
    pub prefix: String,
    pub session: Option<String>,
    /// The methods there are, with what they do.
    pub operations: Vec<(&'static str, Operation)>,
}

pub fn all() -> Vec<Route> {
    let route = |method, path: &str, operation, summary| Route {
        method,
        path: path.to_owned(),
        operation,
        summary,
    };
    let mut routes = vec![
        route(
            "GET",
            "/status",
            Operation::Status,
            "What is being recorded, in which processes",
        ),
        route(
            "POST",
            "/start",
            Operation::Start,
            "Begin to record, if nothing is recorded yet",
        ),
        route(
            "POST",
            "/stop",
            Operation::Stop,
            "End the recording and complete its captures",
        ),
        route(
            "POST",
            "/snapshot",
            Operation::Snapshot,
            "Keep what is recorded so far as a session of its own; the recording goes on",
        ),
        route(
            "POST",
            "/heap",
            Operation::Heap,
            "Download a heap snapshot: every Python object of this process and who refers to whom",
        ),
        route(
            "GET",
            "/sessions",
            Operation::Sessions,
            "List the sessions, the newest first",
        ),
        route(
            "GET",
            "/sessions/{session}",
            Operation::Session,
            "Show one session with its numbers",
        ),
        route(
            "DELETE",
            "/sessions/{session}",
            Operation::DeleteSession,
            "Delete a session that has ended",
        ),
    ];
    for below in ["", "/sessions/{session}"] {
        routes.push(route(
            "GET",
            &format!("{below}/report"),
            Operation::Download,
            "Download the capture; of several processes an archive with all of them",
        ));
        for report in REPORTS {
            let path = format!("{below}/{}", report.route);
            routes.push(route("GET", &path, Operation::Make(*report), ""));
        }
    }
    routes.extend([
        route(
            "POST",
            "/memray/start",
            Operation::MemrayStart,
            "Start the profiler session, if it is not started yet",
        ),
        route(
            "POST",
            "/memray/stop",
            Operation::MemrayStop,
            "Stop the profiler session and save its report",
        ),
        route(
            "GET",
            "/memray/report",
            Operation::MemrayDownload,
            "Download the report as a binary file",
        ),
        route(
            "GET",
            "/memray/flamegraph",
            Operation::MemrayFlamegraph,
            "Show the report as a flame graph",
        ),
        route(
            "GET",
            "/memray/stats",
            Operation::MemrayStats,
            "Show the statistics of the report",
        ),
    ]);
    routes
}

/// What a path means; `None` if it means nothing. The last place where the routes may begin counts, so that they are
/// found below any prefix.
pub fn find(path: &str) -> Option<Found> {
    let begin = path.rfind(BASE);
    let begin = begin.filter(|at| is_border(&path[at + BASE.len()..]));
    begin
        .and_then(|at| find_route(path, at))
        .or_else(|| find_document(path))
}

/// Where the routes begin that a path is among, or would be; there is also the page that lists them.
pub fn home(path: &str) -> &str {
    let begin = path.rfind(BASE);
    begin.map_or(BASE, |at| &path[..at + BASE.len()])
}

fn find_route(path: &str, at: usize) -> Option<Found> {
    let rest = &path[at + BASE.len()..];
    let mut session = None;
    let mut operations = Vec::new();
    for route in all() {
        if let Some(found) = matches(&route.path, rest) {
            session = session.or(found.map(str::to_owned));
            operations.push((route.method, route.operation));
        }
    }
    (!operations.is_empty()).then(|| Found {
        prefix: path[..at].to_owned(),
        session,
        operations,
    })
}

fn find_document(path: &str) -> Option<Found> {
    let documents = [
        ("/docs", Operation::Docs),
        ("/openapi.json", Operation::OpenApi),
    ];
    documents.into_iter().find_map(|(ending, operation)| {
        let prefix = path.strip_suffix(ending)?;
        Some(Found {
            // Beside the routes they are found, too: at the top the job may have documents of its own.
            prefix: prefix.strip_suffix(BASE).unwrap_or(prefix).to_owned(),
            session: None,
            operations: vec![("GET", operation)],
        })
    })
}

fn is_border(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// Whether `path` has the form of `template`, and the session that it names.
fn matches<'a>(template: &str, path: &'a str) -> Option<Option<&'a str>> {
    let mut session = None;
    let mut pieces = path.split('/');
    for wanted in template.split('/') {
        let piece = pieces.next()?;
        if wanted == "{session}" && !piece.is_empty() {
            session = Some(piece);
        } else if wanted != piece {
            return None;
        }
    }
    pieces.next().is_none().then_some(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_found_below_any_prefix() {
        for prefix in [
            "",
            "/pub/job/leak/0.0.1",
            "/pub/fatman/x/y",
            "/api/v1/profiler/api/v1",
        ] {
            let found = find(&format!("{prefix}{BASE}/sessions/abc/stats")).unwrap();
            assert_eq!(found.session.as_deref(), Some("abc"));
            assert_eq!(found.prefix, prefix);
            assert_eq!(find(&format!("{prefix}/docs")).unwrap().prefix, prefix);
        }
        assert!(find("/api/v1/profilers/status").is_none());
        assert!(find("/api/v1/profiler/sessions/a/b/stats").is_none());
        assert!(find("/api/v1/profiler/nothing").is_none());
        let methods: Vec<&str> = find("/api/v1/profiler/sessions/a")
            .unwrap()
            .operations
            .iter()
            .map(|one| one.0)
            .collect();
        assert_eq!(methods, ["GET", "DELETE"]);
    }
}
