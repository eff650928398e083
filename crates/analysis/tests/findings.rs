//! The findings of sessions.

use heaptide_analysis::aggregate::FlameLimits;
use heaptide_analysis::model::finding::SentenceValue;
use heaptide_analysis::model::flame::FlameContent;
use heaptide_analysis::model::{Finding, Number};
use heaptide_analysis::{FlameTree, Request, Session, findings, load_with, stats};
use heaptide_capture::Capture;
use heaptide_testkit::{capture, capture_bytes, header};

fn session(script: &str) -> Session {
    let request = Request {
        lives: true,
        temporary: Some(1),
        ..Request::default()
    };
    load_with(vec![capture(script)], request, &mut |_| {}).expect("no filter")
}

fn about<'a>(findings: &'a [Finding], function: &str) -> Vec<&'a Finding> {
    let is_about = |finding: &&Finding| {
        let location = finding.location.as_ref();
        location.is_some_and(|at| &*at.function == function)
    };
    findings.iter().filter(is_about).collect()
}

fn named<'a>(findings: &'a [Finding], name: &str) -> Vec<&'a Finding> {
    let all = findings.iter();
    all.filter(|finding| finding.name == name).collect()
}

/// Values of a finding by their JSON keys.
fn numbers<const N: usize>(finding: &Finding, keys: [&str; N]) -> [Number; N] {
    keys.map(|key| {
        let mut all = finding.numbers.iter();
        let number = all.find(|(known, _)| *known == key);
        number.unwrap_or_else(|| panic!("no {key}")).1
    })
}

/// A service of two seconds: a growing cache, a table that is loaded once, and a buffer that is allocated and freed.
fn service() -> String {
    let mut script = String::from("alloc table 50000 at main:1 > load:9; ");
    for n in 0..200 {
        let time = n * 10_000;
        script += &format!("time {time}; alloc c{n} 1000 at main:2 > remember:5; ");
        script += &format!("alloc b{n} 3000 at main:2 > work:7; ");
        if n > 0 {
            script += &format!("free b{}; ", n - 1);
        }
    }
    script + "end 2000000"
}

#[test]
fn growing_line_is_reported_and_the_others_are_not() {
    let session = session(&service());
    let all = findings(&session);
    let [grows, largest] = about(&all, "remember")[..] else {
        panic!("{all:?}")
    };
    assert_eq!((grows.name, largest.name), ("grows", "holds_most"));
    let [Number::Real(per_second), Number::Real(confidence)] =
        numbers(grows, ["bytes_per_second", "confidence"])
    else {
        panic!("{grows:?}")
    };
    assert!((95_000.0..105_000.0).contains(&per_second));
    assert!(confidence > 0.99);
    assert_eq!(
        numbers(grows, ["released_bytes", "num_falls"]),
        [0u64, 0].map(Number::from)
    );
    assert!(about(&all, "load").is_empty());
    assert!(about(&all, "work").is_empty());
}

#[test]
fn samples_that_never_fall_are_evidence_for_a_leak() {
    // The line that leaks also allocates and frees short-lived memory.
    let mut script = String::new();
    for n in 0..200 {
        let time = n * 10_000;
        script += &format!("time {time}; alloc c{n} 1000 at main:2 > remember:5; ");
        script += &format!("alloc t{n} 90000 at main:2 > remember:5; free t{n}; ");
    }
    let all = findings(&session(&(script + "end 2000000")));
    let [grows] = named(&all, "grows")[..] else {
        panic!("{all:?}")
    };
    let evidence: Vec<&str> = grows.evidence.iter().map(|it| it.template).collect();
    assert!(
        evidence.iter().any(|it| it.starts_with("for a leak: none")),
        "{evidence:?}"
    );
    assert!(
        !evidence.iter().any(|it| it.contains("against")),
        "{evidence:?}"
    );
    assert_eq!(
        numbers(grows, ["num_falls", "fallen_bytes"]),
        [0u64, 0].map(Number::from)
    );
}

