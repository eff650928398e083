//! The resident part of each mapping of a process, from `/proc/PID/smaps`.
//!
//! The kernel walks the page tables for this file, and the text has about a kilobyte per mapping. It is read line by line,
//! so that a process with many mappings needs no more memory than one with few.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

/// A mapping and its bytes in memory. Pages of zeros that were only read are not in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResidentMapping {
    pub start: u64,
    pub end: u64,
    pub is_writable: bool,
    /// Whether the mapping can be neither read nor written nor executed.
    pub is_inaccessible: bool,
    /// Empty for anonymous memory; `[heap]` for the segment that `brk` moves.
    pub path: String,
    pub resident: u64,
    /// Pages that other processes also map and that equal the mapped file.
    pub shared_clean: u64,
    /// Pages that other processes also map and that were written to.
    pub shared_dirty: u64,
}

/// Calls `visit` for each mapping of a process, by address. Takes a pid, or `"self"`.
pub fn resident_mappings(
    process: impl Display,
    visit: impl FnMut(&ResidentMapping),
) -> io::Result<()> {
    let file = File::open(format!("/proc/{process}/smaps"))?;
    read(BufReader::new(file), visit)
}

fn read(mut text: impl BufRead, mut visit: impl FnMut(&ResidentMapping)) -> io::Result<()> {
    let mut mapping: Option<ResidentMapping> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        if text.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match line[0] {
            // Names of fields begin with a capital, addresses do not. Most fields are not used.
            b'R' | b'S' => mapping.iter_mut().for_each(|mapping| add(mapping, &line)),
            b'A'..=b'Z' => {}
            _ => {
                if let Some(next) = head(String::from_utf8_lossy(&line).trim_end()) {
                    mapping.iter().for_each(&mut visit);
                    mapping = Some(next);
                }
            }
        }
    }
    mapping.iter().for_each(&mut visit);
    Ok(())
}

/// Reads the line that begins a mapping, as in `/proc/PID/maps`.
fn head(line: &str) -> Option<ResidentMapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?;
    Some(ResidentMapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        is_writable: permissions.as_bytes().get(1) == Some(&b'w'),
        is_inaccessible: permissions.starts_with("---"),
        path: words.nth(3).unwrap_or("").trim_start().to_owned(),
        ..ResidentMapping::default()
    })
}

fn add(mapping: &mut ResidentMapping, line: &[u8]) {
    let fields = [
        (&b"Rss:"[..], &mut mapping.resident),
        (b"Shared_Clean:", &mut mapping.shared_clean),
        (b"Shared_Dirty:", &mut mapping.shared_dirty),
    ];
    for (name, bytes) in fields {
        if let Some(value) = line.strip_prefix(name) {
            let digits = value.iter().filter(|byte| byte.is_ascii_digit());
            let kib = digits.fold(0u64, |kib, digit| {
                kib.saturating_mul(10)
                    .saturating_add(u64::from(digit - b'0'))
            });
            *bytes = kib.saturating_mul(1024);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mapping_has_its_path_its_permissions_and_its_resident_bytes() {
        let text = "55d0-55f0 rw-p 00000000 00:00 0                          [heap]\n\
                    Size:                132 kB\nRss:                  12 kB\nShared_Clean:          1 kB\n\
                    Shared_Dirty:          2 kB\nAnonymous:             9 kB\nVmFlags: rd wr mr mw me ac\n\
                    7f00-7f40 ---p 00000000 00:00 0 \nRss:                   0 kB\n\
                    7f40-7f50 r-xs 00001000 fe:01 42                         /opt/my app/a:b.so (deleted)\nRss: 4 kB\n";
        let mut mappings = Vec::new();
        read(text.as_bytes(), |mapping| mappings.push(mapping.clone())).expect("a text");
        let heap = ResidentMapping {
            start: 0x55d0,
            end: 0x55f0,
            is_writable: true,
            is_inaccessible: false,
            path: "[heap]".into(),
            resident: 12 << 10,
            shared_clean: 1 << 10,
            shared_dirty: 2 << 10,
        };
        assert_eq!(mappings[0], heap);
        assert!(mappings[1].is_inaccessible && mappings[1].path.is_empty());
        assert_eq!(mappings[2].path, "/opt/my app/a:b.so (deleted)");
        assert_eq!((mappings.len(), mappings[2].resident), (3, 4 << 10));
    }
}
