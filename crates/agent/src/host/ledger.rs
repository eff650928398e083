//! The parts of the process's memory, read from the kernel and from the C library when recording starts and stops, never
//! during an event. Parts that are not available are left out.

use heaptide_capture::MemoryPart;
use heaptide_procfs::{self as procfs, kib_field};

use super::libc_heap::LibcHeap;

/// The anonymous resident memory when recording starts: a forked child has all of it from its parent.
pub fn at_start() -> Vec<(MemoryPart, u64)> {
    let status = procfs::status_text("self").unwrap_or_default();
    let bytes = kib_field(&status, "RssAnon");
    let part = |bytes| (MemoryPart::AnonymousAtStart, bytes);
    bytes.map(part).into_iter().collect()
}

/// The resident memory when recording stops, and the parts of it that the C library has allocated and keeps free.
pub fn at_end(own_mapped_bytes: u64) -> Vec<(MemoryPart, u64)> {
    let status = procfs::status_text("self").unwrap_or_default();
    // The kernel walks the page tables for this file, which only newer kernels have.
    let pages = procfs::rollup_text("self").unwrap_or_default();
    let shared = [
        kib_field(&pages, "Shared_Clean"),
        kib_field(&pages, "Shared_Dirty"),
    ];
    let heap = LibcHeap::read();
    let parts = [
        (MemoryPart::Anonymous, kib_field(&status, "RssAnon")),
        (MemoryPart::Files, kib_field(&status, "RssFile")),
        (MemoryPart::SharedMemory, kib_field(&status, "RssShmem")),
        (
            MemoryPart::SharedPages,
            shared.into_iter().flatten().reduce(|a, b| a + b),
        ),
        (
            MemoryPart::SharedAnonymous,
            kib_field(&pages, "Shared_Dirty"),
        ),
        (MemoryPart::LibcInUse, heap.as_ref().map(|heap| heap.in_use)),
        (MemoryPart::LibcFree, heap.as_ref().map(|heap| heap.free)),
        (MemoryPart::OwnMapped, Some(own_mapped_bytes)),
    ];
    let known = parts.into_iter();
    known
        .filter_map(|(part, bytes)| Some((part, bytes?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_this_process_are_plausible() {
        let block = vec![1u8; 8 << 20];
        let parts = at_end(0);
        let of = |wanted: MemoryPart| {
            let part = parts.iter().find(|(part, _)| *part == wanted);
            part.map(|&(_, bytes)| bytes)
        };
        let anonymous = of(MemoryPart::Anonymous).expect("every kernel reports it");
        assert!(anonymous >= block.len() as u64, "{anonymous}");
        if let Some(in_use) = of(MemoryPart::LibcInUse) {
            assert!(in_use >= block.len() as u64, "{in_use}");
        }
    }
}
