//! Where the process's memory is, asked of the kernel and of libc when recording begins and ends: never on the way of an
//! allocation. What cannot be had is left out.

use heaptide_capture::MemoryPart;
use heaptide_procfs::{self as procfs, kib_field};

use super::libc_heap::LibcHeap;

/// What is resident when recording begins: a child of a fork has all of it from its parent.
pub fn at_start() -> Vec<(MemoryPart, u64)> {
    let status = procfs::status_text("self").unwrap_or_default();
    let bytes = kib_field(&status, "RssAnon");
    let part = |bytes| (MemoryPart::AnonymousAtStart, bytes);
    bytes.map(part).into_iter().collect()
}

/// What is resident when it ends, and how much of its memory libc has given out and keeps.
pub fn at_end(own_mapped_bytes: u64) -> Vec<(MemoryPart, u64)> {
    let status = procfs::status_text("self").unwrap_or_default();
    // Walks the page tables once; only newer kernels have it.
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
        let anonymous = of(MemoryPart::Anonymous).expect("every kernel says it");
        assert!(anonymous >= block.len() as u64, "{anonymous}");
        if let Some(in_use) = of(MemoryPart::LibcInUse) {
            assert!(in_use >= block.len() as u64, "{in_use}");
        }
    }
}