#[test]
fn finding_of_a_page_refers_to_its_frame() {
    let session = session(&service());
    let page = FlameTree::new(&session).cut(FlameLimits::default());
    assert!(!page.findings.is_empty());
    for (finding, node) in &page.findings {
        let node = page.nodes[node.expect("a node") as usize];
        let FlameContent::Frame(at) = node.content else {
            panic!("no frame")
        };
        let function = &page.texts[page.locations[at as usize].function as usize];
        let location = finding.location.as_ref().expect("a location");
        assert_eq!(function, &location.function);
    }
}

#[test]
fn churn_is_reported_with_the_line_of_the_program_that_causes_it() {
    let mut script = String::from("alloc kept 100000 at main:1; ");
    for n in 0..1_500 {
        script += &format!(
            "alloc t{n} 64 at main:4 > dumps@/usr/lib/python3.12/json/encoder.py:20; free t{n}; "
        );
    }
    let all = findings(&session(&script));
    let [finding] = named(&all, "churns")[..] else {
        panic!("{all:?}")
    };
    assert_eq!(
        numbers(finding, ["temporary_count", "count", "whole_count"]),
        [1_500u64, 1_500, 1_501].map(Number::from)
    );
    assert_eq!(
        numbers(finding, ["temporary_bytes", "mean_lifetime_ns"]),
        [96_000u64, 0].map(Number::from)
    );
    let caller = finding.caller.as_ref().expect("the program");
    assert_eq!((&*caller.function, caller.line), ("main", 4));
}

#[test]
fn small_program_has_one_finding_its_largest_line() {
    let all = findings(&session(
        "alloc a 100 at main:3; alloc b 10 at other:4; free a; end 500",
    ));
    let [finding] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(finding.name, "holds_most");
    assert_eq!(
        numbers(finding, ["peak_bytes", "whole_peak_bytes", "leaked_bytes"]),
        [100u64, 110, 0].map(Number::from)
    );
    assert!(findings(&session("end 5")).is_empty());
}

#[test]
fn ledger_divides_the_resident_size_and_memory_that_libc_keeps_is_a_finding() {
    let script = "alloc a 5000000 at main:3; alloc m 20000000 mmap at main:4; own 36000000
        part Anonymous 90000000; part Files 9000000; part LibcInUse 9000000; part LibcFree 60000000
        part LibcFreeResident 40000000; part OwnMapped 1000000; part OwnHeap 2000000; end 500";
    let session = session(script);
    let ledger = heaptide_analysis::findings::ledger(&session.processes[0]).expect("an end");
    assert_eq!(ledger.resident_bytes, 99_000_000);
    assert_eq!(ledger.mapped_bytes, 20_000_000);
    assert_eq!(ledger.native_bytes, 5_000_000);
    // 9 MB in use in libc: 5 recorded, 2 of Heaptide's own.
    assert_eq!(ledger.earlier_bytes, 2_000_000);
    assert_eq!(
        (ledger.files_bytes, ledger.own_bytes),
        (8_000_000, 3_000_000)
    );
    assert_eq!(ledger.unexplained_bytes, 21_000_000);
    assert_eq!(named(&findings(&session), "kept_free").len(), 1);
    let killed = load_with(
        vec![capture("alloc a 5 at main")],
        Request::default(),
        &mut |_| {},
    );
    let killed = killed.expect("no filter");
    assert_eq!(
        heaptide_analysis::findings::ledger(&killed.processes[0]),
        None
    );
}

