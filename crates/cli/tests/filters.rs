//! Filters on the command line: the same ones everywhere.

use crate::{Folder, error_text, printed};

const SCRIPT: &str = "alloc a 1000 at main@/srv/job/job.py > read@/srv/job/etl.py:5; \
                      alloc b 20 at main@/srv/job/job.py; thread 2 pool; alloc c 3 at work; end 9";

#[test]
fn every_command_that_reads_captures_takes_the_filters_and_says_so() {
    let folder = Folder::new();
    folder.capture("job.tide", SCRIPT);
    for command in ["stats", "summary", "tree"] {
        let text = printed(&folder.heaptide(&format!("{command} --exclude etl job.tide")));
        assert!(text.contains("only what passes --exclude etl"), "{text}");
        assert!(!text.contains("etl.py"), "{text}");
        assert!(text.contains("main"), "{text}");
    }
    let text = printed(&folder.heaptide("transform collapsed --include etl -o - job.tide"));
    assert!(text.contains("read (/srv/job/etl.py:5) 1000"), "{text}");
    assert_eq!(text.lines().count(), 1);
    let json = printed(&folder.heaptide("stats --json --thread pool job.tide"));
    assert!(json.contains("--thread pool"), "{json}");
    for page in ["flamegraph", "table"] {
        let line = format!("{page} --hide-imports --process 4711 -o - job.tide");
        assert!(printed(&folder.heaptide(&line)).contains("<html"));
    }
    let records = printed(&folder.heaptide("parse --thread pool job.tide"));
    assert!(
        records.contains("work") && !records.contains("size=1000"),
        "{records}"
    );
}

#[test]
fn filter_that_leaves_nothing_ends_with_3_and_no_file() {
    let folder = Folder::new();
    folder.capture("job.tide", SCRIPT);
    for line in [
        "stats --include numpy job.tide",
        "summary --thread ghost job.tide",
        "tree --process 7 job.tide",
        "table --include numpy -o out job.tide",
        "flamegraph --include numpy -o out job.tide",
        "transform json --include numpy -o out job.tide",
        "parse --thread ghost job.tide",
    ] {
        let output = folder.heaptide(line);
        assert_eq!(output.status.code(), Some(3), "{line}");
        let text = error_text(&output);
        assert!(
            text.starts_with("heaptide: ") && text.lines().count() == 1,
            "{text}"
        );
        assert!(!folder.path().join("out").exists(), "{line}");
    }
    let empty = folder
        .command("stats job.tide")
        .args(["--include", ""])
        .output();
    assert_eq!(empty.expect("it runs").status.code(), Some(2));
}
