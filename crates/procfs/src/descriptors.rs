//! The open files of a process.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;

/// A descriptor of a process.
pub struct OpenFile {
    pid: u32,
    descriptor: OsString,
    /// Opens the file even if it was moved or removed.
    pub link: PathBuf,
}

/// Returns the open files of a process. Fails if the process has exited or belongs to another user.
pub fn open_files(pid: u32) -> io::Result<impl Iterator<Item = OpenFile>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    Ok(entries.map(move |entry| OpenFile {
        pid,
        descriptor: entry.file_name(),
        link: entry.path(),
    }))
}

impl OpenFile {
    /// Returns whether the file is open for writing; false if it has been closed since.
    pub fn is_for_writing(&self) -> io::Result<bool> {
        let info = format!(
            "/proc/{}/fdinfo/{}",
            self.pid,
            self.descriptor.to_string_lossy()
        );
        let info = match fs::read_to_string(info) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            info => info?,
        };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        // O_RDONLY is 0; the two lowest bits are the access mode.
        Ok(flags.is_some_and(|flags| flags & 0b11 != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn files_open_for_writing_differ_from_those_open_for_reading() {
        let name = format!("heaptide-procfs-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _writer = File::create(&path).unwrap();
        let _reader = File::open(&path).unwrap();
        let same = |file: &OpenFile| fs::read_link(&file.link).is_ok_and(|link| link == path);
        let files = open_files(std::process::id()).unwrap();
        let mut modes: Vec<bool> = files
            .filter(same)
            .map(|file| file.is_for_writing().unwrap())
            .collect();
        fs::remove_file(&path).unwrap();
        modes.sort_unstable();
        assert_eq!(modes, [false, true]);
    }
}
