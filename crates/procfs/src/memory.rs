//! The memory of a process: sizes and mappings.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// A short file of `/proc` that stays open and is read repeatedly.
pub struct KeptFile(File);

impl KeptFile {
    /// Opens `/proc/PID/statm`, the sizes of a process in pages.
    pub fn statm(pid: u32) -> io::Result<KeptFile> {
        File::open(format!("/proc/{pid}/statm")).map(KeptFile)
    }

    /// Opens `/proc/loadavg`, the load of the machine.
    pub fn loadavg() -> io::Result<KeptFile> {
        File::open("/proc/loadavg").map(KeptFile)
    }

    /// Returns the current text of the file.
    pub fn read<'a>(&self, buffer: &'a mut [u8; 256]) -> io::Result<&'a str> {
        let len = self.0.read_at(buffer, 0)?;
        std::str::from_utf8(&buffer[..len]).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

/// Opens `/proc/self/statm`, for a caller that keeps the descriptor and passes the text to [`resident_pages`].
pub fn open_own_statm() -> io::Result<File> {
    File::open("/proc/self/statm")
}

/// Returns the number of resident pages, from the text of `statm`; 0 for a zombie.
pub fn resident_pages(statm: &str) -> Option<u64> {
    statm.split(' ').nth(1)?.parse().ok()
}

/// Returns the bytes in a line such as `RssAnon:     1234 kB`.
pub fn kib_field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// Bytes of a process. The kernel sums them over all its mappings, which is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    pub proportional: u64,
    pub unique: u64,
    pub swapped: u64,
}

impl Rollup {
    pub fn of(pid: u32) -> Option<Rollup> {
        Rollup::parse(&rollup_text(pid).ok()?)
    }

    fn parse(text: &str) -> Option<Rollup> {
        let mut rollup = Rollup::default();
        let mut has_pss = false;
        for line in text.lines() {
            let sum = match line.split(':').next() {
                Some("Pss") => {
                    has_pss = true;
                    &mut rollup.proportional
                }
                Some("Private_Clean" | "Private_Dirty" | "Private_Hugetlb") => &mut rollup.unique,
                Some("Swap") => &mut rollup.swapped,
                _ => continue,
            };
            let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
            *sum += kib.checked_mul(1024)?;
        }
        has_pss.then_some(rollup)
    }
}

/// Returns the text of `/proc/PID/smaps_rollup`. Takes a pid, or `"self"`.
pub fn rollup_text(process: impl Display) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(format!("/proc/{process}/smaps_rollup"))?;
    file.take(1 << 14).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns whether this user may not read the [`Rollup`] of the process.
pub fn is_rollup_forbidden(pid: u32) -> bool {
    File::open(format!("/proc/{pid}/smaps_rollup"))
        .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// A range of a process's addresses: a line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub is_readable: bool,
    pub file_offset: u64,
    /// Empty if no file is mapped.
    pub path: String,
}

pub fn mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = fs::read(format!("/proc/{pid}/maps"))?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(mapping).collect())
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after.trim_start();
        word
    };
    let (start, end) = word().split_once('-')?;
    let permissions = word();
    let offset = word();
    let (_device, _inode) = (word(), word());
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        is_readable: permissions.starts_with('r'),
        file_offset: u64::from_str_radix(offset, 16).ok()?,
        path: rest.strip_suffix(" (deleted)").unwrap_or(rest).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_pages_are_the_second_word_of_statm() {
        assert_eq!(resident_pages("100 25 3 0 0 0 0\n"), Some(25));
    }

    #[test]
    fn field_is_found_by_its_whole_name() {
        let text = "RssAnonX:\t 1 kB\nRssAnon:\t 12 kB\n";
        assert_eq!(kib_field(text, "RssAnon"), Some(12 << 10));
        assert_eq!(kib_field(text, "Rss"), None);
    }

    #[test]
    fn rollup_gives_proportional_unique_and_swapped_bytes() {
        let text = "55 [rollup]\nRss: 100 kB\nPss:    60 kB\nPss_Dirty: 9 kB\nPrivate_Clean: 10 kB\n\
                    Private_Dirty: 20 kB\nSwap: 5 kB\nSwapPss: 4 kB\n";
        let expected = Rollup {
            proportional: 60 << 10,
            unique: 30 << 10,
            swapped: 5 << 10,
        };
        assert_eq!(Rollup::parse(text), Some(expected));
        assert_eq!(Rollup::parse(""), None);
    }

    #[test]
    fn path_of_a_mapping_keeps_blanks_and_omits_the_suffix_of_a_deleted_file() {
        let line = "7f00-7f10 r-xp 00001000 fe:01 42                         /opt/my python/libpython3.12.so (deleted)";
        let expected = Mapping {
            start: 0x7f00,
            end: 0x7f10,
            is_readable: true,
            file_offset: 0x1000,
            path: "/opt/my python/libpython3.12.so".into(),
        };
        assert_eq!(mapping(line), Some(expected));
        assert_eq!(
            mapping("7f00-7f10 rw-p 00000000 00:00 0").map(|mapping| mapping.path),
            Some(String::new())
        );
        assert_eq!(mapping("nonsense"), None);
    }
}
