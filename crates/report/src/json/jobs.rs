//! `heaptide jobs --json`: a list of rows. The first twelve keys are stable; more may follow. Also the data of the page.

use heaptide_analysis::job_runs::trend::MIN_RUNS;
use heaptide_analysis::job_runs::{Distribution, JobRow, JobRuns, JobTable, OUTCOMES, Worker};
use heaptide_capture::Outcome;
use serde_json::{Value, json};

use super::{identity, number};

pub fn jobs(runs: &JobRuns, table: &JobTable) -> Value {
    table.rows.iter().map(|each| row(runs, each)).collect()
}

fn row(runs: &JobRuns, row: &JobRow) -> Value {
    let peak = row.peak;
    let retained = row.retained;
    let trend = retained.and_then(|retained| retained.trend);
    let seconds = |value: Option<f64>| value.map_or(Value::Null, number);
    let process = row.process.map(|at| &runs.processes[at as usize]);
    json!({
        "name": row.name,
        "runs": row.n_runs,
        "failed": row.n(Outcome::Failed),
        "killed": row.n(Outcome::Killed),
        "retained_per_run": retained.and_then(|retained| retained.bytes),
        "peak_p50": peak.map(|peak| peak.p50),
        "peak_p95": peak.map(|peak| peak.p95),
        "peak_max": peak.map(|peak| peak.max),
        "seconds_p50": seconds(row.seconds.map(|seconds| seconds.p50)),
        "verdict": row.verdict().name(),
        "site": row.site.as_ref().map(|site| &site.location),
        "suggested_limit_bytes": row.suggested_limit_bytes,
        "ok": row.n(Outcome::Ok),
        "skipped": row.n(Outcome::Skipped),
        "deferred": row.n(Outcome::Deferred),
        "retried": row.n(Outcome::Retried),
        "running": row.n(Outcome::Running),
        "seconds_p95": seconds(row.seconds.map(|seconds| seconds.p95)),
        "seconds_max": seconds(row.seconds.map(|seconds| seconds.max)),
        "peak_of": peak.map(|_| row.peak_kind.name()),
        "peak_p50_error_bytes_95": row.peak_error.map(|error| error.p50),
        "peak_p95_error_bytes_95": row.peak_error.map(|error| error.p95),
        "peak_max_error_bytes_95": row.peak_error.map(|error| error.max),
        "peak_runs": peak.map_or(0, |peak| peak.n_runs),
        "retained_of": retained.map(|retained| retained.basis.name()),
        "retained_runs": retained.map_or(0, |retained| retained.n_runs),
        "growth_is_shared": retained.is_some_and(|retained| retained.is_shared),
        "slope_bytes_per_run": trend.map_or(Value::Null, |trend| number(trend.slope)),
        "confidence": trend.map_or(Value::Null, |trend| number(trend.confidence)),
        "site_bytes": row.site.as_ref().map(|site| site.bytes),
        "site_runs": row.site.as_ref().map(|site| site.n_runs),
        "site_of": row.site.as_ref().map(|site| if site.is_of_peak { "peak" } else { "retained" }),
        "error": row.error,
        "processes": row.n_processes,
        "hosts": row.n_hosts,
        "first_started": number(row.first_started),
        "last_started": number(row.last_started),
        "host": row.host,
        "label": row.label,
        "process": process.map(|process| identity(&process.identity)),
    })
}

/// A capture that recorded jobs.
pub struct CaptureLink {
    pub path: String,
    /// The address of its flame graph page, if there is one.
    pub page: Option<String>,
    /// The command that makes the page; `JOB` is the placeholder for the name of a job.
    pub command: String,
}

/// The content of the page in addition to the rows.
pub struct PageContent<'a> {
    pub title: String,
    pub warnings: Vec<String>,
    pub captures: &'a [CaptureLink],
    pub workers: &'a [Worker],
    /// The name of a process, by its number.
    pub worker_name: &'a dyn Fn(u32) -> String,
}

