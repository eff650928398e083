//! Chooses the allocations that a sampled session records, and follows their blocks until they are freed.
//!
//! Samples fall on the stream of allocated bytes as a Poisson process: each thread counts down the bytes to its next
//! sample, and the distances are exponential. A block of `s` bytes is sampled with probability 1 - exp(-s / mean). Readers
//! need nothing else for unbiased sums.
//!
//! A release is recorded only if the block was sampled. The addresses of sampled blocks are in a table of sets of four
//! words, half a cache line each. The table is large and accessed at random, so every lookup would miss the cache. A
//! small array of counters, one for each neighbourhood of addresses, is checked first. Most blocks are not sampled, and
//! for them the check is one load of a byte that is usually in the cache.
//!
//! Runs on: any thread. Allocates: one mapping at the start. Locks: never. During fork/exit: the child's table is a copy.

use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering,
};

use crate::host::{own_memory, sys};
use crate::record::{clock, releases};

const WAYS: usize = 4;
/// Two million live samples; a session with more loses some, and counts them.
const MAX_ENTRIES: usize = 1 << 21;
const MIN_ENTRIES: usize = 1 << 16;

/// Number of counters. Each counts the followed blocks in some neighbourhoods of 256 bytes, about 16 MB apart.
const N_COUNTERS: usize = 1 << 16;
/// A counter with this value keeps it, because it may have counted more blocks than it can hold.
const FULL: u8 = u8::MAX;

/// Whether all counters were set to `FULL` because the mode has changed.
static SATURATED: AtomicBool = AtomicBool::new(false);
static COUNTERS: [AtomicU8; N_COUNTERS] = [const { AtomicU8::new(0) }; N_COUNTERS];
/// The wanted sampling distance; 0 if the session records every event.
static MEAN_BYTES: AtomicU64 = AtomicU64::new(0);
static TABLE: Table = Table::new();

/// The table of sampled blocks. A larger one may replace it while threads use it.
struct Table {
    /// The entries; null before the first table.
    memory: AtomicPtr<AtomicUsize>,
    /// Number of sets, a power of two, minus 1.
    mask: AtomicUsize,
}

impl Table {
    const fn new() -> Table {
        Table {
            memory: AtomicPtr::new(null_mut()),
            mask: AtomicUsize::new(0),
        }
    }

    /// Replaces the table by a larger one: its memory is stored before its mask.
    fn replace(&self, memory: *mut AtomicUsize, n_entries: usize) {
        self.memory.store(memory, Ordering::Release);
        self.mask.store(n_entries / WAYS - 1, Ordering::Release);
    }

    /// A mask, and the memory of the table of that mask or of a later one, which is larger: the mask is read first.
    /// In the opposite order, a thread could combine the mask of a later table with an earlier one, and leave its
    /// memory. A test replaces the table in `between`.
    #[inline(always)]
    fn mask_and_memory(&self, between: impl FnOnce()) -> (usize, *mut AtomicUsize) {
        let mask = self.mask.load(Ordering::Acquire);
        between();
        (mask, self.memory.load(Ordering::Acquire))
    }
}

/// One thread's countdown. Zero bytes are a valid start: the first allocation draws a distance.
///
/// Only its thread uses it, except that the end of a session resets it ([`Sampler::forget`]), and a thread in an old
/// hook may use it at the same time. If such a thread undoes a part of the reset, its first sample in the next
/// session may come late.
#[repr(C)]
pub struct Sampler {
    bytes_left: AtomicI64,
    random: AtomicU64,
    /// The sampling distance that the thread has adopted. 0 before it joined a session: then it takes the wanted one.
    mean: AtomicU64,
}

/// The sampling distance of a thread that records every event.
const EXACT_MEAN: u64 = u64::MAX;
/// A countdown that takes every allocation.
const TAKE_ALL: i64 = i64::MIN / 2;

