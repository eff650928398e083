//! Processes and threads: identity, state, command line, and names.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns all process IDs, ascending.
pub fn pids() -> Vec<u32> {
    numbered_entries("/proc")
}

/// Returns the threads of a process, the main one first.
pub fn threads(pid: u32) -> Vec<u32> {
    let mut threads = numbered_entries(&format!("/proc/{pid}/task"));
    threads.sort_by_key(|&thread| (thread != pid, thread));
    threads
}

fn numbered_entries(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Returns whether the process exists, possibly as a zombie.
pub fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Returns whether the process exists and has not ended. A zombie has ended.
pub fn is_running(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| !stat.has_ended())
}

/// Returns the user that a process belongs to.
pub fn owner(pid: u32) -> Option<u32> {
    Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// Returns the first running process other than this one whose name contains `part`.
pub fn find_by_name(part: &str) -> Option<u32> {
    pids().into_iter().find(|&pid| {
        let fits = |stat: Stat| stat.name.contains(part) && stat.state != b'Z';
        pid != std::process::id() && Stat::of(pid).is_some_and(fits)
    })
}

/// The fields of `/proc/PID/stat` that Heaptide uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub name: String,
    pub state: u8,
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    /// Clock ticks since boot: together with the pid it identifies a process.
    pub start: u64,
}

impl Stat {
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::of_entry(&pid.to_string())
    }

    /// Reads the entry of `/proc` with this name: a process ID, or `self`.
    fn of_entry(name: &str) -> Option<Stat> {
        let text = fs::read(format!("/proc/{name}/stat")).ok()?;
        Stat::parse(&String::from_utf8_lossy(&text))
    }

    /// The name may contain blanks and parentheses.
    fn parse(text: &str) -> Option<Stat> {
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

    pub fn has_ended(&self) -> bool {
        has_ended(self.state)
    }
}

fn has_ended(state: u8) -> bool {
    matches!(state, b'Z' | b'X')
}

/// The lines of `/proc/PID/status` that Heaptide uses.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Status {
    pub name: String,
    pub state: u8,
    /// The process that traces this one, or 0.
    pub tracer: u32,
    /// Real, effective, saved and file-system user.
    pub users: [u32; 4],
    pub groups: [u32; 4],
    /// The process ID in the process's own pid namespace, which is the innermost.
    pub own_pid: u32,
    pub resident_bytes: u64,
    /// Effective capabilities, one bit each.
    pub capabilities: u64,
}

impl Status {
    /// Takes a pid, or `"self"`.
    pub fn of(process: impl Display) -> io::Result<Status> {
        status_text(process).map(|text| Status::parse(&text))
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
                "CapEff" => status.capabilities = u64::from_str_radix(value, 16).unwrap_or(0),
                _ => {}
            }
        }
        status
    }

    pub fn has_ended(&self) -> bool {
        has_ended(self.state)
    }
}

fn four(value: &str) -> [u32; 4] {
    let mut numbers = [0; 4];
    for (slot, word) in numbers.iter_mut().zip(value.split_ascii_whitespace()) {
        *slot = word.parse().unwrap_or(u32::MAX);
    }
    numbers
}

/// Returns the text of `/proc/PID/status`. Takes a pid, or `"self"`.
pub fn status_text(process: impl Display) -> io::Result<String> {
    let text = fs::read(format!("/proc/{process}/status"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the text of `/proc/PID/cgroup`. Takes a pid, or `"self"`.
pub fn cgroups(process: impl Display) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{process}/cgroup"))
}

/// Returns the arguments of the command line; none for a kernel thread. Takes a pid, or `"self"`.
pub fn arguments(process: impl Display) -> io::Result<Vec<OsString>> {
    let bytes = fs::read(format!("/proc/{process}/cmdline"))?;
    // Each word ends with a zero; a process that has overwritten its command line may omit the last one.
    let ended = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    let words = ended.split(|&byte| byte == 0).filter(|_| !bytes.is_empty());
    Ok(words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect())
}

/// Returns a variable of the environment with which a process started.
pub fn environment_variable(pid: u32, name: &str) -> Option<OsString> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|variable| {
        let value = variable.strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=")
    })?;
    Some(OsString::from_vec(value.to_vec()))
}

/// Returns the path of a process's executable, also if the file was removed.
pub fn executable(process: impl Display) -> Option<PathBuf> {
    let path = fs::read_link(format!("/proc/{process}/exe")).ok()?;
    let bytes = path.into_os_string().into_vec();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(&bytes);
    Some(PathBuf::from(OsString::from_vec(bytes.to_vec())))
}

