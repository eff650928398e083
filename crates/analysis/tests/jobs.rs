//! Sums of jobs, filters by job, and jobs in trees, pages and exports.

use heaptide_analysis::aggregate::{GroupBy, TreeLimits, TreeShape};
use heaptide_analysis::model::{JobSums, Measure, NodeContent};
use heaptide_analysis::{Filter, FlameLimits, FlameTree, JobGroups, JobView, NoMatch, Request};
use heaptide_analysis::{jobs, load_with, stacks, summary, tree};
use heaptide_capture::Outcome;
use heaptide_testkit::capture;

/// Job 1 keeps 300 bytes and had 5,000 temporary ones; job 2 has the same name. Other code allocates outside of jobs.
const PROGRAM: &str = "
    alloc before 50 at main:1
    job 1 import first; alloc kept 300 at main:2 > load:3; alloc temporary 5000 at main:2 > parse:4
    thread 2; alloc beside 70000 at other:1
    thread 1; time 1000; free temporary; job_end 1 failed
    job 0; alloc between 40 at main:9
    thread 2; free beside; job 2 import second; alloc second 100 at other:2; time 2000
    thread 1; job 3 mail; alloc mail 10 at main:7; time 3000
    free kept; job_end 3; job 0; alloc after 1000 at main:8
    end 4000";

fn filter(patterns: &[&str]) -> Filter {
    Filter {
        jobs: patterns.iter().map(|&it| it.to_owned()).collect(),
        ..Filter::default()
    }
}

fn all(patterns: &[&str]) -> Vec<JobSums> {
    let mut rows = Vec::new();
    let captures = vec![capture(PROGRAM)];
    jobs(captures, &filter(patterns), &mut |_| {}, &mut |job| {
        rows.push(job);
    })
    .expect("no filter by process");
    rows
}

#[test]
fn job_has_its_own_peak_and_its_retained_bytes() {
    let rows = all(&[]);
    let titles: Vec<String> = rows.iter().map(JobSums::title).collect();
    assert_eq!(titles, ["import[first]", "import[second]", "mail"]);
    let first = &rows[0];
    assert_eq!(first.outcome, Outcome::Failed);
    assert_eq!((first.allocated.bytes, first.allocated.count), (5300, 2));
    assert_eq!(first.peak.bytes, 5300);
    assert_eq!(first.retained.map(|it| it.bytes), Some(300));
    assert_eq!(first.retained_now.bytes, 0);
    assert_eq!(first.seconds(), Some(0.001));
    let site = first.peak_sites[0].location.clone().expect("a frame");
    assert_eq!(
        (&*site.function, first.peak_sites[0].bytes),
        ("parse", 5000)
    );
    assert_eq!(first.retained_sites.len(), 1);
    assert!(first.live_sites.is_empty(), "it was freed after the job");
    let mail = &rows[2];
    assert_eq!(
        (mail.retained_now.bytes, mail.live_sites[0].bytes),
        (10, 10)
    );
}

#[test]
fn job_without_an_end_is_running_and_has_no_retained_bytes() {
    let rows = all(&["import[second]"]);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].outcome, Outcome::Running);
    assert_eq!(rows[0].retained, None);
    assert_eq!(rows[0].retained_now.bytes, 100);
    assert_eq!(rows[0].ended_unix_ns, None);
}

#[test]
fn jobs_of_a_name_are_summed() {
    let mut groups = JobGroups::default();
    for job in all(&[]) {
        groups.add(&job);
    }
    let groups = groups.finish();
    let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["import", "mail"]);
    assert_eq!(
        (groups[0].n_jobs, groups[0].n_failed, groups[0].n_running),
        (2, 1, 1)
    );
    assert_eq!(groups[0].peak.bytes, 5300);
    assert_eq!(groups[0].retained.bytes, 300);
}

fn request(patterns: &[&str], jobs: JobView) -> Request {
    Request {
        filter: filter(patterns),
        jobs,
        ..Request::default()
    }
}

#[test]
fn filter_by_job_counts_only_its_allocations() {
    for (pattern, total) in [
        ("import", 5400),
        ("import[first]", 5300),
        ("*[second]", 100),
        ("#3", 10),
        ("m*", 10),
    ] {
        let session = load_with(
            vec![capture(PROGRAM)],
            request(&[pattern], JobView::Hidden),
            &mut |_| {},
        )
        .expect("jobs match");
        assert_eq!(session.processes[0].sums.total.bytes, total, "{pattern}");
    }
    let none = load_with(
        vec![capture(PROGRAM)],
        request(&["export"], JobView::Hidden),
        &mut |_| {},
    );
    let Err(NoMatch::Job { known }) = none else {
        panic!("no job has this name");
    };
    assert_eq!(known, ["import", "mail"]);
}

#[test]
fn summary_has_a_row_per_job_name() {
    let session = load_with(
        vec![capture(PROGRAM)],
        request(&[], JobView::Named),
        &mut |_| {},
    )
    .expect("no filter");
    let rows = summary(&session, Measure::Total, GroupBy::Job);
    let mut rows: Vec<(&str, u64)> = rows
        .functions
        .iter()
        .map(|row| (&*row.function, row.total_bytes))
        .collect();
    rows.sort();
    assert_eq!(rows, [("<no job>", 71090), ("import", 5400), ("mail", 10)]);
}

#[test]
fn tree_by_job_has_the_job_at_the_root() {
    let session = load_with(
        vec![capture(PROGRAM)],
        request(&[], JobView::AtRoot),
        &mut |_| {},
    )
    .expect("no filter");
    let limits = TreeLimits {
        n_biggest: 100,
        max_depth: None,
        min_percent: 0.0,
    };
    let tree = tree(&session, Measure::Total, limits, TreeShape::default());
    let functions: Vec<String> = tree
        .nodes
        .iter()
        .filter_map(|node| match &node.content {
            NodeContent::Frame(at) => Some(at.function.to_string()),
            _ => None,
        })
        .collect();
    let at = functions.iter().position(|it| it == "job import");
    let at = at.expect("a node for the job");
    assert_eq!(functions[at + 1], "main");
}

#[test]
fn page_has_the_job_of_each_origin_and_the_spans_of_jobs() {
    let session = load_with(
        vec![capture(PROGRAM)],
        request(&[], JobView::Named),
        &mut |_| {},
    )
    .expect("no filter");
    let flame = FlameTree::new(&session).cut(FlameLimits::default());
    assert_eq!(flame.jobs, ["import", "mail"]);
    assert!(flame.origins.iter().any(|origin| origin.job == Some(1)));
    assert!(flame.origins.iter().any(|origin| origin.job.is_none()));
    let spans: Vec<(u32, u64, u64)> = flame
        .job_spans
        .iter()
        .map(|span| (span.job, span.start_ns, span.end_ns))
        .collect();
    assert_eq!(
        spans,
        [
            (0, 0, 1_000_000),
            (0, 1_000_000, 4_000_000),
            (1, 2_000_000, 3_000_000)
        ]
    );
    assert_eq!(stacks(&session).jobs, ["import", "mail"]);
}

#[test]
fn capture_without_jobs_has_none() {
    let mut n_jobs = 0;
    let captures = vec![capture("alloc x 10 at main; end 10")];
    jobs(captures, &Filter::default(), &mut |_| {}, &mut |_| {
        n_jobs += 1;
    })
    .expect("no filter");
    assert_eq!(n_jobs, 0);
}
