//! Decides when to read the resident size.
//!
//! The size changes only through page faults and system calls, and both take time. A line that took less than half the time
//! of the cheapest page fault on this machine cannot have changed the size, so the size is not read. A line of a tight loop
//! costs only one read of the processor's counter. After longer lines the size is always read, so all values are exact.

use std::sync::OnceLock;

use heaptide_procfs as procfs;

use crate::host::resident::Resident;
use crate::host::sys;
use crate::record::clock;

/// The pages that count as the process's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Resident,
    /// Pages shared with other processes count in part.
    Proportional,
    /// Only pages that no other process shares.
    Unique,
}

type Query = Box<dyn Fn() -> Option<u64>>;

pub struct Reader {
    query: Query,
    /// The last size that was read.
    pub bytes: i64,
    /// The processor's counter at the end of the last event.
    marked: u64,
    /// Ticks of that counter in which the size cannot change.
    quiet_ticks: u64,
    has_read: bool,
}

impl Reader {
    pub fn new(backend: Backend) -> Reader {
        let query: Query = match backend {
            Backend::Resident => {
                let resident = Resident::open();
                Box::new(move || resident.bytes())
            }
            Backend::Proportional => Box::new(|| rollup(&["Pss:"])),
            Backend::Unique => {
                Box::new(|| rollup(&["Private_Clean:", "Private_Dirty:", "Private_Hugetlb:"]))
            }
        };
        Reader {
            query,
            bytes: 0,
            marked: clock::ticks(),
            quiet_ticks: *QUIET_TICKS.get_or_init(|| cheapest_fault() / 2),
            has_read: false,
        }
    }

    /// Returns a reader that reads the size at every event, for sizes that can change without the kernel.
    pub fn always(query: Query) -> Reader {
        Reader {
            query,
            bytes: 0,
            marked: 0,
            quiet_ticks: 0,
            has_read: false,
        }
    }

    /// Reads the size.
    pub fn read(&mut self) -> i64 {
        if let Some(bytes) = (self.query)() {
            self.bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        }
        self.has_read = true;
        self.marked = clock::ticks();
        self.bytes
    }

    #[inline(always)]
    pub fn read_if_it_may_have_changed(&mut self) {
        self.has_read = false;
        let now = clock::ticks();
        if now.wrapping_sub(self.marked) >= self.quiet_ticks {
            self.read();
        } else {
            self.marked = now;
        }
    }

    /// Marks the end of an event, at which the time of the next line begins.
    #[inline(always)]
    pub fn mark(&mut self) {
        if self.has_read {
            self.marked = clock::ticks();
        }
    }
}

static QUIET_TICKS: OnceLock<u64> = OnceLock::new();

/// Returns the ticks of the cheapest of some page faults; 0 if none differs from an ordinary access. Then the size is read
/// at every event.
fn cheapest_fault() -> u64 {
    const N_PAGES: usize = 32;
    /// A fault takes at least this many times as long as an access to a present page.
    const LEAST_RATIO: u64 = 6;
    let page_len = usize::try_from(sys::page_len()).unwrap_or(4096);
    let memory = sys::map_private(N_PAGES * page_len);
    if memory.is_null() {
        return 0;
    }
    let touch = |page: usize| {
        let before = clock::ticks();
        // SAFETY: the mapping is private, writable, and this long.
        unsafe { memory.add(page * page_len).write_volatile(1) };
        clock::ticks().wrapping_sub(before)
    };
    // SAFETY: the advice concerns only the mapping made above: one fault per page, not one for all.
    unsafe { libc::madvise(memory.cast(), N_PAGES * page_len, libc::MADV_NOHUGEPAGE) };
    let first: [u64; N_PAGES] = std::array::from_fn(touch);
    let access = (0..N_PAGES).map(touch).min().unwrap_or(0).max(1);
    // SAFETY: mapped above with this length, and nothing refers to it any more.
    unsafe { libc::munmap(memory.cast(), N_PAGES * page_len) };
    let faults = first
        .into_iter()
        .filter(|&ticks| ticks >= LEAST_RATIO * access);
    faults.min().unwrap_or(0)
}

/// Returns the sum of some lines of `/proc/self/smaps_rollup`, in bytes.
fn rollup(names: &[&str]) -> Option<u64> {
    Some(sum_of(&procfs::rollup_text("self").ok()?, names))
}

fn sum_of(text: &str, names: &[&str]) -> u64 {
    let number = |line: &str| {
        let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
        let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    };
    text.lines().filter_map(number).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader of a constant, because other tests allocate and free memory meanwhile.
    fn reader(quiet_ticks: u64) -> Reader {
        Reader {
            query: Box::new(|| Some(4711)),
            quiet_ticks,
            ..Reader::new(Backend::Resident)
        }
    }

    #[test]
    fn size_is_read_after_memory_was_touched() {
        let mut reader = reader(*QUIET_TICKS.get_or_init(|| cheapest_fault() / 2));
        let block = vec![1u8; 1 << 20];
        reader.read_if_it_may_have_changed();
        assert_eq!(reader.bytes, 4711);
        drop(block);
    }

    #[test]
    fn size_is_not_read_after_a_short_line() {
        let mut short = reader(u64::MAX / 2);
        short.read_if_it_may_have_changed();
        assert_eq!((short.bytes, short.has_read), (0, false));
        let mut long = reader(1000);
        long.marked = clock::ticks().wrapping_sub(1000);
        long.read_if_it_may_have_changed();
        assert_eq!((long.bytes, long.has_read), (4711, true));
    }

    #[test]
    fn resident_size_includes_touched_memory() {
        let block = vec![1u8; 64 << 20];
        let with_block = Reader::new(Backend::Resident).read();
        assert!(with_block > 64 << 20, "{with_block}");
        drop(block);
    }

    #[test]
    fn unique_size_is_the_sum_of_private_pages() {
        let text = "Rss:  100 kB\nPss:  7 kB\nPss_Dirty: 3 kB\nPrivate_Clean: 4 kB\nPrivate_Dirty:   8 kB\n";
        assert_eq!(sum_of(text, &["Pss:"]), 7 << 10);
        assert_eq!(
            sum_of(text, &["Private_Clean:", "Private_Dirty:"]),
            12 << 10
        );
    }
}
