//! Every reader and report command on two thousand files changed at random; `make mutate` runs a million.

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
