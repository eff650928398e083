//! What the kernel says of a process, parsed by hand: these files are read many times a second.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// `/proc/PID/stat`, as far as we need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub name: String,
    pub state: u8,
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    /// Clock ticks since boot: together with the pid it names one process for ever.
    pub start: u64,
}

pub fn stat(pid: u32) -> Option<Stat> {
    // A name need not be valid text, and may hold blanks and parentheses.
    parse_stat(&String::from_utf8_lossy(
        &fs::read(format!("/proc/{pid}/stat")).ok()?,
    ))
}

fn parse_stat(text: &str) -> Option<Stat> {
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let mut fields = text.get(close + 1..)?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    Some(Stat {
        name: text.get(open + 1..close)?.to_owned(),
        state,
        parent,
        group,
        session,
        start: fields.nth(15)?.parse().ok()?,
    })
}

/// The arguments of a process, joined as mprof joins them; its name in brackets if it has none.
pub fn command_of(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<&[u8]> = bytes
        .strip_suffix(b"\0")
        .unwrap_or(&bytes)
        .split(|&byte| byte == 0)
        .collect();
    let words = words
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned());
    Some(join(words))
}

/// Arguments with a blank are put into single quotes.
pub fn join(words: impl Iterator<Item = String>) -> String {
    let quoted = words.map(|word| {
        if word.contains([' ', '\t']) {
            format!("'{word}'")
        } else {
            word
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Every process there is, in order.
pub fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

/// The first process whose name contains a text, other than this one.
pub fn find_process(part: &str) -> Option<u32> {
    pids().into_iter().find(|&pid| {
        let fits = |stat: Stat| stat.name.contains(part) && stat.state != b'Z';
        pid != std::process::id() && stat(pid).is_some_and(fits)
    })
}

/// A file of `/proc` that is read again and again.
pub struct Kept(File);

impl Kept {
    pub fn open(path: &str) -> io::Result<Kept> {
        File::open(path).map(Kept)
    }

    /// Its text now; such files are short.
    pub fn read<'a>(&self, buffer: &'a mut [u8; 256]) -> io::Result<&'a str> {
        let len = self.0.read_at(buffer, 0)?;
        std::str::from_utf8(&buffer[..len]).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

/// Resident pages, from the text of `statm`. A process that has ended and was not waited for has none.
pub fn resident_pages(statm: &str) -> Option<u64> {
    statm.split(' ').nth(1)?.parse().ok()
}

/// The number that the last process or thread of this machine got. While it stays the same, nobody was born.
pub fn last_pid(loadavg: &str) -> Option<u64> {
    loadavg.trim_end().rsplit(' ').next()?.parse().ok()
}

/// Proportional, unique and swapped bytes.
pub fn dear_sizes(pid: u32) -> Option<[u64; 3]> {
    let mut text = String::new();
    let file = File::open(format!("/proc/{pid}/smaps_rollup")).ok()?;
    file.take(1 << 14).read_to_string(&mut text).ok()?;
    parse_rollup(&text)
}

/// Whether a process shows these to its user alone, who is somebody else.
pub fn is_closed(pid: u32) -> bool {
    File::open(format!("/proc/{pid}/smaps_rollup"))
        .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn parse_rollup(text: &str) -> Option<[u64; 3]> {
    let mut sizes = [0; 3];
    let mut has_pss = false;
    for line in text.lines() {
        let place = match line.split(':').next() {
            Some("Pss") => 0,
            Some("Private_Clean" | "Private_Dirty" | "Private_Hugetlb") => 1,
            Some("Swap") => 2,
            _ => continue,
        };
        has_pss |= place == 0;
        let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
        sizes[place] += kib.checked_mul(1024)?;
    }
    has_pss.then_some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_blanks_and_parentheses_do_not_confuse_the_fields() {
        let text = "42 (a) b (c) S 7 40 39 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987 1 2";
        let expected = Stat {
            name: "a) b (c".into(),
            state: b'S',
            parent: 7,
            group: 40,
            session: 39,
            start: 987,
        };
        assert_eq!(parse_stat(text), Some(expected));
        assert_eq!(parse_stat("42 (cut"), None);
    }

    #[test]
    fn rollup_gives_proportional_unique_and_swapped_bytes() {
        let text = "55 [rollup]\nRss: 100 kB\nPss:    60 kB\nPss_Dirty: 9 kB\nPrivate_Clean: 10 kB\n\
                    Private_Dirty: 20 kB\nSwap: 5 kB\nSwapPss: 4 kB\n";
        assert_eq!(parse_rollup(text), Some([60 << 10, 30 << 10, 5 << 10]));
        assert_eq!(parse_rollup(""), None);
    }

    #[test]
    fn this_process_is_found_by_what_the_kernel_says() {
        let stat = stat(std::process::id()).expect("we live");
        assert!(stat.parent > 0 && stat.start > 0);
        assert!(pids().contains(&std::process::id()));
        assert_eq!(last_pid("0.1 0.2 0.3 1/135 23423\n"), Some(23423));
        assert_eq!(resident_pages("100 25 3 0 0 0 0\n"), Some(25));
    }
}
