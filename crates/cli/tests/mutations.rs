//! Report commands on two thousand files changed at random; `make mutate` tests a hundred thousand, or `INPUTS`.

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
    let counts = report.strip_prefix("inputs 2000, read to a report ");
    let n_reports = counts.and_then(|counts| counts.split(',').next()?.parse::<u32>().ok());
    assert!(n_reports.is_some_and(|n| n > 1_000), "{report}");
}

/// Inputs on which sums of sizes once overflowed. Each is named by seed, sample and command, so that it stays the same
/// if the lists of samples and commands change.
#[test]
fn inputs_that_once_overflowed_are_read_without_a_panic() {
    for (seed, sample, command) in [
        (61_991, "events.bin", "summary IN"),
        (900_677, "events.tide", "summary IN"),
        (954_698, "events.bin", "tree --plain IN"),
        (
            960_268,
            "sampled.tide",
            "tree --plain --inverted --leaks IN",
        ),
        (973_941, "sums.bin", "diff --html -f -o OUT IN GOOD"),
        (988_255, "events.tide", "table -f -o OUT IN"),
        (996_341, "sampled.tide", "tree --plain IN"),
    ] {
        let folder = Folder::new();
        let line = format!("1 --seed {seed} --sample {sample} --report report.txt --command");
        let status = folder
            .example("mutate", &line)
            .arg(command)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("the example mutate runs");
        let report = std::fs::read_to_string(folder.path().join("report.txt"));
        let report = report.expect("a report");
        assert!(status.success(), "{seed}: {report}");
        // The command must print a report: only then it has added the sizes that once overflowed.
        let counts = "inputs 1, read to a report 1, panics 0, ";
        assert!(report.starts_with(counts), "{seed}: {report}");
    }
}
