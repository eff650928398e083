//! Function calls: the decorator appends `FUNC` lines to a file that an environment variable names, and the recorder copies
//! them from there during the run.
//!
//! Each line is appended by one write, so lines of several processes never mix. An incomplete line is read later.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use heaptide_timeline::{Call, read_call};

/// Names the file for the program and its descendants.
pub const VARIABLE: &str = "HEAPTIDE_TIMELINE_FUNCTIONS";

/// The most bytes that one `take` reads; the next one reads the rest.
const MAX_READ: usize = 1 << 20;

pub struct Functions {
    path: PathBuf,
    file: Option<File>,
    at: u64,
}

impl Functions {
    /// Uses a file next to the timeline. Removes a file that a killed recording left there.
    pub fn beside(timeline: &Path) -> Functions {
        let mut name = timeline.as_os_str().to_owned();
        name.push(".functions");
        let path = PathBuf::from(name);
        let _ = fs::remove_file(&path);
        // The path is made absolute, because the program may change its working directory.
        let path = std::path::absolute(&path).unwrap_or(path);
        Functions {
            path,
            file: None,
            at: 0,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the function calls that were added since the last `take`.
    pub fn take(&mut self) -> Vec<Call> {
        if self.file.is_none() {
            let mut options = File::options();
            let options = options.read(true).custom_flags(libc::O_NOFOLLOW);
            self.file = options.open(&self.path).ok();
        }
        let Some(file) = &self.file else {
            return Vec::new();
        };
        let len = file.metadata().map_or(0, |metadata| metadata.len());
        let n_new = usize::try_from(len.saturating_sub(self.at)).unwrap_or(MAX_READ);
        let mut bytes = vec![0; n_new.min(MAX_READ)];
        let Ok(n_read) = file.read_at(&mut bytes, self.at) else {
            return Vec::new();
        };
        bytes.truncate(n_read);
        let whole = match bytes.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => end + 1,
            // No decorator writes a line this long. It is skipped, so that later lines are read.
            None if n_read == MAX_READ => n_read,
            None => 0,
        };
        self.at += whole as u64;
        let text = String::from_utf8_lossy(&bytes[..whole]);
        text.lines()
            .filter_map(|line| read_call(line.strip_prefix("FUNC ")?))
            .collect()
    }

    /// Returns the remaining calls and removes the file.
    pub fn finish(mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        loop {
            let before = self.at;
            calls.extend(self.take());
            // Bytes without a valid line give no calls, but lines may follow them.
            if self.at == before {
                break;
            }
        }
        let _ = fs::remove_file(&self.path);
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;

    #[test]
    fn lines_are_read_once_and_only_when_complete() {
        let name = format!("heaptide-functions-{}.dat", std::process::id());
        let mut functions = Functions::beside(&std::env::temp_dir().join(name));
        assert!(functions.take().is_empty());
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(functions.path())
            .expect("a temporary file");
        file.write_all(b"FUNC m.f 1.0 10.0 2.0 11.0 0\nnoise\nFUNC m.g 1.0 1")
            .expect("written");
        let calls = functions.take();
        assert_eq!(calls.len(), 1);
        assert_eq!(
            (calls[0].function.as_str(), calls[0].level),
            ("m.f", Some(0))
        );
        assert!(functions.take().is_empty());
        file.write_all(b"2.5 3.0 13.5 1\n").expect("written");
        let path = functions.path().to_owned();
        let calls = functions.finish();
        assert_eq!(calls[0].begin.time_s, 12.5);
        assert!(!path.exists());
    }

    #[test]
    fn lines_after_a_mebibyte_without_a_valid_line_are_read() {
        let call = "FUNC m.f 1.0 10.0 2.0 11.0 0\n";
        for (number, noise) in ["noise\n", "noise"].into_iter().enumerate() {
            let name = format!("heaptide-noise-{number}-{}.dat", std::process::id());
            let functions = Functions::beside(&std::env::temp_dir().join(name));
            let noise = noise.repeat(3 * MAX_READ / noise.len());
            fs::write(functions.path(), format!("{noise}\n{call}{noise}\n{call}"))
                .expect("written");
            let calls = functions.finish();
            let names: Vec<&str> = calls.iter().map(|call| call.function.as_str()).collect();
            assert_eq!(names, ["m.f", "m.f"], "noise {number}");
        }
    }
}
