//! Captures of recordings that failed before their programs ended: every report begins with the failure.

use crate::{Folder, error_text, printed};

const SCRIPT: &str =
    "alloc a 4000000 at main:3; stopped 1500000 42 could not write the capture: disk full";
const SENTENCE: &str = "process 4711 (job.py): the capture is incomplete: recording stopped after 1.50 s \
                        (could not write the capture: disk full), and 42 events were dropped from then until the \
                        process ended";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.capture("cut.tide", SCRIPT);
    folder.capture("whole.tide", "alloc a 4000000 at main:3; end 5000000");
    folder
}

#[test]
fn text_reports_begin_with_the_failure() {
    let folder = folder();
    for line in ["tree cut.tide", "summary cut.tide", "lines --from cut.tide"] {
        let text = printed(&folder.heaptide(line));
        assert_eq!(text.lines().next(), Some(SENTENCE), "{line}");
        assert_eq!(text.matches("incomplete").count(), 1, "{text}");
    }
    let text = printed(&folder.heaptide("stats cut.tide"));
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("🛑 Incomplete:"));
    assert_eq!(lines.next().map(str::trim), Some(SENTENCE));
    assert!(!text.contains("did not end its recording"), "{text}");
    let text = printed(&folder.heaptide("diff whole.tide cut.tide"));
    assert_eq!(text.lines().next(), Some(&*format!("after: {SENTENCE}")));
    let text = printed(&folder.heaptide("live cut.tide"));
    let second = text.lines().nth(1).unwrap_or_default();
    let expected = SENTENCE.replace("from then until the process ended", "since then");
    assert_eq!(
        format!("process 4711 (job.py): {second}"),
        expected,
        "{text}"
    );
}

#[test]
fn json_holds_the_failure() {
    let folder = folder();
    let stats = printed(&folder.heaptide("stats --json cut.tide"));
    for part in [
        "\"after_ns\": 1500000000",
        "\"dropped_events\": 42",
        "disk full",
    ] {
        assert!(stats.contains(part), "{part}: {stats}");
    }
    let diff = printed(&folder.heaptide("diff --json cut.tide whole.tide"));
    assert!(diff.contains(SENTENCE), "{diff}");
}

#[test]
fn formats_of_transform_print_the_failure() {
    let folder = folder();
    for format in [
        "pprof",
        "speedscope",
        "collapsed",
        "csv",
        "gprof2dot",
        "json",
        "chrome",
        "events",
        "packed-events",
        "memray",
        "memray-1.19",
    ] {
        let output = folder.heaptide(&format!("transform {format} cut.tide"));
        assert_eq!(output.status.code(), Some(0), "{format}");
        assert!(error_text(&output).contains(SENTENCE), "{format}");
    }
    let model = std::fs::read_to_string(folder.path().join("heaptide-json-cut.json"));
    assert!(model.expect("a file").contains(SENTENCE));
}

#[test]
fn capture_with_all_events_is_not_called_incomplete_if_only_its_end_failed() {
    let folder = Folder::new();
    folder.capture(
        "a.tide",
        "alloc a 100 at main:3; end 500; stopped 500 0 disk full",
    );
    let text = printed(&folder.heaptide("stats a.tide"));
    assert!(!text.to_lowercase().contains("incomplete"), "{text}");
}

#[test]
fn jobs_begin_with_the_failure_and_a_job_that_ran_then_does_not_count_as_killed() {
    let folder = Folder::new();
    folder.capture("cut.tide", &format!("job 1 load; {SCRIPT}"));
    let text = printed(&folder.heaptide("jobs cut.tide"));
    assert_eq!(text.lines().next(), Some(SENTENCE), "{text}");
    let output = folder.heaptide("jobs --json cut.tide");
    assert!(error_text(&output).contains(SENTENCE));
    let json = String::from_utf8_lossy(&output.stdout);
    for part in ["\"killed\": 0", "\"running\": 1"] {
        assert!(json.contains(part), "{part}: {json}");
    }
}
