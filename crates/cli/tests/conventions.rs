//! Conventions of the command line: help, exit codes, output files, pipes and colours.

use std::io::Read;
use std::process::Stdio;

use crate::{Folder, error_text, printed};

#[test]
fn help_names_the_commands_and_shows_examples() {
    let folder = Folder::new();
    let text = printed(&folder.heaptide("--help"));
    for word in [
        "run",
        "stats",
        "summary",
        "tree",
        "parse",
        "Examples:",
        "heaptide run job.py",
        "where was memory allocated?",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(printed(&folder.heaptide("-V")).starts_with("heaptide 0."));
    for command in ["run", "stats", "summary", "tree", "parse"] {
        assert!(
            printed(&folder.heaptide(&format!("{command} --help"))).contains("Usage: heaptide")
        );
    }
}

#[test]
fn messages_contain_reasons_without_error_numbers() {
    let folder = Folder::new();
    for line in ["jobs missing", "ctl --url unix:missing status"] {
        let message = error_text(&folder.heaptide(line));
        assert!(
            message.contains("(No such file or directory):"),
            "{message}"
        );
    }
}

#[test]
fn invalid_arguments_exit_with_2() {
    let folder = Folder::new();
    for line in [
        "",
        "nonsense",
        "stats -n 0 x",
        "summary -s 6 x",
        "tree --threshold 200 x",
    ] {
        let output = folder.heaptide(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(!output.stderr.is_empty(), "{line}");
    }
}

#[test]
fn report_file_is_not_overwritten_without_force() {
    let folder = Folder::new();
    folder.capture("job.tide", "alloc a 100 at main; end 5");
    folder.write("out.json", b"precious");
    let refused = folder.heaptide("stats --json -o out.json job.tide");
    assert_eq!(refused.status.code(), Some(1));
    let expected =
        "heaptide: out.json exists already: choose another name, or overwrite it with --force\n";
    assert_eq!(error_text(&refused), expected);
    assert_eq!(
        std::fs::read(folder.path().join("out.json")).expect("still there"),
        b"precious"
    );
    assert_eq!(
        printed(&folder.heaptide("stats --json -f -o out.json job.tide")),
        "Wrote out.json\n"
    );
    let written = std::fs::read_to_string(folder.path().join("out.json")).expect("written");
    assert_eq!(written, printed(&folder.heaptide("stats --json job.tide")));
}

#[test]
fn dash_as_output_file_is_standard_output() {
    let folder = Folder::new();
    folder.capture("job.tide", "alloc a 100 at main; end 5");
    let to_dash = printed(&folder.heaptide("stats -o - job.tide"));
    assert_eq!(to_dash, printed(&folder.heaptide("stats job.tide")));
    assert!(!folder.path().join("-").exists());
}

#[test]
fn failed_report_leaves_no_file() {
    let folder = Folder::new();
    assert_eq!(
        folder
            .heaptide("stats -o out.txt missing.tide")
            .status
            .code(),
        Some(1)
    );
    assert!(!folder.path().join("out.txt").exists());
}

#[test]
fn closed_pipe_is_not_an_error() {
    let folder = Folder::new();
    let mut script = String::new();
    for n in 0..20_000 {
        script += &format!("alloc b{n} 64 at main;");
    }
    folder.capture("job.tide", &script);
    for line in ["parse job.tide", "parse job.tide job.tide job.tide"] {
        let mut command = folder.command(line);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut out = child.stdout.take().expect("piped");
        let mut first = [0; 10];
        out.read_exact(&mut first).expect("a first line");
        drop(out);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(error_text(&output), "");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn pipes_get_no_colours() {
    let folder = Folder::new();
    folder.capture("job.tide", "alloc a 100 at main");
    for command in ["stats", "summary", "tree"] {
        assert!(!printed(&folder.heaptide(&format!("{command} job.tide"))).contains('\x1b'));
    }
}
