//! The parts of the process's memory, read from the kernel and from the C library when recording starts and stops, never
//! during an event. Parts that are not available are left out.

use std::ops::Range;

use heaptide_capture::MemoryPart;
use heaptide_procfs::{self as procfs, kib_field};

use super::libc_heap::{ArenaFinder, ArenaPages, LibcHeap};
use super::own_memory;

/// The anonymous resident memory when recording starts: a forked child has all of it from its parent.
pub fn at_start() -> Vec<(MemoryPart, u64)> {
    let status = procfs::status_text("self").unwrap_or_default();
    let bytes = kib_field(&status, "RssAnon");
    let part = |bytes| (MemoryPart::AnonymousAtStart, bytes);
    bytes.map(part).into_iter().collect()
}

/// The resident memory when recording stops, and parts of it. `own_ranges` are the mappings of the capture.
pub fn at_end(own_ranges: &[Range<u64>]) -> Vec<(MemoryPart, u64)> {
    let heap = LibcHeap::read();
    let pages = Pages::read(own_ranges);
    let status = procfs::status_text("self").unwrap_or_default();
    let of_pages = |bytes: fn(&Pages) -> u64| pages.as_ref().map(bytes);
    let parts = [
        (MemoryPart::Anonymous, kib_field(&status, "RssAnon")),
        (MemoryPart::Files, kib_field(&status, "RssFile")),
        (MemoryPart::SharedMemory, kib_field(&status, "RssShmem")),
        (MemoryPart::SharedPages, of_pages(|pages| pages.shared)),
        (
            MemoryPart::SharedAnonymous,
            of_pages(|pages| pages.shared_dirty),
        ),
        (MemoryPart::LibcInUse, heap.map(|heap| heap.in_use)),
        (MemoryPart::LibcFree, heap.map(|heap| heap.free)),
        (
            MemoryPart::LibcFreeResident,
            heap.zip(pages.as_ref())
                .map(|(heap, pages)| heap.resident_free(&pages.arenas)),
        ),
        (MemoryPart::OwnMapped, of_pages(|pages| pages.own)),
        (MemoryPart::OwnHeap, Some(own_memory::bytes() as u64)),
    ];
    let known = parts.into_iter();
    known
        .filter_map(|(part, bytes)| Some((part, bytes?)))
        .collect()
}

/// Resident bytes of some of the mappings.
struct Pages {
    /// Bytes shared with another process, and the part of them that is not in unmodified pages of files.
    shared: u64,
    shared_dirty: u64,
    own: u64,
    arenas: ArenaPages,
}

impl Pages {
    fn read(own_ranges: &[Range<u64>]) -> Option<Pages> {
        let (mut shared, mut shared_dirty, mut own) = (0, 0, 0);
        let mut arenas = ArenaFinder::default();
        procfs::resident_mappings("self", |mapping| {
            shared += mapping.shared_clean + mapping.shared_dirty;
            shared_dirty += mapping.shared_dirty;
            // The kernel joins only mappings of the same file.
            if own_ranges.iter().any(|own| own.contains(&mapping.start)) {
                own += mapping.resident;
            }
            arenas.visit(mapping);
        })
        .ok()?;
        Some(Pages {
            shared,
            shared_dirty,
            own,
            arenas: arenas.finish(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_parts_of_this_process_are_plausible() {
        let block = vec![1u8; 8 << 20];
        let parts = at_end(&[]);
        let of = |wanted: MemoryPart| {
            let part = parts.iter().find(|(part, _)| *part == wanted);
            part.map(|&(_, bytes)| bytes)
        };
        let anonymous = of(MemoryPart::Anonymous).expect("every kernel reports it");
        assert!(anonymous >= block.len() as u64, "{anonymous}");
        if let Some(in_use) = of(MemoryPart::LibcInUse) {
            assert!(in_use >= block.len() as u64, "{in_use}");
            let free = of(MemoryPart::LibcFreeResident).expect("a kernel with smaps");
            assert!(free <= of(MemoryPart::LibcFree).unwrap_or(0), "{free}");
            assert!(free <= anonymous, "{free}");
        }
    }
}
