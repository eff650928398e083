//! Which allocations a sampled session records, and which blocks it then follows to their end.
//!
//! Samples fall on the stream of allocated bytes as a Poisson process: a thread counts down the bytes to its next
//! sample, and the distances are exponential. A block of `s` bytes is taken with probability 1 - exp(-s / mean), which
//! is all a reader needs for unbiased sums.
//!
//! A release is recorded only if the block was sampled. The addresses are kept in a table of sets of four words, one
//! half of a cache line. The table is large and looks fall all over it, so a small array of counters stands before it, by
//! neighbourhood of the address: telling that a block was *not* sampled, the usual case, is one look at a byte which
//! neighbours have brought into the cache already.
//!
//! Runs on: any thread. Allocates: one mapping at the start. Locks: never. During fork/exit: the child's table is a copy.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::host::{own_memory, sys};
use crate::record::clock;

const WAYS: usize = 4;
/// Two million live samples; a session that has more loses some and says so.
const MAX_ENTRIES: usize = 1 << 21;
const MIN_ENTRIES: usize = 1 << 16;

/// Counters before the table; each is of the followed blocks in 256 bytes of every 16 MB or so.
const N_COUNTERS: usize = 1 << 16;
/// A counter that got here stays here: some of its blocks are not in the count.
const FULL: u8 = u8::MAX;

static COUNTERS: [AtomicU8; N_COUNTERS] = [const { AtomicU8::new(0) }; N_COUNTERS];
static MEAN_BYTES: AtomicU64 = AtomicU64::new(0);
static TABLE: AtomicPtr<AtomicUsize> = AtomicPtr::new(null_mut());
/// Sets in the table minus 1; a power of two minus 1.
static SET_MASK: AtomicUsize = AtomicUsize::new(0);

/// One thread's countdown. Zero bytes are a valid beginning: the first allocation draws a distance.
#[repr(C)]
pub struct Sampler {
    bytes_left: i64,
    random: u64,
}

impl Sampler {
    /// Whether the allocation of `size` bytes is sampled.
    #[inline(always)]
    pub fn takes(&mut self, size: usize) -> bool {
        self.bytes_left -= size as i64;
        self.bytes_left < 0 && self.draw(size)
    }

    /// The countdown ran out within this allocation: samples it and draws the distance to the next one. The very
    /// first allocation of a thread only starts the countdown, so that it is not always taken.
    #[cold]
    #[inline(never)]
    fn draw(&mut self, size: usize) -> bool {
        let first = self.random == 0;
        if first {
            self.random = clock::ticks() ^ (std::ptr::from_mut(self) as u64).rotate_left(32) | 1;
            self.bytes_left = self.distance() - size as i64;
            if self.bytes_left >= 0 {
                return false;
            }
        }
        // Several samples may fall into one large block: it is recorded once. What follows has no memory.
        self.bytes_left = self.distance();
        true
    }

    /// Begins anew: the next allocation draws a distance.
    pub fn forget(&mut self) {
        (self.bytes_left, self.random) = (0, 0);
    }