impl Sampler {
    /// Adopts a sampling distance; 0 records every event.
    pub fn set_mean(&self, mean: u64) {
        if mean == 0 {
            self.bytes_left.store(TAKE_ALL, Ordering::Relaxed);
            self.mean.store(EXACT_MEAN, Ordering::Relaxed);
        } else if self.mean() != mean {
            self.mean.store(mean, Ordering::Relaxed);
            if self.random.load(Ordering::Relaxed) == 0 {
                self.seed();
            }
            self.bytes_left.store(self.distance(), Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn mean(&self) -> u64 {
        self.mean.load(Ordering::Relaxed)
    }

    /// Whether the thread has adopted a mode that records every event.
    #[inline(always)]
    pub fn is_exact(&self) -> bool {
        self.mean() == EXACT_MEAN
    }

    /// Whether the thread has adopted a sampled mode.
    #[inline(always)]
    pub fn is_sampling(&self) -> bool {
        !matches!(self.mean(), 0 | EXACT_MEAN)
    }

    fn seed(&self) {
        let seed = clock::ticks() ^ (std::ptr::from_ref(self) as u64).rotate_left(32) | 1;
        self.random.store(seed, Ordering::Relaxed);
    }

    /// Whether the allocation of `size` bytes is sampled.
    #[inline(always)]
    pub fn takes(&self, size: usize) -> bool {
        let left = self.bytes_left.load(Ordering::Relaxed);
        let left = left.wrapping_sub(size as i64);
        self.bytes_left.store(left, Ordering::Relaxed);
        left < 0 && self.draw(size)
    }

    /// Samples this allocation, in which the countdown reached zero, and draws the distance to the next one. The first
    /// allocation of a thread only starts the countdown, so it is not always sampled.
    #[cold]
    #[inline(never)]
    fn draw(&self, size: usize) -> bool {
        if self.mean() == 0 {
            let mean = match MEAN_BYTES.load(Ordering::Relaxed) {
                0 => EXACT_MEAN,
                mean => mean,
            };
            self.mean.store(mean, Ordering::Relaxed);
        }
        if self.is_exact() {
            self.bytes_left.store(TAKE_ALL, Ordering::Relaxed);
            return true;
        }
        let first = self.random.load(Ordering::Relaxed) == 0;
        if first {
            self.seed();
            let left = self.distance().wrapping_sub(size as i64);
            self.bytes_left.store(left, Ordering::Relaxed);
            if left >= 0 {
                return false;
            }
        }
        // Several samples may fall into one large block, which is recorded once. A Poisson process is memoryless, so the next
        // distance may start at the block's end.
        self.bytes_left.store(self.distance(), Ordering::Relaxed);
        true
    }

    /// Restarts the countdown: the next allocation draws a distance.
    pub fn forget(&self) {
        self.bytes_left.store(0, Ordering::Relaxed);
        self.random.store(0, Ordering::Relaxed);
        self.mean.store(0, Ordering::Relaxed);
    }

    /// An exponentially distributed number of bytes.
    fn distance(&self) -> i64 {
        // xorshift64*: good enough for choosing samples, with one word of state.
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.store(x, Ordering::Relaxed);
        let uniform =
            ((x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-uniform.ln() * self.mean() as f64) as i64
    }
}

/// Prepares for a session that samples every `mean_bytes` on average; 0 records every event. Returns `false` if there is no
/// memory for the table.
pub fn prepare(mean_bytes: u64) -> bool {
    releases::end();
    if !entries().is_empty() || SATURATED.swap(false, Ordering::Relaxed) {
        clear();
        for counter in &COUNTERS {
            // A forked child shares the pages that it does not write.
            if counter.load(Ordering::Relaxed) != 0 {
                counter.store(0, Ordering::Relaxed);
            }
        }
    }
    set_mean(mean_bytes);
    mean_bytes == 0 || make_table(mean_bytes)
}

/// Sets the wanted sampling distance; 0 records every event.
pub fn set_mean(mean_bytes: u64) {
    MEAN_BYTES.store(mean_bytes, Ordering::SeqCst);
}

/// Whether the wanted mode is a sampled one.
pub fn is_sampling() -> bool {
    MEAN_BYTES.load(Ordering::Relaxed) != 0
}

/// Sends every release of a hook for sampled sessions through [`must_note_release`], until the next session.
pub fn note_all_releases() {
    SATURATED.store(true, Ordering::Relaxed);
    for counter in &COUNTERS {
        counter.store(FULL, Ordering::Relaxed);
    }
}

/// Whether a release must be recorded, given that [`may_follow`] is true. Forgets the block.
pub fn must_note_release(address: usize) -> bool {
    if !is_sampling() {
        return true;
    }
    let is_followed = unfollow(address);
    releases::are_wanted() && releases::is_first(address) || is_followed
}

/// The number of entries that a table for this sampling distance needs.
fn entries_for(mean_bytes: u64) -> usize {
    let entries = physical_memory() / mean_bytes.max(1) * 4;
    (entries.clamp(MIN_ENTRIES as u64, MAX_ENTRIES as u64) as usize).next_power_of_two()
}

/// Whether the table is too small for this sampling distance. A larger one would not contain the blocks of the present one.
pub fn needs_larger_table(mean_bytes: u64) -> bool {
    entries().len() < entries_for(mean_bytes)
}

/// Maps a table for this sampling distance, unless there is one. Returns `false` if there is no memory for it.
pub fn make_table(mean_bytes: u64) -> bool {
    if !needs_larger_table(mean_bytes) {
        return true;
    }
    let n_entries = entries_for(mean_bytes);
    // A table that has become too small stays mapped: a thread may still use it.
    let table: *mut AtomicUsize = sys::map_private(n_entries * size_of::<usize>()).cast();
    if table.is_null() {
        return false;
    }
    own_memory::add(n_entries / 16);
    TABLE.replace(table, n_entries);
    true
}

/// The entries of the table.
fn entries() -> &'static [AtomicUsize] {
    let (mask, memory) = TABLE.mask_and_memory(|| {});
    if memory.is_null() {
        return &[];
    }
    // SAFETY: the memory has at least this many entries and is never unmapped.
    unsafe { std::slice::from_raw_parts(memory, (mask + 1) * WAYS) }
}

/// Forgets all blocks. Their counters keep their values.
pub fn clear() {
    for way in entries() {
        if way.load(Ordering::Relaxed) != 0 {
            way.store(0, Ordering::Relaxed);
        }
    }
}

fn physical_memory() -> u64 {
    // SAFETY: `sysconf` has no preconditions.
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
    let (mask, memory) = TABLE.mask_and_memory(|| {});
    if memory.is_null() {
        return None;
    }
    // Every bit of the address contributes to the highest bits of the product.
    let set = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & mask;
    // SAFETY: the memory has at least `mask + 1` sets, is page-aligned and is never unmapped.
    Some(unsafe { &*memory.add(set * WAYS).cast::<[AtomicUsize; WAYS]>() })
}

#[inline(always)]
fn counter_of(address: usize) -> &'static AtomicU8 {
    // Higher bits must contribute, because the heaps of threads begin at multiples of 64 MB.
    &COUNTERS[(address >> 8 ^ address >> 22) % N_COUNTERS]
}

/// Adds a sampled block to the table. Returns `false` if its set is full.
pub fn follow(address: usize) -> bool {
    let Some(set) = set_of(address) else {
        return false;
    };
    count(address, |n| n.saturating_add(1));
    let has_room = set.iter().any(|way| {
        way.compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
    if !has_room {
        count_out(address);
    }
    has_room
}

/// Whether the block may be a sampled one. Returns `false` for nearly all others.
#[inline(always)]
pub fn may_follow(address: usize) -> bool {
    // Relaxed is enough: a thread learns a block's address only after the block was counted.
    counter_of(address).load(Ordering::Relaxed) != 0
}

/// Whether the block was sampled. Forgets the block.
pub fn unfollow(address: usize) -> bool {
    may_follow(address)
        && set_of(address).is_some_and(|set| set.iter().any(|way| take_out(way, address)))
}

/// Removes an address from the table. Only the thread that removes it also updates the counter.
fn take_out(way: &AtomicUsize, address: usize) -> bool {
    let was_followed = way
        .compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok();
    if was_followed {
        count_out(address);
    }
    was_followed
}

fn count_out(address: usize) {
    count(address, |n| if n == FULL { n } else { n.saturating_sub(1) });
}

fn count(address: usize, change: impl Fn(u8) -> u8) {
    // The update cannot fail, because the closure always returns a value.
    let _ =
        counter_of(address).fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| Some(change(n)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_the_expected_frequency_and_blocks_are_followed_until_they_are_freed() {
        assert!(prepare(10_000));
        let sampler = Sampler {
            bytes_left: AtomicI64::new(0),
            random: AtomicU64::new(0),
            mean: AtomicU64::new(0),
        };
        let n_taken = (0..1_000_000).filter(|_| sampler.takes(100)).count();
        // 10 000 expected; four standard deviations are 400.
        assert!((9_600..10_400).contains(&n_taken), "{n_taken}");

        assert!(follow(0x1230));
        assert!(!unfollow(0x1240));
        assert!(unfollow(0x1230));
        assert!(!unfollow(0x1230));

        // Also when many blocks share a counter.
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

    #[test]
    fn mask_of_a_larger_table_is_never_combined_with_a_smaller_table() {
        // Nothing reads this memory.
        let (small, large) = (0x1000, 0x2000);
        let table = Table::new();
        table.replace(std::ptr::without_provenance_mut(small), MIN_ENTRIES);
        let (mask, memory) = table.mask_and_memory(|| {
            table.replace(std::ptr::without_provenance_mut(large), 2 * MIN_ENTRIES);
        });
        assert!(mask < MIN_ENTRIES / WAYS || memory as usize == large);
        let (mask, memory) = table.mask_and_memory(|| {});
        assert_eq!((mask + 1, memory as usize), (2 * MIN_ENTRIES / WAYS, large));
    }
}
