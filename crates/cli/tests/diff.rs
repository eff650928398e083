//! `heaptide diff`: its output and its exit codes.

use heaptide_capture::{Header, Mode};

use crate::{Folder, error_text, printed};

const BEFORE: &str =
    "alloc a 4000000 at main:3 > load:7; alloc b 1000000 at main:5 > gone:1; end 5";
const AFTER: &str = "alloc a 7000000 at main:3 > load:8; alloc c 500000 at main:6 > fresh:1; end 5";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.capture("a.tide", BEFORE);
    folder.capture("b.tide", AFTER);
    folder
}

#[test]
fn change_is_printed_by_stack_and_as_a_whole() {
    let text = printed(&folder().heaptide("diff a.tide b.tide"));
    let expected = "\
┏━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┓
┃                    ┃  Before ┃   After ┃   Change ┃ Change % ┃
┡━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━┩
│ peak               │ 5.00 MB │ 7.50 MB │ +2.50 MB │     +50% │
│ alive at the end   │ 5.00 MB │ 7.50 MB │ +2.50 MB │     +50% │
│ allocated in total │ 5.00 MB │ 7.50 MB │ +2.50 MB │     +50% │
│ allocations        │       2 │       2 │       +0 │       0% │
└────────────────────┴─────────┴─────────┴──────────┴──────────┘

Largest changes, at the peak
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┓
┃ Where                           ┃  Before ┃   After ┃   Change ┃ Change % ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━┩
│ load at /srv/job/job.py ← main  │ 4.00 MB │ 7.00 MB │ +3.00 MB │     +75% │
│ gone at /srv/job/job.py ← main  │ 1.00 MB │     0 B │ -1.00 MB │    -100% │
│ fresh at /srv/job/job.py ← main │     0 B │  500 kB │  +500 kB │      new │
└─────────────────────────────────┴─────────┴─────────┴──────────┴──────────┘
";
    assert_eq!(text, expected);
}

#[test]
fn equal_captures_are_reported_as_unchanged() {
    let text = printed(&folder().heaptide("diff a.tide a.tide"));
    assert!(text.ends_with("no stack changed, at the peak\n"), "{text}");
}

