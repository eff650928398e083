//! Files of `/proc` about the whole machine, and control groups.

use std::fs;

/// Returns the process ID assigned last, from the text of `loadavg`. While it stays the same, no process started.
pub fn last_pid(loadavg: &str) -> Option<u64> {
    loadavg.trim_end().rsplit(' ').next()?.parse().ok()
}

/// Returns the identifier of this boot of the machine.
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Returns the host name; empty if it is unknown.
pub fn host_name() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    text.trim().to_owned()
}

/// Returns Yama's limit on `ptrace`, from 0 (every process of the same user) to 3 (no process).
pub fn ptrace_scope() -> Option<u8> {
    let text = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    text.trim().parse().ok()
}

/// Returns the number of processes that the kernel has killed for lack of memory.
pub fn oom_kills() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, count) = lines.find(|(name, _)| *name == "oom_kill")?;
    count.trim().parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    One,
    Two,
}

/// Returns the paths of the control groups that limit memory, from the text of `/proc/PID/cgroup`.
pub fn memory_cgroups(text: &str) -> impl Iterator<Item = (CgroupVersion, &str)> {
    text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        if controllers.is_empty() {
            return Some((CgroupVersion::Two, path));
        }
        let limits_memory = controllers.split(',').any(|name| name == "memory");
        limits_memory.then_some((CgroupVersion::One, path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_pid_is_the_last_word_of_loadavg() {
        assert_eq!(last_pid("0.1 0.2 0.3 1/135 23423\n"), Some(23423));
    }

    #[test]
    fn memory_cgroups_are_those_of_version_2_and_of_the_memory_controller() {
        let text = "5:cpu,memory:/a:b\n4:devices:/c\n0::/d\nnonsense\n";
        let groups: Vec<_> = memory_cgroups(text).collect();
        let expected = [(CgroupVersion::One, "/a:b"), (CgroupVersion::Two, "/d")];
        assert_eq!(groups, expected);
    }
}