#[test]
fn free_memory_that_is_not_resident_is_neither_counted_nor_reported() {
    // As recorded in a program that allocated and freed large blocks without touching them.
    let parts = "part Anonymous 7000000; part Files 10000000; part LibcInUse 3000000; part LibcFree 60000000";
    let ledger = |more: &str| {
        let session = session(&format!("alloc a 1000 at main:3; {parts}; {more} end 5"));
        assert!(named(&findings(&session), "kept_free").is_empty());
        heaptide_analysis::findings::ledger(&session.processes[0]).expect("an end")
    };
    let measured = ledger("part LibcFreeResident 500000; part OwnHeap 0;");
    assert_eq!(measured.resident_bytes, 17_000_000);
    assert_eq!(measured.libc_free_bytes, 500_000);
    assert_eq!(measured.unexplained_bytes, 3_500_000);
    // A capture of an older release does not have the resident part of free memory. At most the rest of the resident
    // size counts.
    let older = ledger("");
    assert_eq!(older.libc_free_bytes, 4_000_000);
    assert_eq!(older.unexplained_bytes, 0);
}

#[test]
fn blocks_that_were_never_touched_are_not_resident() {
    let session = session(
        "alloc a 60000000 at main:3; alloc m 2000000 mmap at main:4; part Anonymous 7000000; part LibcInUse 61000000
         part LibcFreeResident 0; part OwnHeap 100000; end 5",
    );
    let ledger = heaptide_analysis::findings::ledger(&session.processes[0]).expect("an end");
    assert_eq!(ledger.mapped_bytes, 2_000_000);
    assert_eq!(ledger.earlier_bytes, 900_000);
    assert_eq!(ledger.native_bytes, 4_000_000);
    assert_eq!(ledger.not_resident_bytes, 56_000_000);
    assert_eq!(ledger.unexplained_bytes, 0);
}

#[test]
fn forked_child_that_copied_inherited_pages_is_reported() {
    let process = |pid: u32, parent_pid: u32, script: &str| {
        let mut header = header();
        (header.pid, header.parent_pid) = (pid, parent_pid);
        header.mode.follow_fork = true;
        Capture::from_bytes(capture_bytes(&header, script)).expect("a capture")
    };
    let captures = vec![
        process(10, 1, "alloc a 5 at main; end 9"),
        process(
            11,
            10,
            "part AnonymousAtStart 60000000; part SharedAnonymous 10000000; end 9",
        ),
        process(
            12,
            10,
            "part AnonymousAtStart 60000000; part SharedAnonymous 59000000; end 9",
        ),
    ];
    let session = load_with(captures, Request::default(), &mut |_| {}).expect("no filter");
    let all = findings(&session);
    let [unshared] = named(&all, "unshared")[..] else {
        panic!("{all:?}")
    };
    assert_eq!(
        numbers(unshared, ["pid", "inherited_bytes", "shared_bytes"]),
        [11u64, 60_000_000, 10_000_000].map(Number::from)
    );
}

#[test]
fn process_of_another_host_is_not_the_parent_of_a_fork() {
    let process = |host: &str, pid: u32, script: &str| {
        let mut header = header();
        (header.host, header.pid, header.parent_pid) = (host.into(), pid, 10);
        header.mode.follow_fork = true;
        Capture::from_bytes(capture_bytes(&header, script)).expect("a capture")
    };
    let child = "part AnonymousAtStart 60000000; part SharedAnonymous 10000000; end 9";
    let captures = vec![
        process("web-1", 10, "alloc a 5 at main; end 9"),
        process("web-2", 11, child),
    ];
    let session = load_with(captures, Request::default(), &mut |_| {}).expect("no filter");
    assert!(named(&findings(&session), "unshared").is_empty());
}

#[test]
fn lifetimes_are_in_classes_that_double() {
    // 200 bins of a millisecond.
    let script = "
        alloc a 1 at main; free a; alloc b 10 at main; alloc c 100 at main; alloc d 1000 at main
        time 1500; free b; time 3500; free c; end 200000";
    let stats = stats(&session(script), 5);
    let classes: Vec<_> = stats
        .lifetimes
        .iter()
        .map(|class| {
            (
                class.below_ns.map(|ns| ns / 1_000_000),
                class.count,
                class.bytes,
            )
        })
        .collect();
    let expected = [
        (Some(1), 1, 1),
        (Some(2), 1, 10),
        (Some(4), 1, 100),
        (None, 1, 1000),
    ];
    assert_eq!(classes, expected);
}

