//! The resident size of the process and its memory limit, read cheaply from the kernel.

use std::fs;
use std::path::PathBuf;

use heaptide_procfs::{self as procfs, CgroupVersion};

use crate::host::own_file::OwnFile;
use crate::host::sys;

/// An open file from which the resident size can be read repeatedly.
pub struct Resident {
    file: Option<OwnFile>,
    page_len: u64,
}

impl Resident {
    pub fn open() -> Self {
        Resident {
            file: procfs::open_own_statm().and_then(OwnFile::new).ok(),
            page_len: sys::page_len(),
        }
    }

    /// Resident bytes now; `None` if the kernel does not provide them.
    pub fn bytes(&self) -> Option<u64> {
        let mut text = [0u8; 128];
        // SAFETY: the pointer and the length describe a live array.
        let len = unsafe {
            libc::pread(
                self.file.as_ref()?.fd().ok()?,
                text.as_mut_ptr().cast(),
                text.len(),
                0,
            )
        };
        let text = text.get(..usize::try_from(len).ok()?)?;
        let pages = procfs::resident_pages(std::str::from_utf8(text).ok()?)?;
        Some(pages * self.page_len)
    }
}

/// The smallest memory limit of the process's control groups, version 1 or 2.
pub fn limit() -> Option<u64> {
    limit_below("/sys/fs/cgroup", &procfs::cgroups("self").ok()?)
}

fn limit_below(root: &str, membership: &str) -> Option<u64> {
    let limits = limited_groups(root, membership).into_iter();
    limits.map(|(limit, ..)| limit).min()
}

/// The version and the folder of the control group with the smallest memory limit.
pub fn tightest_group(root: &str, membership: &str) -> Option<(CgroupVersion, PathBuf)> {
    let limits = limited_groups(root, membership).into_iter();
    let (_, version, folder) = limits.min_by_key(|(limit, ..)| *limit)?;
    Some((version, folder))
}

/// The control groups with a memory limit, from that of the process up to the root, innermost first.
fn limited_groups(root: &str, membership: &str) -> Vec<(u64, CgroupVersion, PathBuf)> {
    /// Version 1 writes a number near the largest one instead of "no limit".
    const NO_LIMIT: u64 = 1 << 60;
    let mut groups = Vec::new();
    for (version, path) in procfs::memory_cgroups(membership) {
        let (base, file) = match version {
            CgroupVersion::One => (format!("{root}/memory"), "memory.limit_in_bytes"),
            CgroupVersion::Two => (root.to_owned(), "memory.max"),
        };
        // A parent's limit also applies to its children. In a container the path may be the host's: then only the root
        // exists.
        let mut path = path.trim_end_matches('/');
        loop {
            let folder = PathBuf::from(format!("{base}{path}"));
            let limit = fs::read_to_string(folder.join(file))
                .ok()
                .and_then(|text| text.trim().parse::<u64>().ok())
                .filter(|&limit| limit < NO_LIMIT);
            groups.extend(limit.map(|limit| (limit, version, folder)));
            match path.rfind('/') {
                Some(parent) => path = &path[..parent],
                None => break,
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, files: &[(&str, &str)]) -> String {
        let root = std::env::temp_dir().join(format!("heaptide-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root.to_str().unwrap().to_owned()
    }

    #[test]
    fn resident_size_of_this_process_is_plausible() {
        let bytes = Resident::open().bytes().unwrap();
        assert!((1 << 20..1 << 40).contains(&bytes), "{bytes}");
    }

    #[test]
    fn smallest_limit_between_group_and_root_applies_in_version_2() {
        let root = folder(
            "v2",
            &[
                ("job/memory.max", "max\n"),
                ("memory.max", "1000000\n"),
                ("job/task/memory.max", "2000000\n"),
            ],
        );
        assert_eq!(limit_below(&root, "0::/job/task\n"), Some(1_000_000));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn version_1_has_its_own_folder_and_a_number_for_no_limit() {
        let root = folder(
            "v1",
            &[
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/job/memory.limit_in_bytes", "512000\n"),
            ],
        );
        assert_eq!(
            limit_below(&root, "5:cpu,memory:/job\n1:name=x:/\n"),
            Some(512_000)
        );
        assert_eq!(limit_below(&root, "5:memory:/\n"), None);
        fs::remove_dir_all(root).unwrap();
    }
}