/// Returns the data of the page.
pub(crate) fn page(runs: &JobRuns, table: &JobTable, content: &PageContent) -> Value {
    let spans = || content.workers.iter().flat_map(|worker| &worker.spans);
    let from = spans().map(|span| span.from).fold(f64::INFINITY, f64::min);
    let to = spans().map(|span| span.to).fold(0.0, f64::max);
    let from = if from.is_finite() { from } else { 0.0 };
    let mut hosts: Vec<&str> = runs
        .processes
        .iter()
        .map(|process| process.identity.host.as_str())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    let rows = table.rows.iter().map(|each| {
        let mut value = row(runs, each);
        value["title"] = crate::text::jobs::title(each, content.worker_name).into();
        value["peaks"] = distribution(each.peak_distribution.as_ref());
        value["durations"] = distribution(each.seconds_distribution.as_ref());
        value
    });
    let captures = content.captures.iter().map(
        |capture| json!({ "path": capture.path, "page": capture.page, "command": capture.command }),
    );
    let workers = content.workers.iter().map(|worker| {
        let process = &runs.processes[worker.process as usize];
        json!({
            "name": (content.worker_name)(worker.process),
            "host": process.identity.host,
            "run": process.run,
            "lanes": worker.n_lanes,
            "left_out": worker.n_left_out,
        })
    });
    json!({
        "head": {
            "format": 1,
            "title": content.title,
            "runs": table.n_runs,
            "processes": table.n_processes,
            "hosts": hosts,
            "from": from,
            "to": to.max(from),
            "min_runs": MIN_RUNS,
            "warnings": content.warnings,
        },
        "rows": rows.collect::<Value>(),
        "captures": captures.collect::<Value>(),
        "workers": workers.collect::<Value>(),
        "outcomes": OUTCOMES.map(Outcome::name),
        "spans": columns(runs, table, content, from),
    })
}

/// The spans of all workers, column by column.
fn columns(runs: &JobRuns, table: &JobTable, content: &PageContent, from: f64) -> Value {
    let numbered = || {
        let workers = content.workers.iter().enumerate();
        workers.flat_map(|(number, worker)| worker.spans.iter().map(move |span| (number, span)))
    };
    let run = |span: usize| &runs.runs[span];
    // Times in microseconds are precise enough for a page.
    let after = |time: f64| number(((time - from) * 1e6).round() / 1e6);
    let outcome = |at: usize| {
        let outcome = run(at).outcome;
        OUTCOMES.iter().position(|&one| one == outcome)
    };
    let peak = |at: usize| {
        let run = run(at);
        run.numbers.peak_bytes.or(run.numbers.resident_peak).get()
    };
    let peak_error = |at: usize| run(at).numbers.peak_error as u64;
    let retained = |at: usize| {
        let run = run(at);
        run.numbers.retained_bytes.get().or(run.resident_growth())
    };
    json!({
        "worker": numbered().map(|(worker, _)| worker).collect::<Value>(),
        "lane": numbered().map(|(_, span)| span.lane).collect::<Value>(),
        "row": numbered().map(|(_, span)| table.row_of_run[span.run]).collect::<Value>(),
        "from": numbered().map(|(_, span)| after(span.from)).collect::<Value>(),
        "to": numbered().map(|(_, span)| after(span.to)).collect::<Value>(),
        "outcome": numbered().map(|(_, span)| outcome(span.run)).collect::<Value>(),
        "key": numbered().map(|(_, span)| runs.key_of(run(span.run))).collect::<Value>(),
        "peak": numbered().map(|(_, span)| peak(span.run)).collect::<Value>(),
        "peak_error": numbered().map(|(_, span)| peak_error(span.run)).collect::<Value>(),
        "retained": numbered().map(|(_, span)| retained(span.run)).collect::<Value>(),
        "capture": numbered()
            .map(|(_, span)| run(span.run).capture.get().map_or(-1, i64::from))
            .collect::<Value>(),
    })
}

fn distribution(distribution: Option<&Distribution>) -> Value {
    distribution.map_or(
        Value::Null,
        |all| json!({ "from": number(all.from), "to": number(all.to), "counts": all.counts }),
    )
}
