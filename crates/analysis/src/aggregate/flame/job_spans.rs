//! When jobs ran, for the timeline of a page.

use std::cmp::Reverse;

use crate::interner::Interner;
use crate::load::Session;
use crate::model::StackModel;
use crate::model::flame::JobSpan;

/// More bars than this cannot be distinguished.
const MAX_SPANS: usize = 2_000;

/// The longest jobs that pass the filter, by start, and the number of others. Adds their names to `names`.
pub(super) fn longest(
    session: &Session,
    model: &StackModel,
    names: &mut Vec<String>,
) -> (Vec<JobSpan>, usize) {
    let mut all = Vec::new();
    for (process, shown) in session.processes.iter().zip(&model.processes) {
        let jobs = &process.registry.jobs;
        let end_unix_ns = shown.start_unix_ns.saturating_add(shown.duration_ns);
        for job in jobs.iter() {
            let ended = match job.ended {
                Some(_) => job.ended_unix_ns,
                None => end_unix_ns,
            };
            let since_start = |unix_ns: u64| unix_ns.saturating_sub(model.start_unix_ns);
            let (start_ns, end_ns) = (since_start(job.began_unix_ns), since_start(ended));
            if session.filter.wants_job(jobs, job) {
                all.push((start_ns, end_ns.max(start_ns), process, job));
            }
        }
    }
    let n_all = all.len();
    all.sort_by_key(|&(start_ns, end_ns, _, job)| (Reverse(end_ns - start_ns), job.number));
    all.truncate(MAX_SPANS);
    all.sort_by_key(|&(start_ns, _, _, job)| (start_ns, job.number));
    let mut numbered = Interner::default();
    for name in names.drain(..) {
        numbered.number(name);
    }
    let position = |wanted: &crate::load::Process| {
        let mut processes = session.processes.iter();
        let is_same = |process: &crate::load::Process| std::ptr::eq(process, wanted);
        processes.position(is_same).unwrap_or(0) as u32
    };
    let spans = all
        .into_iter()
        .map(|(start_ns, end_ns, process, job)| JobSpan {
            job: numbered.number(process.registry.jobs.name(job).to_string()),
            process: position(process),
            start_ns,
            end_ns,
            key: process.registry.jobs.key(job).map(str::to_owned),
            outcome: job.outcome,
        });
    let spans: Vec<JobSpan> = spans.collect();
    *names = numbered.values;
    let n_more = n_all - spans.len();
    (spans, n_more)
}