    /// An exponentially distributed number of bytes.
    fn distance(&mut self) -> i64 {
        // xorshift64*: plenty for choosing samples, and no state but one word.
        let mut x = self.random;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random = x;
        let uniform =
            ((x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-uniform.ln() * MEAN_BYTES.load(Ordering::Relaxed) as f64) as i64
    }
}

/// Prepares for a session that samples every `mean_bytes` on average. `false`: no memory for the table.
pub fn prepare(mean_bytes: u64) -> bool {
    MEAN_BYTES.store(mean_bytes, Ordering::Relaxed);
    let memory = physical_memory();
    let entries =
        (memory / mean_bytes.max(1) * 4).clamp(MIN_ENTRIES as u64, MAX_ENTRIES as u64) as usize;
    let entries = entries.next_power_of_two();
    let table = TABLE.load(Ordering::Acquire);
    let present = (SET_MASK.load(Ordering::Acquire) + 1) * WAYS;
    if !table.is_null() {
        for i in 0..present {
            // SAFETY: `i` lies within the table, which is never unmapped.
            let way = unsafe { &*table.add(i) };
            let address = way.load(Ordering::Relaxed);
            if address != 0 {
                take_out(way, address);
            }
        }
        if present >= entries {
            return true;
        }
    }
    // A table that has become too small stays mapped: a thread may still be looking at it.
    let table: *mut AtomicUsize = sys::map_private(entries * size_of::<usize>()).cast();
    if table.is_null() {
        return false;
    }
    own_memory::add(entries / 16);
    // Table before mask: a thread that sees only the new table stays within it.
    TABLE.store(table, Ordering::Release);
    SET_MASK.store(entries / WAYS - 1, Ordering::Release);
    true
}

fn physical_memory() -> u64 {
    // SAFETY: no preconditions.
    let (pages, page) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    (pages.max(0) as u64).saturating_mul(page.max(0) as u64)
}

#[inline(always)]
fn set_of(address: usize) -> Option<&'static [AtomicUsize; WAYS]> {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        return None;
    }
    // The product's highest bits, which every bit of the address has a part in.
    let set =
        (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & SET_MASK.load(Ordering::Relaxed);
    // SAFETY: the mask keeps the set within the table, which is never unmapped and aligned to a page.
    Some(unsafe { &*table.add(set * WAYS).cast::<[AtomicUsize; WAYS]>() })
}

#[inline(always)]
fn counter_of(address: usize) -> &'static AtomicU8 {
    // Higher bits, too: the heaps of threads begin at multiples of 64 MB.
    &COUNTERS[(address >> 8 ^ address >> 22) % N_COUNTERS]
}

/// Remembers a sampled block. `false`: no place for it.
pub fn follow(address: usize) -> bool {
    let Some(set) = set_of(address) else {
        return false;
    };
    count(address, |n| n.saturating_add(1));
    let has_place = set.iter().any(|way| {
        way.compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
    if !has_place {
        count_out(address);
    }
    has_place
}

/// Whether the block may be among the sampled ones; of nearly all others it says that they are not.
#[inline(always)]
pub fn may_follow(address: usize) -> bool {
    // What a thread knows of a block's address came to it after the block was counted.
    counter_of(address).load(Ordering::Relaxed) != 0
}

/// Whether the block was sampled; it is forgotten with the question.
pub fn unfollow(address: usize) -> bool {
    may_follow(address)
        && set_of(address).is_some_and(|set| set.iter().any(|way| take_out(way, address)))
}

/// Whoever takes an address out of the table takes it out of the count as well, and nobody else does.
fn take_out(way: &AtomicUsize, address: usize) -> bool {
    let is_there = way
        .compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok();
    if is_there {
        count_out(address);
    }
    is_there
}

fn count_out(address: usize) {
    count(address, |n| if n == FULL { n } else { n.saturating_sub(1) });
}

fn count(address: usize, change: impl Fn(u8) -> u8) {
    // An update that always has a new value cannot fail.
    let _ =
        counter_of(address).fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| Some(change(n)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_as_frequent_as_their_mean_says_and_blocks_are_followed_to_their_end() {
        assert!(prepare(10_000));
        let mut sampler = Sampler {
            bytes_left: 0,
            random: 0,
        };
        let n_taken = (0..1_000_000).filter(|_| sampler.takes(100)).count();
        // 10 000 expected; four standard deviations are 400.
        assert!((9_600..10_400).contains(&n_taken), "{n_taken}");

        assert!(follow(0x1230));
        assert!(!unfollow(0x1240));
        assert!(unfollow(0x1230));
        assert!(!unfollow(0x1230));

        // However many share a counter.
        let addresses: Vec<usize> = (1..=600).map(|i| i << 44 | 0x7000).collect();
        let shared = counter_of(addresses[0]);
        assert!(
            addresses
                .iter()
                .all(|&it| std::ptr::eq(counter_of(it), shared))
        );
        let followed: Vec<usize> = addresses.into_iter().filter(|&it| follow(it)).collect();
        assert!(followed.len() > 300, "{}", followed.len());
        for &address in &followed {
            assert!(may_follow(address) && unfollow(address));
            assert!(!unfollow(address));
        }
    }
}
