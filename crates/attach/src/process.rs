//! What the kernel says of a process, as far as entering it goes.

use std::fs;
use std::io;

/// Lines of `/proc/PID/status` that decide whether we may enter.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Status {
    pub name: String,
    pub state: u8,
    pub tracer: u32,
    /// Real, effective, saved and file-system user.
    pub users: [u32; 4],
    pub groups: [u32; 4],
    /// The process's number in its own namespace, the innermost one.
    pub own_pid: u32,
    pub resident_bytes: u64,
}

impl Status {
    pub fn of(pid: u32) -> io::Result<Status> {
        // A name need not be valid text.
        fs::read(format!("/proc/{pid}/status"))
            .map(|text| Status::parse(&String::from_utf8_lossy(&text)))
    }

    fn parse(text: &str) -> Status {
        let mut status = Status::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            let number = || value.parse().unwrap_or_default();
            match name {
                "Name" => status.name = value.to_owned(),
                "State" => status.state = value.bytes().next().unwrap_or(b'?'),
                "TracerPid" => status.tracer = number(),
                "Uid" => status.users = four(value),
                "Gid" => status.groups = four(value),
                "Pid" if status.own_pid == 0 => status.own_pid = number(),
                "NSpid" => {
                    let innermost = value.split_ascii_whitespace().last();
                    status.own_pid = innermost.and_then(|pid| pid.parse().ok()).unwrap_or(0);
                }
                "VmRSS" => {
                    let kib = value.split(' ').next().and_then(|kib| kib.parse().ok());
                    status.resident_bytes = kib.unwrap_or(0u64).saturating_mul(1024);
                }
                _ => {}
            }
        }
        status
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

fn four(value: &str) -> [u32; 4] {
    let mut numbers = [0; 4];
    for (slot, word) in numbers.iter_mut().zip(value.split_ascii_whitespace()) {
        *slot = word.parse().unwrap_or(u32::MAX);
    }
    numbers
}

/// A part of a process's memory, a line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub is_readable: bool,
    pub file_offset: u64,
    /// Empty if nothing is mapped but memory.
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
    let rights = word();
    let offset = word();
    let (_device, _inode) = (word(), word());
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        is_readable: rights.starts_with('r'),
        file_offset: u64::from_str_radix(offset, 16).ok()?,
        path: rest.strip_suffix(" (deleted)").unwrap_or(rest).to_owned(),
    })
}

/// The threads of a process, the main one first.
pub fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let mut threads: Vec<u32> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    threads.sort_by_key(|&thread| (thread != pid, thread));
    threads
}

/// Whether two processes see the same files under the same names.
pub fn sees_the_same_files(pid: u32) -> bool {
    let place = |of: &str, what: &str| fs::read_link(format!("/proc/{of}/{what}")).ok();
    let other = pid.to_string();
    let same = |what| place("self", what).is_some() && place("self", what) == place(&other, what);
    same("ns/mnt") && same("root")
}

/// What a person would call the program.
pub fn program(pid: u32) -> String {
    let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = path.file_name().map(|name| name.to_string_lossy());
    match name {
        Some(name) => name.trim_end_matches(" (deleted)").to_owned(),
        None => Status::of(pid).map_or_else(|_| "?".into(), |status| status.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_a_process_in_a_namespace_gives_its_own_number() {
        let text = "Name:\ta b\nState:\tT (stopped)\nPid:\t4711\nTracerPid:\t12\nUid:\t1000\t1001\t1002\t1003\n\
                    Gid:\t1\t2\t3\t4\nNSpid:\t4711\t8\nVmRSS:\t  12 kB\n";
        let expected = Status {
            name: "a b".into(),
            state: b'T',
            tracer: 12,
            users: [1000, 1001, 1002, 1003],
            groups: [1, 2, 3, 4],
            own_pid: 8,
            resident_bytes: 12 << 10,
        };
        assert_eq!(Status::parse(text), expected);
    }

    #[test]
    fn mapping_keeps_blanks_in_names_and_drops_what_the_kernel_adds() {
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
            mapping("7f00-7f10 rw-p 00000000 00:00 0").map(|found| found.path),
            Some(String::new())
        );
        assert_eq!(mapping("nonsense"), None);
    }

    #[test]
    fn this_process_sees_its_own_files() {
        assert!(sees_the_same_files(std::process::id()));
        assert!(threads(std::process::id()).contains(&std::process::id()));
    }
}