#[test]
fn finding_names_the_users_line_and_the_library_line_that_allocated() {
    let mut of_job = header();
    of_job.user_paths = vec!["/srv/job".into()];
    of_job.library_paths = vec!["/srv/job/.venv".into()];
    let astype = "/srv/job/.venv/lib/python3.12/site-packages/pandas/core/dtypes/astype.py";
    let script = format!(
        "alloc a 900000 at main:3 > load:16 > pivot@/usr/lib/python3.12/site-packages/pandas/core/frame.py:9 > \
         _astype_nansafe@{astype}:141; end 10"
    );
    let capture = Capture::from_bytes(capture_bytes(&of_job, &script)).expect("a capture");
    let session = load_with(vec![capture], Request::default(), &mut |_| {}).expect("no filter");
    let all = findings(&session);
    let [largest] = named(&all, "holds_most")[..] else {
        panic!("{all:?}")
    };
    let user = largest.user.as_ref().expect("a line of the user");
    assert_eq!((&*user.function, user.line), ("load", 16));
    assert_eq!(
        &*largest.location.as_ref().expect("a location").file,
        astype
    );
    let files: Vec<String> = largest
        .headline
        .values
        .iter()
        .map(|value| match value {
            SentenceValue::Location(Some(at)) => at.file_and_line(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(files, ["job.py:16", "pandas/core/dtypes/astype.py:141"]);
}

#[test]
fn memory_of_the_users_line_adds_up_over_the_library_lines_that_it_called() {
    let mut of_job = header();
    of_job.user_paths = vec!["/srv/job".into()];
    of_job.library_paths = vec!["/usr/lib/python3.12".into()];
    let pandas = "/usr/lib/python3.12/site-packages/pandas/core/frame.py";
    // Line 30 allocates more than line 29 in total, in three parts that are each smaller.
    let script = format!(
        "alloc a 500000 at report:29 > pivot@{pandas}:1; alloc b 400000 at report:30 > mean@{pandas}:2
         alloc c 300000 at report:30 > fillna@{pandas}:3; alloc d 200000 at report:30 > take@{pandas}:4; free d; end 10"
    );
    let capture = Capture::from_bytes(capture_bytes(&of_job, &script)).expect("a capture");
    let session = load_with(vec![capture], Request::default(), &mut |_| {}).expect("no filter");
    let all = findings(&session);
    let [largest] = named(&all, "holds_most")[..] else {
        panic!("{all:?}")
    };
    assert_eq!(
        largest.headline.template,
        "{} holds most at the peak, the largest part allocated by {}"
    );
    assert_eq!(largest.user.as_ref().map(|at| at.line), Some(30));
    assert_eq!(largest.location.as_ref().map(|at| at.line), Some(2));
    assert_eq!(
        numbers(
            largest,
            [
                "peak_bytes",
                "peak_count",
                "whole_peak_bytes",
                "leaked_bytes"
            ]
        ),
        [900_000u64, 3, 1_400_000, 700_000].map(Number::from)
    );
}

#[test]
fn growth_per_hour_is_reported_only_if_the_readings_cover_a_minute() {
    let of = |seconds_per_step: u64| {
        let script = (0..100).map(|n| {
            let time = n * seconds_per_step * 1_000_000;
            format!("time {time}; alloc c{n} 1000 at main:2 > remember:5; ")
        });
        let script =
            script.collect::<String>() + &format!("end {}", 100_000_000 * seconds_per_step);
        let all = findings(&session(&script));
        named(&all, "grows")[0].evidence[0].template
    };
    assert!(of(1).ends_with("about {} per second, {} per hour"));
    let fast = findings(&session(&service()));
    let fast = named(&fast, "grows")[0].evidence[0].template;
    assert!(fast.ends_with("about {} per second"), "{fast}");
}
