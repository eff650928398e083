//! Filters on the command line: all commands that read captures have the same ones.

use crate::{Folder, error_text, printed};

const SCRIPT: &str = "alloc a 1000 at main@/srv/job/job.py > read@/srv/job/etl.py:5; \
                      alloc b 20 at main@/srv/job/job.py; thread 2 pool; alloc c 3 at work; end 9";

#[test]
fn commands_that_read_captures_accept_filters_and_text_reports_name_them() {
    let folder = Folder::new();
    folder.capture("job.tide", SCRIPT);
    for command in ["stats", "summary", "tree"] {
        let text = printed(&folder.heaptide(&format!("{command} --exclude etl job.tide")));
        assert!(text.contains("filtered by --exclude etl"), "{text}");
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
fn filter_that_leaves_nothing_exits_with_3_and_writes_no_file() {
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

const IN_TIME: &str = "alloc a 1000 at first; time 2000; alloc b 200 at second; free a; time 4000; \
                       alloc c 30 at third; free b; end 6000";

#[test]
fn time_interval_has_its_own_peak_leaks_and_total() {
    let folder = Folder::new();
    folder.capture("job.tide", IN_TIME);
    let sums = |options: &str| -> Vec<String> {
        let line = format!("transform collapsed -o - {options} job.tide");
        let text = printed(&folder.heaptide(&line));
        let sum = |line: &str| line.replace(" (/srv/job/job.py:1)", "");
        text.lines().map(sum).collect()
    };
    assert_eq!(sums(""), ["first 1000", "second 200"]);
    assert_eq!(sums("--from 3ms"), ["second 200", "third 30"]);
    assert_eq!(sums("--to 1ms"), ["first 1000"]);
    assert_eq!(sums("--to 3ms --leaks"), ["second 200"]);
    assert_eq!(sums("--from 1ms --leaks"), ["third 30"]);
    assert_eq!(sums("--from 1ms --to 3ms --total"), ["second 200"]);
    assert_eq!(
        sums("--temporary-allocations"),
        ["first 1000", "second 200"]
    );
    assert_eq!(sums("--temporary-allocation-threshold 0").len(), 0);
    let records = printed(&folder.heaptide("parse --from 1ms --to 3ms job.tide"));
    assert!(
        records.contains("second") && !records.contains("third ("),
        "{records}"
    );
    for line in [
        "tree --from 1h job.tide",
        "stats --to 0 job.tide",
        "flamegraph -o - --from 1h job.tide",
    ] {
        assert_eq!(folder.heaptide(line).status.code(), Some(3), "{line}");
    }
    for line in [
        "stats --from yesterday job.tide",
        "tree --leaks --total job.tide",
    ] {
        assert_eq!(folder.heaptide(line).status.code(), Some(2), "{line}");
    }
}

#[test]
fn rows_and_trees_can_be_grouped_by_other_properties() {
    let folder = Folder::new();
    folder.capture("job.tide", SCRIPT);
    let text = printed(&folder.heaptide("summary --by module job.tide"));
    assert!(text.contains("etl") && !text.contains("etl.py"), "{text}");
    let text = printed(&folder.heaptide("summary --by allocator job.tide"));
    assert!(text.contains("MALLOC"), "{text}");
    let text = printed(&folder.heaptide("tree --inverted --by-function --plain job.tide"));
    assert!(text.contains("read /srv/job/etl.py\n"), "{text}");
    let wrong = folder.heaptide("summary --by colour job.tide");
    assert_eq!(wrong.status.code(), Some(2));
}
