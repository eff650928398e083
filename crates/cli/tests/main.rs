//! The output and exit codes of the command. The command is the example `heaptide`, which `cargo test` builds.

mod conventions;
mod damage;
mod diff;
mod filters;
mod heap;
mod help;
mod incomplete;
mod launch;
mod layouts;
mod mutations;
mod newest;
mod pages;
mod records;
mod transform;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A separate folder for each test, removed when the test ends.
pub struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("heaptide-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.0.join(name), bytes).expect("a file in the temporary folder");
    }

    pub fn capture(&self, name: &str, script: &str) {
        self.write(
            name,
            &heaptide_testkit::capture_bytes(&heaptide_testkit::header(), script),
        );
    }

    /// Runs the command in this folder. Arguments are divided at blanks.
    pub fn heaptide(&self, line: &str) -> Output {
        self.command(line)
            .output()
            .expect("the example heaptide runs")
    }

    pub fn command(&self, line: &str) -> Command {
        self.example("heaptide", line)
    }

    /// The command line of an example, which runs in this folder.
    pub fn example(&self, name: &str, line: &str) -> Command {
        let tests = std::env::current_exe().expect("a test has a path");
        let target = tests
            .parent()
            .and_then(Path::parent)
            .expect("tests lie in deps");
        let program = target.join("examples").join(name);
        assert!(
            program.exists(),
            "build it first: cargo build -p heaptide-cli --examples"
        );
        let mut command = Command::new(program);
        command.args(line.split_whitespace()).current_dir(&self.0);
        for name in ["COLUMNS", "LINES", "NO_COLOR"] {
            command.env_remove(name);
        }
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Standard output of a command that is expected to succeed silently.
pub fn printed(output: &Output) -> String {
    assert_eq!(error_text(output), "");
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
