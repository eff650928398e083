//! Splits the resident memory of a process at the end into parts, from the blocks of the capture and the numbers of the
//! kernel and libc.

use heaptide_capture::{Allocator, MemoryPart, Registry};
use heaptide_tally::MAX_PYMALLOC_BYTES;

use crate::load::Process;
use crate::model::{Ledger, Stopped};

/// `None` if the recording did not end normally, if it failed before the process ended, or if the kernel did not report the
/// sizes. After a failure the live blocks are those of an earlier moment than the resident size.
pub fn ledger(process: &Process) -> Option<Ledger> {
    if Stopped::of(&process.registry).is_some() {
        return None;
    }
    let live = |is_counted: fn(Allocator) -> bool| {
        let sites = process.sums.sites.iter();
        let sites = sites.filter(|site| is_counted(site.allocator));
        sites
            .map(|site| site.live.bytes)
            .fold(0, u64::saturating_add)
    };
    let python = live(Allocator::is_pythons);
    let live = LiveBytes {
        python,
        python_in_libc: python_in_libc(process, python),
        mapped: live(Allocator::is_range),
        native: live(|it| !it.is_pythons() && !it.is_range()),
    };
    let mut ledger = break_down(&process.registry, live)?;
    ledger.pid = process.header.pid;
    Some(ledger)
}

/// Bytes of live blocks at the end. Blocks are address space and need not be resident.
#[derive(Clone, Copy, Debug, Default)]
struct LiveBytes {
    python: u64,
    /// The part of `python` that libc counts among its blocks.
    python_in_libc: u64,
    mapped: u64,
    native: u64,
}

/// Divides the resident memory. Measured parts are subtracted first, and blocks share the rest. If they do not fit, the
/// largest sums are reduced, because untouched memory usually belongs to a few large blocks.
fn break_down(registry: &Registry, live: LiveBytes) -> Option<Ledger> {
    let part = |part: MemoryPart| registry.memory.get(&part).copied();
    let known = |wanted: MemoryPart| part(wanted).unwrap_or(0);
    let resident_bytes = resident_at_end(registry)?;
    let mut files = known(MemoryPart::Files).saturating_add(known(MemoryPart::SharedMemory));
    let mut left = resident_bytes - files;
    let own_mapped = take(&mut files, known(MemoryPart::OwnMapped));
    // A capture of an older release has only the peak of own heap and own mappings together.
    let own_heap = part(MemoryPart::OwnHeap).unwrap_or_else(|| {
        let own_mapped = known(MemoryPart::OwnMapped);
        registry.own_memory.saturating_sub(own_mapped)
    });
    let known_in_libc = [live.native, live.python_in_libc, own_heap];
    let known_in_libc = known_in_libc.into_iter().fold(0, u64::saturating_add);
    let earlier = known(MemoryPart::LibcInUse).saturating_sub(known_in_libc);

    let own_heap = take(&mut left, own_heap);
    let measured_free = part(MemoryPart::LibcFreeResident);
    let measured = measured_free.map(|free| take(&mut left, free));
    let blocks = [live.python, live.mapped, live.native, earlier];
    let resident_blocks = cut_largest(blocks, left);
    for bytes in resident_blocks {
        left -= bytes;
    }
    let [python_bytes, mapped_bytes, native_bytes, earlier_bytes] = resident_blocks;
    let libc_free_bytes = measured.unwrap_or_else(|| take(&mut left, known(MemoryPart::LibcFree)));
    let all = |parts: [u64; 4]| parts.into_iter().fold(0, u64::saturating_add);
    Some(Ledger {
        pid: 0,
        resident_bytes,
        python_bytes,
        mapped_bytes,
        native_bytes,
        earlier_bytes,
        libc_free_bytes,
        is_libc_free_measured: measured.is_some(),
        files_bytes: files,
        own_bytes: own_heap + own_mapped,
        unexplained_bytes: left,
        not_resident_bytes: all(blocks) - all(resident_blocks),
    })
}

/// Takes up to `wanted` bytes from `left`.
fn take(left: &mut u64, wanted: u64) -> u64 {
    let taken = wanted.min(*left);
    *left -= taken;
    taken
}

/// Reduces the largest sums to a common value, so that their total is at most `room`.
fn cut_largest(mut sums: [u64; 4], mut room: u64) -> [u64; 4] {
    let mut order = [0, 1, 2, 3];
    order.sort_by_key(|&at| sums[at]);
    for (n_done, at) in order.into_iter().enumerate() {
        let share = room / (sums.len() - n_done) as u64;
        // The last sum takes the remainder of the divisions.
        sums[at] = sums[at].min(share);
        room -= sums[at];
    }
    sums
}

