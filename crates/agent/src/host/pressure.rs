//! Memory pressure: whether the process, or its control group, has reached a part of its limit.
//!
//! One of Heaptide's own threads polls a [`Gauge`]. A crossing counts once. The next one counts only after the usage has
//! fallen clearly below the threshold and ten minutes have passed: frequent reports would slow down a program at its limit.
//!
//! Runs on: one thread. Allocates: bypassing the hooks. Locks: none. During fork: the child creates another gauge.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use heaptide_procfs::{self as procfs, CgroupVersion};

use super::resident::{self, Resident};

/// Time between two crossings that count.
const MIN_PAUSE: Duration = Duration::from_secs(600);

/// The threshold: a part of the control group's limit in thousandths, or, from [`BYTES`] on, bytes of the process. 0 is none.
static THRESHOLD: AtomicU64 = AtomicU64::new(0);
/// Larger than any number of thousandths.
const BYTES: u64 = 1 << 20;

/// Sets the threshold: thousandths of the control group's limit.
pub fn watch_share(thousandths: u64) {
    THRESHOLD.store(thousandths.clamp(1, 1000), Ordering::Relaxed);
}

/// Sets the threshold: resident bytes of the process, at least one mebibyte.
pub fn watch_bytes(bytes: u64) {
    THRESHOLD.store(bytes.max(BYTES), Ordering::Relaxed);
}

pub fn is_wanted() -> bool {
    THRESHOLD.load(Ordering::Relaxed) != 0
}

/// A crossing of the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Bytes that count against the limit: of the control group without its page cache, or resident bytes of the process.
    pub used_bytes: u64,
    /// The control group's limit, or the chosen size.
    pub limit_bytes: u64,
    pub threshold_bytes: u64,
}

/// Reads the usage, and finds crossings.
pub struct Gauge {
    resident: Resident,
    group: Option<Group>,
    crossings: Crossings,
}

impl Gauge {
    pub fn open() -> Gauge {
        Gauge {
            resident: Resident::open(),
            group: Group::own(),
            crossings: Crossings::default(),
        }
    }

    /// Returns the pressure if the threshold has been crossed since the last call.
    pub fn poll(&mut self) -> Option<Pressure> {
        let pressure = match THRESHOLD.load(Ordering::Relaxed) {
            0 => return None,
            bytes @ BYTES.. => Pressure {
                used_bytes: self.resident.bytes()?,
                limit_bytes: bytes,
                threshold_bytes: bytes,
            },
            thousandths => {
                let group = self.group.as_ref()?;
                let limit_bytes = group.limit()?;
                let threshold_bytes = limit_bytes / 1000 * thousandths;
                Pressure {
                    used_bytes: group.used_above(threshold_bytes)?,
                    limit_bytes,
                    threshold_bytes,
                }
            }
        };
        let crosses = self.crossings.update(&pressure, Instant::now());
        crosses.then_some(pressure)
    }
}

/// Whether the process has a control group with a memory limit.
pub fn has_limit() -> bool {
    Group::own().is_some()
}

/// The control group with the smallest limit, from the group of the process up to the root.
struct Group {
    version: CgroupVersion,
    folder: PathBuf,
    usage: File,
    limit: File,
}

impl Group {
    fn own() -> Option<Group> {
        Group::below("/sys/fs/cgroup", &procfs::cgroups("self").ok()?)
    }

    fn below(root: &str, membership: &str) -> Option<Group> {
        let (version, folder) = resident::tightest_group(root, membership)?;
        let (usage, limit) = match version {
            CgroupVersion::One => ("memory.usage_in_bytes", "memory.limit_in_bytes"),
            CgroupVersion::Two => ("memory.current", "memory.max"),
        };
        Some(Group {
            version,
            usage: File::open(folder.join(usage)).ok()?,
            limit: File::open(folder.join(limit)).ok()?,
            folder,
        })
    }

    fn limit(&self) -> Option<u64> {
        number_in(&self.limit)
    }

    /// Returns the usage. If it reaches the threshold, the page cache that the kernel can drop is subtracted.
    fn used_above(&self, threshold: u64) -> Option<u64> {
        let usage = number_in(&self.usage)?;
        if usage < threshold {
            return Some(usage);
        }
        let key = match self.version {
            CgroupVersion::One => "total_inactive_file",
            CgroupVersion::Two => "inactive_file",
        };
        let droppable = stat_field(&self.folder, key).unwrap_or(0);
        Some(usage.saturating_sub(droppable))
    }
}

fn number_in(file: &File) -> Option<u64> {
    let mut text = [0u8; 32];
    let len = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

fn stat_field(folder: &Path, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join("memory.stat")).ok()?;
    let line = text.lines().find(|line| {
        line.strip_prefix(key)
            .is_some_and(|rest| rest.starts_with(' '))
    })?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Decides which readings above the threshold count.
#[derive(Default)]
struct Crossings {
    is_above: bool,
    last: Option<Instant>,
}

impl Crossings {
    fn update(&mut self, pressure: &Pressure, now: Instant) -> bool {
        let Pressure {
            used_bytes,
            threshold_bytes,
            ..
        } = *pressure;
        if used_bytes < threshold_bytes / 20 * 19 {
            self.is_above = false;
        }
        if used_bytes < threshold_bytes || self.is_above {
            return false;
        }
        self.is_above = true;
        let is_too_soon = self.last.is_some_and(|last| now < last + MIN_PAUSE);
        if !is_too_soon {
            self.last = Some(now);
        }
        !is_too_soon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(used_bytes: u64) -> Pressure {
        Pressure {
            used_bytes,
            limit_bytes: 1000,
            threshold_bytes: 900,
        }
    }

    #[test]
    fn crossing_counts_once_until_usage_falls_and_ten_minutes_pass() {
        let mut crossings = Crossings::default();
        let start = Instant::now();
        let after = |minutes: u64| start + Duration::from_secs(60 * minutes);
        assert!(!crossings.update(&at(899), start));
        assert!(crossings.update(&at(900), start));
        assert!(!crossings.update(&at(990), after(1)));
        assert!(!crossings.update(&at(890), after(2)), "not clearly below");
        assert!(!crossings.update(&at(950), after(12)));
        assert!(!crossings.update(&at(100), after(13)));
        assert!(crossings.update(&at(950), after(14)));
        assert!(!crossings.update(&at(100), after(15)));
        assert!(!crossings.update(&at(950), after(16)), "too soon");
    }

    #[test]
    fn usage_without_page_cache_counts_in_both_versions() {
        let root = std::env::temp_dir().join(format!("heaptide-pressure-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("job/memory.max", "1000000\n");
        write("job/memory.current", "950000\n");
        write("job/memory.stat", "anon 5\ninactive_file 100000\nx 1\n");
        write("memory/job/memory.limit_in_bytes", "2000000\n");
        write("memory/job/memory.usage_in_bytes", "1900000\n");
        write(
            "memory/job/memory.stat",
            "inactive_file 7\ntotal_inactive_file 300000\n",
        );
        let root_text = root.to_str().unwrap();
        let two = Group::below(root_text, "0::/job\n").unwrap();
        assert_eq!(two.limit(), Some(1_000_000));
        assert_eq!(two.used_above(900_000), Some(850_000));
        assert_eq!(two.used_above(960_000), Some(950_000));
        let one = Group::below(root_text, "5:memory:/job\n").unwrap();
        assert_eq!(one.used_above(1_000_000), Some(1_600_000));
        assert!(Group::below(root_text, "5:memory:/other\n").is_none());
        std::fs::remove_dir_all(root).unwrap();
    }
}