/// Returns the file name of a process's executable, or the kernel's name of the process if the executable is unknown.
pub fn program_name(pid: u32) -> String {
    let path = executable(pid).unwrap_or_default();
    match path.file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => Status::of(pid).map_or_else(|_| "?".into(), |status| status.name),
    }
}

/// Returns the root folder of a process, also if the process is in another mount namespace.
pub fn root(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

/// Returns the namespace in which this process's ID is unique.
pub fn pid_namespace() -> Option<PathBuf> {
    fs::read_link("/proc/self/ns/pid").ok()
}

/// Returns the facts that, with its ID and host name, identify this process. Their keys are those in files.
///
/// Reads `/proc/self`, because `/proc` may show another pid namespace, in which this process's ID belongs to another
/// process.
pub fn process_facts() -> Vec<(String, String)> {
    let mut facts = pid_space_facts();
    let start = Stat::of_entry("self").map(|stat| start_text(stat.start));
    facts.extend(start.map(|start| ("start".to_owned(), start)));
    facts
}

/// Returns the part of [`process_facts`] that all processes of this pid namespace share.
pub fn pid_space_facts() -> Vec<(String, String)> {
    let namespace = pid_namespace().and_then(|link| namespace_number(&link));
    let facts = [("boot_id", crate::boot_id()), ("pid_namespace", namespace)];
    let known = facts.into_iter();
    known
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

/// Returns the namespace of a process's own ID, as in [`pid_space_facts`]; `None` if it cannot be read.
pub fn pid_namespace_of(pid: u32) -> Option<String> {
    namespace_number(&fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?)
}

fn namespace_number(link: &Path) -> Option<String> {
    let link = link.to_str()?;
    Some(link.strip_prefix("pid:[")?.strip_suffix(']')?.to_owned())
}

/// Formats the start time of a process, in clock ticks since boot, as seconds. The kernel reports 100 ticks per second.
pub fn start_text(ticks: u64) -> String {
    format!("{}.{:02}s", ticks / 100, ticks % 100)
}

/// Returns the name of a thread.
pub fn thread_name(pid: u32, thread: u32) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/task/{thread}/comm")).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end().to_owned())
}

/// Returns the system call that a thread is in and its arguments, or `running`; empty if the file cannot be read.
pub fn system_call(pid: u32, thread: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).unwrap_or_default()
}

/// Returns whether this process and another one see the same files under the same paths.
pub fn sees_same_files(pid: u32) -> bool {
    let link = |process: &str, name: &str| fs::read_link(format!("/proc/{process}/{name}")).ok();
    let other = pid.to_string();
    let same = |name| link("self", name).is_some_and(|own| link(&other, name) == Some(own));
    same("ns/mnt") && same("root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let text = "42 (a) b (c) S 7 40 39 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987 1 2";
        let expected = Stat {
            name: "a) b (c".into(),
            state: b'S',
            parent: 7,
            group: 40,
            session: 39,
            start: 987,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("42 (cut"), None);
    }

    #[test]
    fn status_of_a_process_in_a_namespace_has_the_pid_inside_it() {
        let text = "Name:\ta b\nState:\tT (stopped)\nPid:\t4711\nTracerPid:\t12\nUid:\t1000\t1001\t1002\t1003\n\
                    Gid:\t1\t2\t3\t4\nNSpid:\t4711\t8\nVmRSS:\t  12 kB\nCapEff:\t0000000000080000\n";
        let expected = Status {
            name: "a b".into(),
            state: b'T',
            tracer: 12,
            users: [1000, 1001, 1002, 1003],
            groups: [1, 2, 3, 4],
            own_pid: 8,
            resident_bytes: 12 << 10,
            capabilities: 1 << 19,
        };
        assert_eq!(Status::parse(text), expected);
    }

    #[test]
    fn this_process_is_in_proc() {
        let pid = std::process::id();
        let stat = Stat::of(pid).unwrap();
        assert!(stat.parent > 0 && stat.start > 0);
        assert!(pids().contains(&pid));
        assert!(is_running(pid) && exists(pid));
        assert!(threads(pid).contains(&pid));
        assert!(sees_same_files(pid));
        assert_eq!(
            arguments(pid).unwrap(),
            std::env::args_os().collect::<Vec<_>>()
        );
        assert_eq!(executable(pid), std::env::current_exe().ok());
    }
}
