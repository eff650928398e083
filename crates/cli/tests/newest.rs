//! Commands without a file argument use the newest file of the current folder, and `list` shows the files.

use std::fs::File;
use std::time::{Duration, SystemTime};

use heaptide_capture::Header;

use crate::{Folder, error_text};

/// Writes captures, each newer than the one before.
fn captures(folder: &Folder, names: &[&str]) {
    for (at, name) in names.iter().enumerate() {
        folder.capture(name, &format!("alloc a {} at main; end 5", 100 * (at + 1)));
        let file = File::options().write(true).open(folder.path().join(name));
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + at as u64);
        file.and_then(|file| file.set_modified(time))
            .expect("a time");
    }
}

fn text(output: &std::process::Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", error_text(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn reports_use_the_newest_capture_and_name_it() {
    let folder = Folder::new();
    captures(&folder, &["b.tide", "a.tide"]);
    folder.write("newer.txt", b"something else");
    for command in ["stats", "summary", "tree", "parse", "transform csv -o -"] {
        let output = folder.heaptide(command);
        let named = text(&folder.heaptide(&format!("{command} a.tide")));
        assert_eq!(text(&output), named, "{command}");
        assert_eq!(
            error_text(&output),
            "heaptide: using a.tide, the newest capture in this folder\n",
            "{command}"
        );
    }
    text(&folder.heaptide("flamegraph"));
    assert!(folder.path().join("heaptide-flamegraph-a.html").exists());
}

#[test]
fn reports_of_the_newest_capture_include_its_children() {
    let folder = Folder::new();
    captures(
        &folder,
        &[
            "old.tide",
            "job.tide",
            "job.tide.12",
            "job.tide.12.13",
            "job.tide.14-2",
        ],
    );
    let output = folder.heaptide("stats --json");
    assert_eq!(text(&output).matches("\"parent_pid\"").count(), 4);
    let message = "heaptide: using job.tide, the newest capture in this folder, and those of its 3 children\n";
    assert_eq!(error_text(&output), message);
}

#[test]
fn folder_without_captures_is_reported() {
    let folder = Folder::new();
    let output = folder.heaptide("stats");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        error_text(&output),
        "heaptide: there is no capture in this folder: name one, or record one with heaptide run\n"
    );
    assert_eq!(folder.heaptide("heap types").status.code(), Some(1));
}

#[test]
fn list_shows_captures_and_timelines_and_numbers_only_timelines() {
    let folder = Folder::new();
    assert_eq!(
        text(&folder.heaptide("list")),
        "no captures, heap snapshots or timelines in this folder\n"
    );
    captures(&folder, &["job.tide"]);
    folder.write("mprofile_20261118033000.dat", b"CMDLINE x\n");
    let list = text(&folder.heaptide("list"));
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines[0], "Captures");
    assert!(
        lines[1].ends_with("job.tide") && lines[1].contains("2023-11-1"),
        "{list}"
    );
    assert_eq!(
        lines[3..],
        [
            "Timelines, with their numbers for plot, peak and rm",
            "  0  2026-11-18 03:30:00  mprofile_20261118033000.dat"
        ]
    );
}

#[test]
fn rm_and_clean_never_touch_captures() {
    let folder = Folder::new();
    captures(&folder, &["job.tide"]);
    let refused = folder.heaptide("rm job.tide");
    assert_eq!(refused.status.code(), Some(1));
    assert!(error_text(&refused).contains("job.tide is not a timeline"));
    assert_eq!(
        text(&folder.heaptide("clean")),
        "no timelines in this folder\n"
    );
    assert!(folder.path().join("job.tide").exists());
}

#[test]
fn stats_of_leaks_lists_blocks_that_were_not_freed() {
    let folder = Folder::new();
    let script =
        "alloc a 5000000 at main > load:7; alloc b 3000000 at main > hold:9; free a; end 5";
    folder.capture("job.tide", script);
    let leaks = text(&folder.heaptide("stats --leaks job.tide"));
    assert!(
        leaks.contains("Leaked memory (alive at the end):\n\t3.00 MB in one block"),
        "{leaks}"
    );
    assert!(
        leaks.contains("leaking locations (by size):\n\t- hold:"),
        "{leaks}"
    );
    assert!(!leaks.contains("load"), "{leaks}");
    assert!(text(&folder.heaptide("stats job.tide")).contains("load"));
}

#[test]
fn copy_of_a_capture_is_counted_once() {
    let folder = Folder::new();
    let header = Header {
        session: [7; 16],
        ..heaptide_testkit::header()
    };
    let bytes = heaptide_testkit::capture_bytes(&header, "alloc a 4000 at main:3; end 5");
    for name in ["a.tide", "copy.tide"] {
        folder.write(name, &bytes);
    }
    let one = folder.heaptide("stats a.tide");
    let both = folder.heaptide("stats a.tide copy.tide");
    assert_eq!(text(&both), text(&one));
    assert_eq!(
        error_text(&both),
        "heaptide: copy.tide is a copy of a.tide, so its numbers are counted once\n"
    );
}