/// The resident size when the recording ended; `None` if it did not end normally.
fn resident_at_end(registry: &Registry) -> Option<u64> {
    let part = |part: MemoryPart| registry.memory.get(&part).copied();
    let anonymous = part(MemoryPart::Anonymous)?;
    let files = part(MemoryPart::Files).unwrap_or(0);
    let shared = part(MemoryPart::SharedMemory).unwrap_or(0);
    Some(anonymous.saturating_add(files).saturating_add(shared))
}

/// The largest resident size. The size at the end counts also, because the process may have grown after the last sample.
pub fn resident_peak(registry: &Registry) -> Option<u64> {
    let samples = registry.resident.iter().map(|sample| sample.bytes);
    samples.chain(resident_at_end(registry)).max()
}

/// Heaptide's own memory when the resident size was largest; `None` in captures of older releases.
pub fn own_at_resident_peak(registry: &Registry) -> Option<u64> {
    let own = registry.memory.get(&MemoryPart::OwnAtResidentPeak);
    own.copied()
}

/// The part of Python's live blocks that Python's allocator takes from libc.
fn python_in_libc(process: &Process, python_bytes: u64) -> u64 {
    match process.header.python_allocator.as_str() {
        "malloc" | "malloc_debug" => python_bytes,
        "mimalloc" | "mimalloc_debug" => 0,
        _ => process
            .sums
            .large_python_bytes
            .unwrap_or_else(|| at_sites_of_large_blocks(process)),
    }
}

/// Python's live blocks at sites whose blocks are on average too large for pymalloc: an estimate, because one site may
/// have small and large blocks.
fn at_sites_of_large_blocks(process: &Process) -> u64 {
    let sites = process.sums.sites.iter();
    let sites = sites.filter(|site| site.allocator.is_pythons());
    let large =
        sites.filter(|site| site.live.bytes > MAX_PYMALLOC_BYTES.saturating_mul(site.live.count));
    large
        .map(|site| site.live.bytes)
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARTS: [MemoryPart; 9] = [
        MemoryPart::Anonymous,
        MemoryPart::Files,
        MemoryPart::SharedMemory,
        MemoryPart::LibcInUse,
        MemoryPart::LibcFree,
        MemoryPart::OwnMapped,
        MemoryPart::OwnHeap,
        MemoryPart::LibcFreeResident,
        MemoryPart::AnonymousAtStart,
    ];

    /// Generates small numbers, which are often equal, sizes of real programs, and any other number.
    fn bytes() -> impl Strategy<Value = u64> {
        prop_oneof![0..4u64, 0..(1u64 << 34), any::<u64>()]
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_resident_size_whatever_was_recorded(
            parts in proptest::collection::btree_map(proptest::sample::select(&PARTS[..]), bytes(), 0..9),
            anonymous in bytes(),
            own_memory in bytes(),
            (python, python_in_libc, mapped, native) in (bytes(), bytes(), bytes(), bytes()),
        ) {
            let mut registry = Registry::new(0);
            registry.own_memory = own_memory;
            registry.memory = parts;
            registry.memory.insert(MemoryPart::Anonymous, anonymous);
            let live = LiveBytes { python, python_in_libc, mapped, native };
            let ledger = break_down(&registry, live).expect("a resident size");
            let parts = [
                ledger.python_bytes,
                ledger.mapped_bytes,
                ledger.native_bytes,
                ledger.earlier_bytes,
                ledger.libc_free_bytes,
                ledger.files_bytes,
                ledger.own_bytes,
                ledger.unexplained_bytes,
            ];
            prop_assert!(parts.iter().all(|&part| part <= ledger.resident_bytes));
            let sum: u128 = parts.into_iter().map(u128::from).sum();
            prop_assert_eq!(sum, u128::from(ledger.resident_bytes));
        }
    }

    #[test]
    fn untouched_memory_is_cut_from_the_largest_sum() {
        assert_eq!(cut_largest([5, 1000, 10, 2], 40), [5, 23, 10, 2]);
        assert_eq!(cut_largest([5, 30, 10, 2], 40), [5, 23, 10, 2]);
        assert_eq!(cut_largest([5, 6, 7, 8], 40), [5, 6, 7, 8]);
        assert_eq!(cut_largest([7, 7, 7, 7], 10), [2, 2, 3, 3]);
        assert_eq!(cut_largest([u64::MAX; 4], 0), [0; 4]);
    }
}
