//! Whole runs: the content of the file after a program has exited or was killed.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heaptide_timeline::{Ending, Format, Header, Timeline, header_text, read_file};
use heaptide_watch::{Finished, Plan, StartError, Target, watch};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("heaptide-watch-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("a file");
    }

    fn run(&self, format: Format, script: &str) -> (Finished, Timeline) {
        let finished = self
            .try_run(format, &["sh", "-c", script])
            .expect("the program starts");
        (finished, read_file(&self.path()).expect("a timeline"))
    }

    fn try_run(&self, format: Format, words: &[&str]) -> Result<Finished, StartError> {
        let target = Target::Command(words.iter().map(|word| word.to_string().into()).collect());
        let mut header = Header::default();
        target.describe(&mut header, |words| words);
        let mut file = File::create(self.path()).expect("a file");
        file.write_all(header_text(format, &header).as_bytes())
            .expect("written");
        let plan = Plan {
            target,
            interval: Duration::from_millis(20),
            timeout: None,
            format,
            // The folder replaces this machine's control group and has version 2.
            groups: self.0.clone(),
            membership: Some("0::/\n".to_owned()),
            header,
            hide: |words| words,
        };
        watch(plan, file, &self.path())
    }

    fn path(&self) -> PathBuf {
        self.0.join("out")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const DAT: Format = Format::Mprof {
    include_children: true,
    multiprocess: true,
};

#[test]
fn timeline_of_an_oom_killed_run_contains_the_kill_and_the_limit() {
    for format in [Format::Heaptide, DAT] {
        let folder = Folder::new();
        folder.write("memory.current", "50000000\n");
        folder.write("memory.max", "67108864\n");
        folder.write("memory.events", "oom 0\noom_kill 0\n");
        let events = folder.0.join("memory.events");
        // The program acts like the kernel: it raises the counter and kills itself.
        let script = format!(
            "printf 'oom 1\\noom_kill 1\\n' > {}; kill -9 $$",
            events.display()
        );
        let (finished, timeline) = folder.run(format, &script);
        assert_eq!(
            (finished.ending, finished.n_oom_kills),
            (Ending::Signal(9), 1)
        );
        assert_eq!(
            (timeline.ending, timeline.n_oom_kills),
            (Some(Ending::Signal(9)), 1)
        );
        assert_eq!(timeline.limit(), Some(67_108_864));
        assert!(!timeline.total.is_empty());
    }
}

#[test]
fn exit_codes_and_signals_are_reported() {
    let folder = Folder::new();
    assert_eq!(
        folder.run(Format::Heaptide, "exit 7").0.ending,
        Ending::Exit(7)
    );
    assert_eq!(
        folder.run(Format::Heaptide, "kill -15 $$").0.ending,
        Ending::Signal(15)
    );
    let missing = folder
        .try_run(Format::Heaptide, &["./missing"])
        .expect_err("the program is missing");
    assert_eq!(missing.exit_code(), 127);
    assert!(
        missing
            .to_string()
            .starts_with("./missing cannot be started")
    );
}

#[test]
fn program_starts_with_the_inherited_signal_mask_and_the_actions_that_python_changed() {
    let folder = Folder::new();
    // SAFETY: both arguments are constants of the C library, and no test depends on the action.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let seen = folder.0.join("status");
    let script = format!(
        "grep -E '^Sig(Blk|Ign)' /proc/self/status > {}",
        seen.display()
    );
    let (_, timeline) = folder.run(Format::Heaptide, &script);
    assert_eq!(timeline.ending, Some(Ending::Exit(0)));
    let text = fs::read_to_string(seen).expect("the script wrote it");
    let own = fs::read_to_string("/proc/thread-self/status").expect("/proc is readable");
    let mask = |text: &str, name: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .expect("the line is present");
        u64::from_str_radix(line.split_whitespace().nth(1).expect("a mask"), 16).expect("a number")
    };
    assert_eq!(mask(&text, "SigBlk"), mask(&own, "SigBlk"), "{text}");
    // Python ignores these signals; the program must not inherit that.
    let is_ignored = |text: &str, signal: i32| mask(text, "SigIgn") & 1 << (signal - 1) != 0;
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        assert!(is_ignored(&own, signal), "{own}");
        assert!(!is_ignored(&text, signal), "{text}");
    }
}
