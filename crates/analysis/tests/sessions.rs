//! Several processes in one report.

use heaptide_analysis::aggregate::{GroupBy, ProcessGrouping, process_groups};
use heaptide_analysis::{Measure, Session, load, stats, summary};
use heaptide_capture::{Capture, labels};
use heaptide_testkit::{capture_bytes, header};

/// Processes with their start times, in microseconds after the first.
fn session(processes: &[(u64, &str)]) -> Session {
    load(captures(processes), &mut |_| {})
}

fn captures(processes: &[(u64, &str)]) -> Vec<Capture> {
    let captures = processes.iter().zip(1..).map(|(&(start, script), pid)| {
        let mut header = header();
        header.pid = pid;
        header.started_unix_ns += start * 1_000;
        Capture::from_bytes(capture_bytes(&header, script)).expect("a capture")
    });
    captures.collect()
}

#[test]
fn same_line_in_two_processes_is_one_location() {
    let session = session(&[
        (0, "alloc a 10 at main:3"),
        (0, "alloc x 1 at zero:1; alloc a 20 at main:3"),
    ]);
    let stats = stats(&session, 5);
    assert_eq!(stats.top_by_size[0].bytes, 30);
    assert_eq!(stats.n_allocations, 3);
    let pids: Vec<u32> = stats
        .quality
        .processes
        .iter()
        .map(|process| process.pid)
        .collect();
    assert_eq!(pids, [1, 2]);
    let summary = summary(&session, Measure::Peak, GroupBy::Function);
    let main = summary
        .functions
        .iter()
        .find(|sum| &*sum.function == "main");
    assert_eq!(main.map(|sum| sum.total_bytes), Some(30));
}

#[test]
fn losses_and_counters_come_from_the_registry() {
    let script = "
        alloc a 10 at main; time 500; resident 70000; time 600; resident 60000
        limit 1000000; own 5000; lost 3; lost 4; end 2000
        thread 2 pool
        alloc b 10 at work
    ";
    let stats = stats(&session(&[(0, script)]), 5);
    let process = &stats.quality.processes[0];
    assert_eq!(process.resident_peak_bytes, Some(70_000));
    assert_eq!(process.limit_bytes, Some(1_000_000));
    assert_eq!(process.own_memory_bytes, 5_000);
    assert_eq!(process.n_threads, 2);
    assert!(process.ended_in_order);
    assert_eq!(stats.quality.lost.iter().map(|&(_, n)| n).sum::<u64>(), 7);
    let elapsed = stats.metadata.end_unix_ns - stats.metadata.start_unix_ns;
    assert_eq!(elapsed, 2_000_000);
    assert_eq!(stats.metadata.n_frames, 2);
}

#[test]
fn processes_of_two_hosts_with_the_same_id_have_different_rows_and_names() {
    let captures = ["web-1", "web-2"].map(|host| {
        let mut header = header();
        (header.pid, header.host) = (1, host.into());
        Capture::from_bytes(capture_bytes(&header, crate::common_peak::RISE_AND_FALL))
            .expect("a capture")
    });
    let session = load(captures.into(), &mut |_| {});
    let rows = summary(
        &session,
        Measure::Total,
        GroupBy::Processes(ProcessGrouping::Process),
    )
    .functions;
    let rows: Vec<&str> = rows.iter().map(|row| &*row.function).collect();
    assert_eq!(
        rows,
        ["process 1@web-1 (job.py)", "process 1@web-2 (job.py)"]
    );
    let processes = stats(&session, 5).quality.processes;
    let names: Vec<&str> = processes.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["1@web-1", "1@web-2"]);
}

#[test]
fn processes_are_grouped_by_host_and_by_label() {
    let captures = [
        ("web-1", "worker", 10),
        ("web-1", "server", 20),
        ("web-2", "worker", 40),
    ];
    let captures = captures
        .into_iter()
        .zip(1..)
        .map(|((host, role, size), pid)| {
            let mut header = header();
            (header.pid, header.host) = (pid, host.into());
            labels::set(&mut header.facts, "role", role);
            let script = format!("alloc a {size} at main:3");
            Capture::from_bytes(capture_bytes(&header, &script)).expect("a capture")
        });
    let session = load(captures.collect(), &mut |_| {});
    let groups = |by: &str| -> Vec<(String, u64, u64)> {
        let grouping = ProcessGrouping::parse(by).expect("a group");
        let mut rows = summary(
            &session,
            Measure::Total,
            GroupBy::Processes(grouping.clone()),
        );
        rows.functions
            .sort_by_key(|row| std::cmp::Reverse(row.total_bytes));
        let groups = process_groups(&session, &grouping);
        assert_eq!(groups.len(), rows.functions.len());
        for (group, row) in groups.iter().zip(&rows.functions) {
            assert_eq!(
                (&*group.name, group.allocated.bytes),
                (&*row.function, row.total_bytes)
            );
        }
        let groups = groups.into_iter();
        groups
            .map(|it| (it.name, it.n_processes, it.peak.bytes))
            .collect()
    };
    assert_eq!(
        groups("host"),
        [("web-2".into(), 1, 40), ("web-1".into(), 2, 30)]
    );
    assert_eq!(
        groups("process"),
        [
            ("process 3 (worker, web-2)".into(), 1, 40),
            ("process 2 (server, web-1)".into(), 1, 20),
            ("process 1 (worker, web-1)".into(), 1, 10)
        ]
    );
    assert_eq!(
        groups("label:role"),
        [("worker".into(), 2, 50), ("server".into(), 1, 20)]
    );
    assert_eq!(groups("label:queue"), [("<no queue>".into(), 3, 70)]);
    assert_eq!(ProcessGrouping::parse("label:"), None);
}
