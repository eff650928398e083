//! The table of routes. [`resolve`] finds the route of a path; `openapi` describes the same table.

use crate::reports::{self, REPORTS, Report};

/// The path that every route starts with, after any prefix.
pub const BASE: &str = "/api/v1/profiler";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operation {
    Status,
    Start,
    Stop,
    Mode,
    Snapshot,
    Heap,
    Sessions,
    Session,
    DeleteSession,
    Download,
    Files,
    Report(Report),
    MemrayStart,
    MemrayStop,
    MemrayDownload,
    MemrayReport(Report),
    Docs,
    OpenApi,
}

#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// Relative to [`BASE`]; `{session}` matches a session ID.
    pub(crate) path: &'static str,
    pub(crate) operation: Operation,
    /// Empty for reports, which are described by their command.
    pub(crate) summary: &'static str,
}

/// The route of a path. One path can have several methods.
pub struct ResolvedRoute {
    /// The part of the path before [`BASE`].
    pub(crate) prefix: String,
    pub(crate) session: Option<String>,
    pub(crate) operations: Vec<(&'static str, Operation)>,
}

const fn get(path: &'static str, operation: Operation, summary: &'static str) -> Route {
    Route {
        method: "GET",
        path,
        operation,
        summary,
    }
}

const fn post(path: &'static str, operation: Operation, summary: &'static str) -> Route {
    Route {
        method: "POST",
        ..get(path, operation, summary)
    }
}

const DOWNLOAD: &str = "Download the capture, or an archive of the captures of several processes";

const ROUTES: &[Route] = &[
    get(
        "/status",
        Operation::Status,
        "Show which processes are being recorded",
    ),
    post(
        "/start",
        Operation::Start,
        "Start recording, unless a recording is running",
    ),
    post(
        "/stop",
        Operation::Stop,
        "Stop recording and complete the captures",
    ),
    post(
        "/mode",
        Operation::Mode,
        "Change the mode of the running recording",
    ),
    post(
        "/snapshot",
        Operation::Snapshot,
        "Save the recording so far as its own session; recording continues",
    ),
    post(
        "/heap",
        Operation::Heap,
        "Download a heap snapshot: all Python objects of this process and their references",
    ),
    get(
        "/sessions",
        Operation::Sessions,
        "List the sessions, newest first",
    ),
    get(
        "/sessions/{session}",
        Operation::Session,
        "Show one session with its numbers",
    ),
    Route {
        method: "DELETE",
        ..get(
            "/sessions/{session}",
            Operation::DeleteSession,
            "Delete a finished session",
        )
    },
    get(
        "/files",
        Operation::Files,
        "List timelines and job records of the run, or download one: ?name=NAME",
    ),
    get("/report", Operation::Download, DOWNLOAD),
    get("/sessions/{session}/report", Operation::Download, DOWNLOAD),
];

/// The routes that clients of memray's HTTP API use.
const MEMRAY_ROUTES: &[Route] = &[
    post(
        "/memray/start",
        Operation::MemrayStart,
        "Start the profiler session, unless one is running",
    ),
    post(
        "/memray/stop",
        Operation::MemrayStop,
        "Stop the profiler session and save its report",
    ),
    get(
        "/memray/report",
        Operation::MemrayDownload,
        "Download the report as a binary file",
    ),
    get(
        "/memray/flamegraph",
        Operation::MemrayReport(reports::FLAMEGRAPH),
        "Show the report as a flame graph",
    ),
    get(
        "/memray/stats",
        Operation::MemrayReport(reports::MEMRAY_STATS),
        "Show the statistics of the report",
    ),
];

/// Returns every route. A report has one route for the latest session and one for a named session.
pub(crate) fn all() -> impl Iterator<Item = Route> {
    let route = |report: &Report, path| get(path, Operation::Report(*report), "");
    let of_latest = REPORTS.iter().map(move |report| route(report, report.path));
    let of_session = REPORTS
        .iter()
        .map(move |report| route(report, report.session_path));
    let routes = ROUTES.iter().copied().chain(of_latest).chain(of_session);
    routes.chain(MEMRAY_ROUTES.iter().copied())
}

/// Finds the route of a path below any prefix: the last [`BASE`] in the path is used.
pub fn resolve(path: &str) -> Option<ResolvedRoute> {
    let start = path.rfind(BASE);
    start
        .and_then(|at| resolve_route(&path[..at], &path[at + BASE.len()..]))
        .or_else(|| resolve_document(path))
}

/// Returns the part of a path that ends with [`BASE`], below which `/docs` lists the routes.
pub(crate) fn home(path: &str) -> &str {
    let start = path.rfind(BASE);
    start.map_or(BASE, |at| &path[..at + BASE.len()])
}

fn resolve_route(prefix: &str, rest: &str) -> Option<ResolvedRoute> {
    let mut session = None;
    let mut operations = Vec::new();
    for route in all() {
        if let Some(named) = matches(route.path, rest) {
            session = session.or(named.map(str::to_owned));
            operations.push((route.method, route.operation));
        }
    }
    (!operations.is_empty()).then(|| ResolvedRoute {
        prefix: prefix.to_owned(),
        session,
        operations,
    })
}

fn resolve_document(path: &str) -> Option<ResolvedRoute> {
    let documents = [
        ("/docs", Operation::Docs),
        ("/openapi.json", Operation::OpenApi),
    ];
    documents.into_iter().find_map(|(ending, operation)| {
        let prefix = path.strip_suffix(ending)?;
        Some(ResolvedRoute {
            // These documents are also served below BASE, because the program may have its own at the top.
            prefix: prefix.strip_suffix(BASE).unwrap_or(prefix).to_owned(),
            session: None,
            operations: vec![("GET", operation)],
        })
    })
}

/// Matches `path` with `template`. Returns the session that the path names, if the template has one.
fn matches<'a>(template: &str, path: &'a str) -> Option<Option<&'a str>> {
    let mut session = None;
    let mut segments = path.split('/');
    for wanted in template.split('/') {
        let segment = segments.next()?;
        if wanted == "{session}" && !segment.is_empty() {
            session = Some(segment);
        } else if wanted != segment {
            return None;
        }
    }
    segments.next().is_none().then_some(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_resolve_below_any_prefix() {
        for prefix in [
            "",
            "/pub/job/leak/0.0.1",
            "/pub/fatman/x/y",
            "/api/v1/profiler/api/v1",
        ] {
            let route = resolve(&format!("{prefix}{BASE}/sessions/abc/stats")).unwrap();
            assert_eq!(route.session.as_deref(), Some("abc"));
            assert_eq!(route.prefix, prefix);
            assert_eq!(resolve(&format!("{prefix}/docs")).unwrap().prefix, prefix);
        }
        let methods: Vec<&str> = resolve("/api/v1/profiler/sessions/a")
            .unwrap()
            .operations
            .iter()
            .map(|one| one.0)
            .collect();
        assert_eq!(methods, ["GET", "DELETE"]);
    }

    #[test]
    fn unknown_paths_and_report_names_do_not_resolve() {
        for path in [
            "/api/v1/profilers/status",
            "/api/v1/profiler/sessions/a/b/stats",
            "/api/v1/profiler/flamegraf",
            "/api/v1/profiler/sessions/latest/flamegraf",
            "/api/v1/profiler/memray/table",
        ] {
            assert!(resolve(path).is_none(), "{path}");
        }
    }

    #[test]
    fn every_report_has_a_route_for_the_latest_and_for_a_named_session() {
        for report in REPORTS {
            for path in ["", "/sessions/abc"] {
                let route = resolve(&format!("{BASE}{path}/{}", report.name)).unwrap();
                assert_eq!(route.operations, [("GET", Operation::Report(*report))]);
            }
        }
    }
}
