//! The text of source lines, for reports made on a machine that has the program's files.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustc_hash::FxHashMap;

use crate::files;

/// Longer lines are cut, because they usually hold data, not code.
const MAX_LINE_CHARS: usize = 160;

pub struct Sources {
    working_directory: String,
    /// The end of the recording. Files that changed later differ from the program that ran.
    ended: SystemTime,
    files: FxHashMap<String, Option<Vec<Box<str>>>>,
    n_bytes_left: usize,
}

impl Sources {
    /// [`Sources::line`] returns at most `max_bytes` of text in all; [`Sources::lines`] has no such limit.
    pub fn new(working_directory: &str, ended_unix_ns: u64, max_bytes: usize) -> Sources {
        Sources {
            working_directory: working_directory.to_owned(),
            ended: UNIX_EPOCH + Duration::from_nanos(ended_unix_ns),
            files: FxHashMap::default(),
            n_bytes_left: max_bytes,
        }
    }

    /// The line without its indentation, or `None` if it is empty or cannot be read.
    pub fn line(&mut self, file: &str, line: i32) -> Option<String> {
        let at = usize::try_from(line).ok()?.checked_sub(1)?;
        let text = self.lines(file)?.get(at)?.trim();
        let mut cut: String = text.chars().take(MAX_LINE_CHARS).collect();
        if cut.len() < text.len() {
            cut.push('…');
        }
        self.n_bytes_left = self.n_bytes_left.checked_sub(cut.len())?;
        (!cut.is_empty()).then_some(cut)
    }

    /// All lines of a file unchanged, or `None` if they cannot be read.
    pub fn lines(&mut self, file: &str) -> Option<&[Box<str>]> {
        if !self.files.contains_key(file) {
            let lines =
                files::source_lines(&Path::new(&self.working_directory).join(file), self.ended);
            self.files.insert(file.to_owned(), lines);
        }
        self.files.get(file)?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LATER: u64 = u64::MAX;

    fn folder(name: &str) -> std::path::PathBuf {
        let name = format!("heaptide-sources-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary folder");
        path
    }

    #[test]
    fn line_loses_its_indentation_and_is_cut_if_it_is_long() {
        let folder = folder("lines");
        let long = "x".repeat(500);
        fs::write(folder.join("a.py"), format!("one\n    two\n\n{long}\n")).expect("written");
        let mut sources = Sources::new(&folder.display().to_string(), LATER, 1000);
        assert_eq!(sources.line("a.py", 2).as_deref(), Some("two"));
        assert_eq!(sources.line("a.py", 3), None);
        assert_eq!(sources.line("a.py", 9), None);
        assert_eq!(sources.line("a.py", 0), None);
        let cut = sources.line("a.py", 4).expect("a long line");
        assert_eq!(cut.chars().count(), MAX_LINE_CHARS + 1);
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn only_unchanged_python_source_is_returned_up_to_the_byte_limit() {
        let folder = folder("refused");
        fs::write(folder.join("key.pem"), "secret\n").expect("written");
        fs::write(folder.join("a.py"), "one\n").expect("written");
        let home = folder.display().to_string();
        assert_eq!(Sources::new(&home, LATER, 100).line("key.pem", 1), None);
        assert_eq!(Sources::new(&home, LATER, 100).line("missing.py", 1), None);
        assert_eq!(Sources::new(&home, 1, 100).line("a.py", 1), None);
        assert_eq!(Sources::new(&home, LATER, 2).line("a.py", 1), None);
        fs::remove_dir_all(folder).expect("removed");
    }
}
