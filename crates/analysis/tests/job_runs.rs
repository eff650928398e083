//! Job records: reading, joining and rows.

use std::io::Cursor;

use heaptide_analysis::job_runs::{
    Basis, Grouping, JobRun, JobRuns, JobTable, PeakKind, RecordNotes, RecordReader, RunNumbers,
    Verdict, job_table, workers,
};
use heaptide_capture::Outcome;
use proptest::prelude::*;

/// A line of a process; `more` are further fields.
fn line(event: &str, pid: u32, number: u32, name: &str, time: f64, more: &str) -> String {
    format!(
        r#"{{"v":1,"event":"{event}","id":"r/h/{pid}/s/{number}","run":"r","host":"web-1","boot_id":"b","pid_namespace":"n","pid":{pid},"start":"1.00s","number":{number},"name":"{name}","key":null,"labels":{{}},"thread":1,"time":{time}{more}}}"#
    )
}

fn ended(pid: u32, number: u32, name: &str, started: f64, more: &str) -> [String; 2] {
    let end = format!(r#","seconds":0.5,"outcome":"ok"{more}"#);
    [
        line("begin", pid, number, name, started, ""),
        line("end", pid, number, name, started + 0.5, &end),
    ]
}

fn read(lines: &[String], is_alive: bool) -> (JobRuns, RecordNotes) {
    let mut reader = RecordReader::default();
    reader.read(Cursor::new(lines.join("\n"))).unwrap();
    reader.finish(|_, _| is_alive)
}

fn table(lines: &[String]) -> JobTable {
    job_table(&read(lines, false).0, Grouping::Name)
}

#[test]
fn begin_without_an_end_is_killed_or_running() {
    let lines = [line("begin", 7, 1, "mail", 100.0, "")];
    assert_eq!(read(&lines, false).0.runs[0].outcome, Outcome::Killed);
    assert_eq!(read(&lines, true).0.runs[0].outcome, Outcome::Running);
}

#[test]
fn sizes_at_the_start_of_killed_runs_alone_suggest_no_limit() {
    let before = r#","resident_before":20000000"#;
    let killed = line("begin", 7, 1, "mail", 100.0, before);
    assert_eq!(
        table(std::slice::from_ref(&killed)).rows[0].suggested_limit_bytes,
        None
    );
    let measured = ended(8, 1, "mail", 101.0, r#","resident_peak":10000000"#);
    let row = &table(&[&[killed], &measured[..]].concat()).rows[0];
    assert_eq!(row.suggested_limit_bytes, Some(32 << 20), "20 MB and 20%");
}

#[test]
fn site_without_a_line_has_no_location() {
    let sites = r#","sites":[{"function":"Python objects (arena)","file":"<pymalloc>","line":0,"bytes":7}]"#;
    let row = &table(&ended(7, 1, "mail", 100.0, sites)).rows[0];
    let site = row.site.as_ref().unwrap();
    assert_eq!(
        (site.location.as_str(), site.bytes),
        ("Python objects (arena)", 7)
    );
}

#[test]
fn order_of_lines_and_copies_of_files_do_not_matter() {
    let more = r#","peak_bytes":5,"retained_bytes":-3"#;
    let mut lines = ended(7, 1, "mail", 100.0, more).to_vec();
    lines.extend(ended(7, 2, "mail", 101.0, more));
    let (straight, _) = read(&lines, false);
    lines.reverse();
    lines.extend(lines.clone());
    let (mixed, _) = read(&lines, false);
    assert_eq!(straight.runs.len(), 2);
    let table = |runs: &JobRuns| job_table(runs, Grouping::Name).rows;
    assert_eq!(table(&straight), table(&mixed));
}

#[test]
fn program_executed_in_the_same_process_may_reuse_job_ids() {
    let mut lines = vec![line("begin", 7, 1, "mail", 100.0, "")];
    lines.extend(ended(7, 1, "mail", 200.0, ""));
    let (runs, _) = read(&lines, false);
    let outcomes: Vec<Outcome> = runs.runs.iter().map(|run| run.outcome).collect();
    assert_eq!(outcomes, [Outcome::Killed, Outcome::Ok]);
}

#[test]
fn second_end_adds_the_numbers_of_a_job_that_failed() {
    let failed = r#","seconds":0.5,"outcome":"failed","error":"ValueError""#;
    let measured = format!("{failed},\"retained_bytes\":300,\"peak_bytes\":900");
    let lines = [
        line("begin", 7, 1, "mail", 100.0, r#","resident_before":1000"#),
        line(
            "end",
            7,
            1,
            "mail",
            100.5,
            &format!("{failed},\"resident_after\":2000"),
        ),
        line("end", 7, 1, "mail", 100.5, &measured),
    ];
    let (runs, notes) = read(&lines, false);
    assert_eq!((runs.runs.len(), notes.n_invalid), (1, 0));
    let numbers = &runs.runs[0].numbers;
    assert_eq!(numbers.retained_bytes.get(), Some(300));
    assert_eq!(numbers.resident_before.get(), Some(1000));
    assert_eq!(numbers.resident_after.get(), Some(2000));
}

#[test]
fn invalid_and_newer_lines_are_skipped_and_counted() {
    let good = ended(7, 1, "mail", 100.0, "");
    let long = format!("\"{}\"", "x".repeat(2 << 20));
    let cut = &good[1][..40];
    let newer = good[0].replace("\"v\":1", "\"v\":2");
    let deep = "[".repeat(100_000);
    let bad_outcome = good[1].replace("\"ok\"", "\"odd\"");
    let lines: Vec<String> = [
        &good[0],
        cut,
        "null",
        "[]",
        "{}",
        "",
        &long,
        &newer,
        &deep,
        &bad_outcome,
        &good[1],
    ]
    .map(str::to_owned)
    .into();
    let (runs, notes) = read(&lines, false);
    assert_eq!(runs.runs.len(), 1);
    assert_eq!((notes.n_invalid, notes.n_newer), (7, 1));
    assert_eq!(notes.n_lines, 10);
}

#[test]
fn numbers_of_a_row_agree_with_the_runs() {
    let mut lines = Vec::new();
    for number in 0..20 {
        let more = format!(
            r#","peak_bytes":{},"retained_bytes":300,"resident_before":1000000,"resident_after":{}"#,
            (number + 1) * 1000,
            2_000_000 + number
        );
        lines.extend(ended(7, number, "mail", 100.0 + f64::from(number), &more));
    }
    lines.push(line("begin", 7, 20, "mail", 200.0, ""));
    let table = table(&lines);
    let row = &table.rows[0];
    assert_eq!(row.n_runs, 21);
    assert_eq!(row.outcomes.iter().sum::<u64>(), row.n_runs);
    assert_eq!((row.n(Outcome::Ok), row.n(Outcome::Killed)), (20, 1));
    let peak = row.peak.unwrap();
    assert_eq!(row.peak_kind, PeakKind::Job);
    assert_eq!(
        (peak.n_runs, peak.p50, peak.p95, peak.max),
        (20, 10_000, 19_000, 20_000)
    );
    let counts = &row.peak_distribution.as_ref().unwrap().counts;
    assert_eq!(counts.iter().sum::<u64>(), peak.n_runs);
    let retained = row.retained.unwrap();
    assert_eq!((retained.basis, retained.bytes), (Basis::Blocks, Some(300)));
    assert_eq!(row.verdict(), Verdict::Leaks);
    // The largest resident size plus 20%, rounded up to a multiple of 16 MiB.
    assert_eq!(row.suggested_limit_bytes, Some(16 << 20));
}

#[test]
fn resident_sizes_are_used_if_nothing_else_is_known() {
    let mut lines = Vec::new();
    for number in 0..20 {
        let before = 10_000_000 + u64::from(number) * 1_000_000;
        let more = format!(
            r#","resident_before":{before},"resident_after":{}"#,
            before + 1_000_000
        );
        lines.extend(ended(7, number, "mail", 100.0 + f64::from(number), &more));
    }
    let table = table(&lines);
    let row = &table.rows[0];
    assert_eq!(row.peak_kind, PeakKind::Resident);
    assert_eq!(row.peak.unwrap().max, 30_000_000);
    let retained = row.retained.unwrap();
    assert_eq!(
        (retained.basis, retained.bytes),
        (Basis::Resident, Some(1_000_000))
    );
    assert_eq!(row.verdict(), Verdict::Leaks);
}

#[test]
fn memory_that_is_freed_after_a_run_is_no_leak() {
    let mut lines = Vec::new();
    for number in 0..20 {
        // Each run returns a result, which is freed before the next run.
        let more = r#","resident_before":10000000,"resident_after":60000000"#;
        lines.extend(ended(
            7,
            number,
            "resident",
            100.0 + f64::from(number),
            more,
        ));
        let more = r#","retained_bytes":50000000,"name_bytes":50000000,"peak_bytes":50000000"#;
        lines.extend(ended(8, number, "blocks", 100.0 + f64::from(number), more));
    }
    for row in table(&lines).rows {
        assert_eq!(row.retained.unwrap().bytes, Some(0), "{}", row.name);
        assert_ne!(row.verdict(), Verdict::Leaks, "{}", row.name);
    }
}

#[test]
fn rows_are_split_by_worker_and_host() {
    let mut lines = ended(7, 1, "mail", 100.0, "").to_vec();
    lines.extend(ended(8, 1, "mail", 100.0, ""));
    lines.extend(ended(9, 1, "mail", 100.0, "").map(|line| line.replace("web-1", "web-2")));
    let (runs, _) = read(&lines, false);
    let n_rows = |grouping| job_table(&runs, grouping).rows.len();
    assert_eq!(n_rows(Grouping::Name), 1);
    assert_eq!(n_rows(Grouping::Worker), 3);
    assert_eq!(n_rows(Grouping::Host), 2);
    let all = job_table(&runs, Grouping::Name);
    assert_eq!((all.rows[0].n_processes, all.rows[0].n_hosts), (3, 2));
}

#[test]
fn rows_by_label_have_the_label_of_the_job_or_of_its_process() {
    let labelled = |number: u32, of_job: &str, of_process: &str| {
        let lines = ended(7, number, "mail", 100.0 + f64::from(number), "");
        let process_labels = format!(r#""process_labels":{{{of_process}}},"labels":{{{of_job}}}"#);
        lines.map(|line| line.replace(r#""labels":{}"#, &process_labels))
    };
    let mut lines = labelled(1, r#""queue":"fast""#, r#""queue":"slow""#).to_vec();
    lines.extend(labelled(2, r#""other":"fast""#, r#""queue":"slow""#));
    lines.extend(labelled(3, "", ""));
    let mut reader = RecordReader::with_label(Some("queue".into()));
    reader.read(Cursor::new(lines.join("\n"))).unwrap();
    let (runs, _) = reader.finish(|_, _| false);
    let rows = job_table(&runs, Grouping::Label).rows;
    let labels: Vec<Option<&str>> = rows.iter().map(|row| row.label.as_deref()).collect();
    assert_eq!(labels, [None, Some("fast"), Some("slow")]);
}

#[test]
fn workers_are_named_by_their_role_or_program() {
    let named = |pid: u32, host: &str, facts: &str| {
        let lines = ended(pid, 1, "mail", 100.0, facts);
        lines.map(|line| line.replace("web-1", host))
    };
    let role = r#","program":"python","process_labels":{"role":"celery worker"}"#;
    let mut lines = named(7, "web-1", role).to_vec();
    lines.extend(named(8, "web-1", r#","program":"etl.py""#));
    lines.extend(named(9, "web-1", ""));
    let (runs, _) = read(&lines, false);
    assert_eq!(
        runs.worker_names(),
        ["7 (celery worker)", "8 (etl.py)", "9"]
    );
    lines.extend(named(7, "web-2", role));
    let (runs, _) = read(&lines, false);
    let names = runs.worker_names();
    assert_eq!(names[0], "7@web-1 (celery worker)");
    assert_eq!(names[1], "8 (etl.py, web-1)");
    assert_eq!(names[3], "7@web-2 (celery worker)");
}

#[test]
fn run_of_a_capture_completes_the_run_of_a_record() {
    let (mut runs, _) = read(&ended(7, 1, "mail", 100.0, ""), false);
    let of_capture = JobRun {
        outcome: Outcome::Ok,
        key: Default::default(),
        numbers: RunNumbers {
            peak_bytes: 5_300_000.into(),
            retained_bytes: 300_000.into(),
            ..RunNumbers::default()
        },
        ..runs.runs[0].clone()
    };
    let other = JobRun {
        number: 2.into(),
        ..of_capture.clone()
    };
    let later = JobRun {
        started: 900.0,
        ..of_capture.clone()
    };
    let index = runs.index();
    for run in [of_capture, other, later] {
        runs.join(&index, run);
    }
    assert_eq!(runs.runs.len(), 3);
    assert_eq!(runs.runs[0].numbers.peak_bytes.get(), Some(5_300_000));
}

#[test]
fn bytes_that_runs_left_are_not_added_to_bytes_at_their_peaks() {
    let mut lines = ended(7, 1, "mail", 100.0, "").to_vec();
    lines.extend(ended(7, 2, "mail", 200.0, ""));
    lines.extend(ended(7, 3, "page", 300.0, ""));
    let (mut runs, _) = read(&lines, false);
    // The sample of the second run has no block that the run left.
    for (at, site, bytes, is_of_peak) in [
        (0, "keep", 300_000, false),
        (1, "scratch", 5_000_000, true),
        (2, "scratch", 2_000_000, true),
    ] {
        let sites = runs.add_sites([(site.to_owned(), bytes)].into_iter());
        let numbers = &mut runs.runs[at].numbers;
        numbers.sites = sites;
        numbers.are_sites_of_peak = is_of_peak;
    }
    let rows = job_table(&runs, Grouping::Name).rows;
    let site_of = |name: &str| {
        let row = rows.iter().find(|row| row.name == name).unwrap();
        let site = row.site.as_ref().unwrap();
        (site.location.as_str(), site.bytes, site.is_of_peak)
    };
    assert_eq!(site_of("mail"), ("keep", 300_000, false));
    assert_eq!(site_of("page"), ("scratch", 2_000_000, true));
}

#[test]
fn overlapping_runs_of_a_worker_are_in_different_lanes() {
    let mut lines = ended(7, 1, "a", 100.0, "").to_vec();
    lines.extend(ended(7, 2, "b", 100.2, ""));
    lines.extend(ended(7, 3, "c", 100.6, ""));
    let (runs, _) = read(&lines, false);
    let all_workers = workers(&runs, 10);
    let lanes: Vec<u32> = all_workers[0].spans.iter().map(|span| span.lane).collect();
    assert_eq!((lanes, all_workers[0].n_lanes), (vec![0, 1, 0], 2));
    let few = workers(&runs, 2);
    assert_eq!((few[0].spans.len(), few[0].n_left_out), (2, 1));
}

/// A line with one byte range replaced, or random bytes.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let good = ended(
        7,
        1,
        "mail",
        100.0,
        r#","sites":[{"bytes":1,"function":"f","file":"g","line":3}]"#,
    );
    let [begin, end] = good.map(String::into_bytes);
    let base = prop_oneof![Just(begin), Just(end)];
    let mutated = (
        base,
        any::<prop::sample::Index>(),
        prop::collection::vec(any::<u8>(), 0..8),
    )
        .prop_map(|(mut line, at, bytes)| {
            let at = at.index(line.len());
            let end = (at + bytes.len()).min(line.len());
            line.splice(at..end, bytes);
            line
        });
    prop_oneof![4 => mutated, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic_and_every_run_is_in_a_row(
        lines in prop::collection::vec(damaged(), 0..30),
        is_alive in any::<bool>(),
    ) {
        let mut reader = RecordReader::default();
        reader.read(Cursor::new(lines.join(&b'\n'))).unwrap();
        let (runs, notes) = reader.finish(|_, _| is_alive);
        prop_assert!(notes.n_invalid + notes.n_newer <= notes.n_lines);
        for grouping in [Grouping::Name, Grouping::Worker, Grouping::Host, Grouping::Label] {
            let table = job_table(&runs, grouping);
            let n_runs: u64 = table.rows.iter().map(|row| row.n_runs).sum();
            prop_assert_eq!(n_runs, runs.runs.len() as u64);
            for row in &table.rows {
                prop_assert_eq!(row.outcomes.iter().sum::<u64>(), row.n_runs);
            }
        }
        let n_spans: u64 = workers(&runs, 5).iter().map(|worker| worker.spans.len() as u64 + worker.n_left_out).sum();
        prop_assert_eq!(n_spans, runs.runs.len() as u64);
    }
}

#[test]
fn resident_sizes_of_alternating_jobs_give_no_verdict_even_for_selected_jobs() {
    let mut lines = Vec::new();
    for number in 0..200u32 {
        // The process grows in every run of the second job, whichever job leaks.
        let (name, grown) = if number % 2 == 0 {
            ("first", 0)
        } else {
            ("second", 100_000)
        };
        let before = 10_000_000 + u64::from(number / 2) * 100_000;
        let more = format!(
            r#","resident_before":{before},"resident_after":{}"#,
            before + grown
        );
        lines.extend(ended(7, number, name, 100.0 + f64::from(number), &more));
    }
    let (mut runs, _) = read(&lines, false);
    for n_rows in [2, 1] {
        let table = job_table(&runs, Grouping::Name);
        assert_eq!(table.rows.len(), n_rows);
        for row in table.rows {
            let retained = row.retained.unwrap();
            assert!(
                retained.is_shared && retained.bytes.is_none(),
                "{}",
                row.name
            );
            assert_eq!(row.verdict(), Verdict::Unknown, "{}", row.name);
        }
        runs.retain_names(|name| name == "second");
    }
}
