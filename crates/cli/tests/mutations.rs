//! Report commands on two thousand files changed at random; `make mutate` runs a million.

use std::process::Stdio;

use crate::Folder;

#[test]
fn no_command_panics_hangs_or_takes_much_memory_on_changed_files() {
    let folder = Folder::new();
    let status = folder
        .example("mutate", "2000 --report report.txt")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("the example mutate runs");
    let report = std::fs::read_to_string(folder.path().join("report.txt"));
    let report = report.expect("a report");
    assert!(status.success(), "{report}");
    assert!(report.starts_with("inputs 2000, "), "{report}");
}

/// Inputs on which sums of sizes once overflowed: `summary`, `tree`, `diff --html` and `table`.
#[test]
fn inputs_that_once_overflowed_are_read_without_a_panic() {
    for seed in [61_991, 900_677, 954_698, 960_268, 973_941, 988_255, 996_341] {
        let folder = Folder::new();
        let status = folder
            .example("mutate", &format!("1 --seed {seed} --report report.txt"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("the example mutate runs");
        let report = std::fs::read_to_string(folder.path().join("report.txt"));
        assert!(status.success(), "{seed}: {report:?}");
    }
}