#[test]
fn json_shows_the_measure_changes_lines_and_files() {
    let text = printed(&folder().heaptide("diff --json --by-line --total a.tide b.tide"));
    for part in [
        "\"measure\": \"total\"",
        "\"by_line\": true",
        "\"change_bytes\": -4000000",
        "\"change_bytes\": 2500000",
        "\"line\": 8",
        "\"is_noise\": false",
        "\"file\": \"a.tide\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Two captures of a recursion with one block per level; the second holds more.
fn compared_recursions(depth: usize) -> serde_json::Value {
    let folder = Folder::new();
    for (name, size) in [("a.tide", 100), ("b.tide", 200)] {
        let mut stack = "main:1".to_owned();
        let mut script = String::new();
        for level in 0..depth {
            stack += " > dive:2";
            script += &format!("alloc b{level} {size} at {stack}; ");
        }
        folder.capture(name, &script);
    }
    let text = printed(&folder.heaptide("diff --json --by-line a.tide b.tide"));
    serde_json::from_str(&text).expect("the output is JSON")
}

#[test]
fn json_of_a_deep_recursion_has_one_frame_per_level() {
    let json = compared_recursions(300);
    let (frames, stacks) = (&json["frames"], &json["stacks"]);
    assert_eq!(frames.as_array().map(Vec::len), Some(301));
    assert_eq!(stacks.as_array().map(Vec::len), Some(300));
    // Every stack leads to the outermost frame, and no two have the same depth.
    let depth = |stack: &serde_json::Value| {
        let callers = std::iter::successors(stack["frame"].as_u64(), |&number| {
            frames[number as usize]["caller"].as_u64()
        });
        let names: Vec<&str> = callers
            .filter_map(|number| frames[number as usize]["function"].as_str())
            .collect();
        assert_eq!(names.last(), Some(&"main"));
        assert!(names[..names.len() - 1].iter().all(|name| *name == "dive"));
        names.len()
    };
    let mut depths: Vec<usize> = stacks.as_array().into_iter().flatten().map(depth).collect();
    depths.sort_unstable();
    assert_eq!(depths, (2..=301).collect::<Vec<_>>());
}

#[test]
fn json_has_no_frames_of_stacks_that_did_not_change() {
    let folder = Folder::new();
    let same = "alloc s 70 at main:3 > same:9; ";
    folder.capture("a.tide", &format!("{same} alloc a 10 at main:3 > load:7"));
    folder.capture(
        "b.tide",
        &format!("{same} alloc a 20 at main:3 > load:7; alloc c 5"),
    );
    let text = printed(&folder.heaptide("diff --json a.tide b.tide"));
    let json: serde_json::Value = serde_json::from_str(&text).expect("the output is JSON");
    let expected = serde_json::json!([
        {"function": "main", "file": "/srv/job/job.py", "caller": null},
        {"function": "load", "file": "/srv/job/job.py", "caller": 0},
    ]);
    assert_eq!(json["frames"], expected);
    assert_eq!(json["stacks"][0]["frame"], 1);
    assert_eq!(json["stacks"][1]["frame"], serde_json::Value::Null);
}

#[test]
fn growth_above_the_limit_exits_with_1_and_a_message_after_the_report() {
    let folder = folder();
    for (allowed, code) in [("3MB", 0), ("50%", 0), ("2.4MB", 1), ("49%", 1), ("0", 1)] {
        let output = folder.heaptide(&format!("diff --fail-above {allowed} a.tide b.tide"));
        assert_eq!(output.status.code(), Some(code), "{allowed}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("Largest changes"));
    }
    let output = folder.heaptide("diff --fail-above 2MB a.tide b.tide");
    let expected = "heaptide: the peak grew by 2.50 MB (+50%), more than the 2.00 MB of --fail-above: \
                    see the stacks that changed\n";
    assert_eq!(error_text(&output), expected);
    // Equal and smaller sums never exceed the limit.
    for line in [
        "diff --fail-above 0 b.tide a.tide",
        "diff --fail-above 0% a.tide a.tide",
    ] {
        assert_eq!(folder.heaptide(line).status.code(), Some(0), "{line}");
    }
}

#[test]
fn side_may_be_several_files_or_a_folder() {
    let folder = folder();
    std::fs::create_dir_all(folder.path().join("old/host")).expect("made");
    std::fs::create_dir(folder.path().join("new")).expect("made");
    folder.capture("old/x.tide", BEFORE);
    folder.capture("old/host/x.bin", BEFORE);
    folder.write("old/notes.txt", b"no capture");
    folder.capture("new/x.tide", AFTER);
    let by_folder = printed(&folder.heaptide("diff --json --total old new/x.tide"));
    assert!(
        by_folder.contains("\"before_bytes\": 10000000"),
        "{by_folder}"
    );
    let by_files = printed(
        &folder
            .heaptide("diff --json --total --before old/host/x.bin old/x.tide --after new/x.tide"),
    );
    assert_eq!(by_files, by_folder);
}

#[test]
fn invalid_comparisons_fail_with_a_message_and_no_output() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("empty")).expect("made");
    for (line, code) in [
        ("diff a.tide missing.tide", 1),
        ("diff a.tide empty", 1),
        ("diff a.tide", 2),
        ("diff --before a.tide", 2),
        ("diff --fail-above lots a.tide b.tide", 2),
        ("diff --leaks --total a.tide b.tide", 2),
    ] {
        let output = folder.heaptide(line);
        assert_eq!(output.status.code(), Some(code), "{line}");
        assert!(!error_text(&output).is_empty(), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn page_is_named_after_the_later_capture_and_escapes_names() {
    let folder = folder();
    let hostile = "</script><img/src=x/onerror=alert(1)>";
    folder.capture(
        "heaptide-job.py.7.tide",
        &format!("alloc a 10 at {hostile}:3"),
    );
    let line = "diff --html --leaks a.tide heaptide-job.py.7.tide";
    assert_eq!(
        printed(&folder.heaptide(line)),
        "Wrote heaptide-diff-job.py.7.html\n"
    );
    assert_eq!(folder.heaptide(line).status.code(), Some(1));
    let page = std::fs::read_to_string(folder.path().join("heaptide-diff-job.py.7.html"));
    let page = page.expect("a page");
    assert!(page.starts_with("<!doctype html>") && !page.contains("onerror"));
    let to_pipe = folder.heaptide("diff --html -o - a.tide heaptide-job.py.7.tide --fail-above 0");
    assert!(to_pipe.stdout.starts_with(b"<!doctype html>"));
    assert_eq!(to_pipe.status.code(), Some(0));
}

#[test]
fn output_whose_name_ends_in_html_is_a_page() {
    let folder = folder();
    folder.capture(
        "jobs.tide",
        "job 1 mail; alloc a 10 at main:3; job_end 1; end 5",
    );
    for line in [
        "diff a.tide b.tide -o page.html",
        "jobs jobs.tide -o page.html",
        "lines --libraries --from b.tide -o page.html",
    ] {
        let done = folder.heaptide(&format!("{line} -f"));
        assert_eq!(printed(&done), "Wrote page.html\n", "{line}");
        let page = std::fs::read(folder.path().join("page.html")).expect("a page");
        assert!(page.starts_with(b"<!doctype html>"), "{line}");
    }
    folder.heaptide("diff a.tide b.tide --json -o page.html -f");
    let json = std::fs::read(folder.path().join("page.html")).expect("a file");
    assert!(json.starts_with(b"{"));
}

/// Writes captures of several modes of the same program.
fn folder_of_modes() -> Folder {
    let folder = Folder::new();
    let write = |name: &str, mode: Mode| {
        let header = Header {
            mode,
            ..heaptide_testkit::header()
        };
        folder.write(name, &heaptide_testkit::capture_bytes(&header, BEFORE));
    };
    let exact = Mode::default();
    let sampled = |sample_bytes| Mode {
        sample_bytes,
        ..exact
    };
    write("exact.tide", exact);
    write(
        "native.tide",
        Mode {
            native: true,
            aggregate: true,
            ..exact
        },
    );
    write(
        "objects.tide",
        Mode {
            objects: true,
            ..exact
        },
    );
    write("sampled.tide", sampled(512 << 10));
    write("finer.tide", sampled(64 << 10));
    folder
}

#[test]
fn captures_of_different_modes_are_compared_with_a_warning_and_not_judged() {
    let folder = folder_of_modes();
    for (before, after, modes) in [
        (
            "exact",
            "objects",
            "(before: exact; after: exact, with Python objects)",
        ),
        (
            "exact",
            "sampled",
            "(before: exact; after: sampled every 512 KiB)",
        ),
        (
            "sampled",
            "finer",
            "(before: sampled every 512 KiB; after: sampled every 64 KiB)",
        ),
    ] {
        let output = folder.heaptide(&format!("diff --fail-above 1GB {before}.tide {after}.tide"));
        let text = String::from_utf8_lossy(&output.stdout);
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("the two sides were recorded in different modes"),
            "{text}"
        );
        assert!(first.contains(modes), "{first}");
        assert_eq!(output.status.code(), Some(4), "{before} {after}");
        let message = error_text(&output);
        assert!(
            message.contains("cannot judge captures of different modes"),
            "{message}"
        );
        let json = printed(&folder.heaptide(&format!("diff --json {before}.tide {after}.tide")));
        assert!(json.contains(modes), "{json}");
    }
}

#[test]
fn bounded_native_capture_can_be_compared_with_an_exact_one() {
    let folder = folder_of_modes();
    let output = folder.heaptide("diff --fail-above 1% exact.tide native.tide");
    assert_eq!(output.status.code(), Some(0));
    assert!(!printed(&output).contains("different modes"));
}

#[test]
fn incomplete_capture_is_not_judged() {
    let folder = folder();
    folder.capture("cut.tide", &format!("{AFTER}; stopped 1 0 disk full"));
    let output = folder.heaptide("diff --fail-above 90% a.tide cut.tide");
    assert_eq!(output.status.code(), Some(4));
    assert!(error_text(&output).contains("cut.tide, which is incomplete"));
}
