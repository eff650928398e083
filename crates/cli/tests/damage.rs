//! Files that are damaged, truncated or not captures, and captures that lack events.

use crate::{Folder, error_text, printed};

#[test]
fn invalid_missing_and_empty_files_give_one_message() {
    let folder = Folder::new();
    folder.write(
        "song.mp3",
        b"ID3 and so on, for a while, so that it is long enough",
    );
    folder.write("empty.tide", b"");
    for (file, part) in [
        ("song.mp3", "is not a Heaptide capture"),
        ("missing.tide", "there is no file missing.tide"),
        ("empty.tide", "is empty"),
        (".", "there is no capture in the folder"),
    ] {
        for command in ["stats", "summary", "tree", "parse"] {
            let output = folder.heaptide(&format!("{command} {file}"));
            assert_eq!(output.status.code(), Some(1), "{command} {file}");
            let text = error_text(&output);
            assert!(
                text.starts_with("heaptide: ") && text.contains(part),
                "{text}"
            );
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(output.stdout.is_empty());
        }
    }
}

#[test]
fn intact_part_of_a_damaged_capture_is_reported() {
    let folder = Folder::new();
    let script = "alloc a 100 at main; thread 2 pool; alloc b 50 at work";
    let mut bytes = heaptide_testkit::capture_bytes(&heaptide_testkit::header(), script);
    let last = bytes.len() - 10;
    bytes[last] ^= 0xff;
    folder.write("job.tide", &bytes);
    for command in ["stats", "summary", "tree", "parse"] {
        let output = folder.heaptide(&format!("{command} job.tide"));
        assert_eq!(output.status.code(), Some(0), "{command}");
        let note = error_text(&output);
        assert!(note.starts_with("heaptide: job.tide: bytes "), "{note}");
        assert!(note.contains("thread 2"), "{note}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("main"), "{command}: {text}");
    }
    let output = folder.heaptide("stats --json job.tide");
    let json = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(json.contains("\"note\": \"bytes "), "{json}");
}

#[test]
fn text_reports_note_loss_and_sampling() {
    let folder = Folder::new();
    let mut header = heaptide_testkit::header();
    header.mode.sample_bytes = 512 << 10;
    let script = "alloc a 10000000 at main; alloc b 100000 at main; lost 7; end 10";
    folder.write(
        "job.tide",
        &heaptide_testkit::capture_bytes(&header, script),
    );
    for command in ["stats", "summary", "tree"] {
        let text = printed(&folder.heaptide(&format!("{command} job.tide")));
        assert!(
            text.contains("sampled every 512 KiB on average: total ± "),
            "{text}"
        );
        assert!(
            text.contains("missing: 7 events that could not be written"),
            "{text}"
        );
    }
}

#[test]
fn stats_notes_killed_programs_and_early_blocks() {
    let folder = Folder::new();
    folder.capture("job.tide", "alloc a 100 at main; free a; free a");
    let text = printed(&folder.heaptide("stats job.tide"));
    assert!(
        text.contains("one free of a block allocated before recording began"),
        "{text}"
    );
    assert!(
        text.contains("process 4711 (job.py) did not end its recording"),
        "{text}"
    );
    // Neither changes a number, so both are in one line at the end.
    assert!(!text.contains("Notes:"), "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("(2 notes without effect on the numbers: one free"),
        "{last}"
    );
}

#[test]
fn sizes_near_the_largest_number_are_added_without_overflow() {
    let folder = Folder::new();
    let huge = u64::MAX;
    let script = format!(
        "alloc a {huge} at main:1 > load:2; alloc b {huge} at main:1 > load:3; time 500; \
         alloc c {huge} at main:4 > load:2; thread 2 pool; alloc d {huge} at work:1 > load:2; time 1500; \
         free a; free c; alloc e {huge} at main:4; end 2000"
    );
    let bytes = heaptide_testkit::capture_bytes(&heaptide_testkit::header(), &script);
    folder.write("job.tide", &bytes);
    for command in [
        "stats job.tide",
        "stats --json job.tide",
        "stats job.tide job.tide",
        "summary job.tide",
        "summary --by thread job.tide",
        "tree --plain job.tide",
        "tree --plain -b 1 job.tide",
        "tree --plain --inverted --leaks job.tide",
        "table -f -o page.html job.tide",
        "flamegraph -f -o page.html job.tide",
        "flamegraph -f -o page.html job.tide job.tide",
        "timeline -f -o page.html job.tide job.tide",
        "diff --html -f -o page.html job.tide job.tide",
        "live job.tide",
        "lines --from job.tide",
    ] {
        let output = folder.heaptide(command);
        let text = error_text(&output);
        assert!(!text.contains("panicked"), "{command}: {text}");
        assert!(output.status.code() != Some(101), "{command}: {text}");
    }
    let tree = printed(&folder.heaptide("tree --plain job.tide"));
    assert!(tree.contains("18447 PB (100%) <ROOT>"), "{tree}");
}
