//! When the resident size is worth asking for.
//!
//! It changes only through page faults and system calls, and both take time. So a line that took less than half the
//! time of the cheapest page fault of this machine cannot have changed it, and the kernel is not asked: of a tight loop, a line costs a
//! look at the processor's counter. Longer lines are asked for always, so nothing is guessed.

use std::sync::OnceLock;

use heaptide_procfs as procfs;

use crate::host::resident::Resident;
use crate::host::sys;
use crate::record::clock;

/// What counts as the process's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Resident,
    /// Pages shared with other processes count in part.
    Proportional,
    /// Pages of this process alone.
    Unique,
}

type Ask = Box<dyn Fn() -> Option<u64>>;

pub struct Reader {
    ask: Ask,
    /// The last answer.
    pub bytes: i64,
    /// The processor's counter when the last event had been dealt with.
    marked: u64,
    /// Ticks of that counter in which nothing can have changed.
    quiet_ticks: u64,
    has_asked: bool,
}

impl Reader {
    pub fn new(backend: Backend) -> Reader {
        let ask: Ask = match backend {
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
            ask,
            bytes: 0,
            marked: clock::ticks(),
            quiet_ticks: *QUIET_TICKS.get_or_init(|| cheapest_fault() / 2),
            has_asked: false,
        }
    }

    /// A size that can change without the kernel's doing: asked for at every event.
    pub fn asking(ask: Ask) -> Reader {
        Reader {
            ask,
            bytes: 0,
            marked: 0,
            quiet_ticks: 0,
            has_asked: false,
        }
    }

    /// Asks.
    pub fn now(&mut self) -> i64 {
        if let Some(bytes) = (self.ask)() {
            self.bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        }
        self.has_asked = true;
        self.marked = clock::ticks();
        self.bytes
    }

    #[inline(always)]
    pub fn now_if_it_can_have_changed(&mut self) {
        self.has_asked = false;
        let now = clock::ticks();
        if now.wrapping_sub(self.marked) >= self.quiet_ticks {
            self.now();
        } else {
            self.marked = now;
        }
    }

    /// The event has been dealt with: time counts from here.
    #[inline(always)]
    pub fn mark(&mut self) {
        if self.has_asked {
            self.marked = clock::ticks();
        }
    }
}

static QUIET_TICKS: OnceLock<u64> = OnceLock::new();

/// Ticks of the cheapest of some page faults; 0 if there was none that can be told from an ordinary access, and then
/// every event is asked for.
fn cheapest_fault() -> u64 {
    const N_PAGES: usize = 32;
    /// So much longer than an access to memory that is there.
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
    // SAFETY: the advice concerns the mapping made above alone: one fault per page, not one for all.
    unsafe { libc::madvise(memory.cast(), N_PAGES * page_len, libc::MADV_NOHUGEPAGE) };
    let first: [u64; N_PAGES] = std::array::from_fn(touch);
    let access = (0..N_PAGES).map(touch).min().unwrap_or(0).max(1);
    // SAFETY: mapped above, with this length, and used by nobody else.
    unsafe { libc::munmap(memory.cast(), N_PAGES * page_len) };
    let faults = first
        .into_iter()
        .filter(|&ticks| ticks >= LEAST_RATIO * access);
    faults.min().unwrap_or(0)
}

/// The sum of some lines of the kernel's summary of the process's mappings, in bytes.
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

    #[test]
    fn size_is_asked_for_after_memory_was_touched() {
        // Other tests take and give back memory meanwhile: what counts is that somebody was asked.
        let mut reader = Reader {
            ask: Box::new(|| Some(4711)),
            ..Reader::new(Backend::Resident)
        };
        let block = vec![1u8; 1 << 20];
        reader.now_if_it_can_have_changed();
        assert_eq!(reader.bytes, 4711);
        drop(block);
    }

    #[test]
    fn resident_size_holds_what_was_touched() {
        let block = vec![1u8; 64 << 20];
        let with_block = Reader::new(Backend::Resident).now();
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
