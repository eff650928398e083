//! The control group of a run: its usage, its limit, and its out-of-memory kills. Versions 1 and 2.
//!
//! Among the run's own group and all its ancestors, the group with the smallest limit is used, because that limit kills
//! the run. Without any limit it is the run's own group, unless that is the whole machine.

use std::fs;
use std::path::{Path, PathBuf};

use heaptide_procfs::{self as procfs, CgroupVersion};

/// The mount point of control groups.
pub const ROOT: &str = "/sys/fs/cgroup";

/// Version 1 has a very large number instead of "no limit".
const NO_LIMIT: u64 = 1 << 60;

pub struct Cgroup {
    folder: PathBuf,
    version: CgroupVersion,
    /// The folders of the group and of its ancestors.
    chain: Vec<PathBuf>,
    n_kills_before: u64,
}

impl Cgroup {
    /// Returns the group of a process; `root` is the mount point.
    pub fn of(pid: u32, root: &Path) -> Option<Cgroup> {
        Cgroup::below(root, &procfs::cgroups(pid).ok()?)
    }

    pub fn below(root: &Path, membership: &str) -> Option<Cgroup> {
        procfs::memory_cgroups(membership).find_map(|(version, path)| {
            let base = match version {
                CgroupVersion::One => root.join("memory"),
                CgroupVersion::Two => root.to_owned(),
            };
            Cgroup::open(version, &base, path)
        })
    }

    fn open(version: CgroupVersion, base: &Path, path: &str) -> Option<Cgroup> {
        let mut chain = Vec::new();
        // In a container the path may be that of the host: then only the root exists.
        let mut part = path.trim_end_matches('/');
        loop {
            let folder = base.join(part.trim_start_matches('/'));
            if usage(version, &folder).is_some() {
                chain.push(folder);
            }
            match part.rfind('/') {
                Some(end) => part = &part[..end],
                None => break,
            }
        }
        let limits = chain
            .iter()
            .filter_map(|folder| Some((limit(version, folder)?, folder)));
        let tightest = limits
            .min_by_key(|(limit, _)| *limit)
            .map(|(_, folder)| folder.clone());
        let own = chain
            .first()
            .filter(|folder| folder.as_path() != base)
            .cloned();
        let folder = tightest.or(own)?;
        let mut group = Cgroup {
            folder,
            version,
            chain,
            n_kills_before: 0,
        };
        group.n_kills_before = group.n_kills_ever();
        Some(group)
    }

    pub fn usage(&self) -> Option<u64> {
        usage(self.version, &self.folder)
    }

    /// Returns the smallest current limit.
    pub fn limit(&self) -> Option<u64> {
        self.chain
            .iter()
            .filter_map(|folder| limit(self.version, folder))
            .min()
    }

    /// Returns the number of out-of-memory kills since the group was opened.
    pub fn n_kills(&self) -> u64 {
        self.n_kills_ever().saturating_sub(self.n_kills_before)
    }

    fn n_kills_ever(&self) -> u64 {
        let file = match self.version {
            CgroupVersion::One => "memory.oom_control",
            CgroupVersion::Two => "memory.events",
        };
        // Version 1 counts kills in the group itself, version 2 also in all ancestors. The largest count is right for both.
        let counts = self
            .chain
            .iter()
            .filter_map(|folder| counter(&folder.join(file), "oom_kill"));
        counts.max().unwrap_or(0)
    }
}

fn counter(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(word, _)| *word == name)?.1.trim().parse().ok()
}

fn usage(version: CgroupVersion, folder: &Path) -> Option<u64> {
    number(&folder.join(match version {
        CgroupVersion::One => "memory.usage_in_bytes",
        CgroupVersion::Two => "memory.current",
    }))
}

fn limit(version: CgroupVersion, folder: &Path) -> Option<u64> {
    let name = match version {
        CgroupVersion::One => "memory.limit_in_bytes",
        CgroupVersion::Two => "memory.max",
    };
    number(&folder.join(name)).filter(|&limit| limit < NO_LIMIT)
}

/// Reads a number. `max`, which means "no limit", is not one.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str, files: &[(&str, &str)]) -> Folder {
            let root =
                std::env::temp_dir().join(format!("heaptide-group-{name}-{}", std::process::id()));
            let folder = Folder(root);
            for (path, text) in files {
                folder.write(path, text);
            }
            folder
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn version_2_uses_the_group_with_the_smallest_limit() {
        let folder = Folder::new(
            "v2",
            &[
                ("job/task/memory.current", "100\n"),
                ("job/task/memory.max", "max\n"),
                ("job/memory.current", "300\n"),
                ("job/memory.max", "1000\n"),
                (
                    "job/memory.events",
                    "low 0\noom 2\noom_kill 1\noom_group_kill 0\n",
                ),
            ],
        );
        let group = Cgroup::below(&folder.0, "0::/job/task\n").expect("a group");
        assert_eq!(
            (group.usage(), group.limit(), group.n_kills()),
            (Some(300), Some(1000), 0)
        );
        folder.write("job/memory.events", "oom 4\noom_kill 3\n");
        folder.write("job/task/memory.max", "700\n");
        assert_eq!((group.limit(), group.n_kills()), (Some(700), 2));
    }

    #[test]
    fn version_1_has_its_own_folder_and_a_number_for_no_limit() {
        let folder = Folder::new(
            "v1",
            &[
                ("memory/memory.usage_in_bytes", "9000\n"),
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/job/memory.usage_in_bytes", "50\n"),
                ("memory/job/memory.limit_in_bytes", "9223372036854771712\n"),
                (
                    "memory/job/memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n",
                ),
            ],
        );
        let group = Cgroup::below(&folder.0, "4:cpu,memory:/job\n0::/\n").expect("a group");
        assert_eq!(
            (group.usage(), group.limit(), group.n_kills()),
            (Some(50), None, 0)
        );
        assert!(
            Cgroup::below(&folder.0, "4:memory:/\n").is_none(),
            "the whole machine is not a group"
        );
    }
}
