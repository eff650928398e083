//! The heap of the C library, as glibc's `mallinfo2` describes it, and the part of its free bytes that is resident. glibc
//! before 2.33 and musl do not have that function.

use heaptide_procfs::ResidentMapping;

/// glibc's `struct mallinfo2`.
#[repr(C)]
struct Mallinfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// Bytes of the C library's heap. They are address space: neither used nor free bytes need be resident.
#[derive(Clone, Copy)]
pub struct LibcHeap {
    /// The arenas: used and free bytes, without mappings of single blocks.
    pub arenas: u64,
    pub arenas_in_use: u64,
    /// Allocated by the program: in the arenas, and in mappings of single blocks.
    pub in_use: u64,
    /// Free in the arenas, and kept for later allocations.
    pub free: u64,
}

impl LibcHeap {
    /// Reads the sums. The C library takes the locks of its heaps one after the other, as `malloc` does.
    pub fn read() -> Option<LibcHeap> {
        // SAFETY: the name is a C string, and `dlsym` has no other precondition.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        if address.is_null() {
            return None;
        }
        // SAFETY: glibc and the allocators that replace it declare a function of this name alike: it takes nothing and returns
        // this struct by value.
        let mallinfo2: extern "C" fn() -> Mallinfo2 = unsafe { std::mem::transmute(address) };
        let info = mallinfo2();
        Some(LibcHeap {
            arenas: info.arena as u64,
            arenas_in_use: info.uordblks as u64,
            in_use: info.uordblks as u64 + info.hblkhd as u64,
            free: info.fordblks as u64,
        })
    }

    /// Returns the free bytes that are certainly resident. Assumes that all used bytes of the arenas are resident, and
    /// all bytes that another library has mapped: `arenas.mapped` may include such bytes.
    pub fn resident_free(&self, arenas: &ArenaPages) -> u64 {
        let foreign = arenas.mapped.saturating_sub(self.arenas);
        let certain = arenas.resident.saturating_sub(foreign);
        certain.saturating_sub(self.arenas_in_use).min(self.free)
    }
}

/// The mappings of the C library's arenas. A mapping of unknown shape is left out, so both sums may be too small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaPages {
    pub mapped: u64,
    pub resident: u64,
}

/// glibc aligns the heaps of all arenas but the main one to this many bytes. It reserves this many bytes for each and makes
/// the used part accessible.
const HEAP_BYTES: u64 = 64 << 20;

/// Finds the arenas among the mappings of this process, which come in the order of their addresses.
#[derive(Default)]
pub struct ArenaFinder {
    pages: ArenaPages,
    /// A mapping that may be the used part of heaps, if the reserved part follows.
    candidate: Option<ResidentMapping>,
}

impl ArenaFinder {
    pub fn visit(&mut self, mapping: &ResidentMapping) {
        if let Some(heaps) = self.candidate.take() {
            let end = heaps.end.next_multiple_of(HEAP_BYTES);
            let is_reserved =
                mapping.is_inaccessible && mapping.start == heaps.end && mapping.end >= end;
            if is_reserved || heaps.end == end {
                self.add(&heaps);
            }
        }
        if mapping.path == "[heap]" {
            self.add(mapping);
        } else if mapping.path.is_empty() && mapping.is_writable && are_heaps(mapping) {
            self.candidate = Some(mapping.clone());
        }
    }

    pub fn finish(self) -> ArenaPages {
        self.pages
    }

    fn add(&mut self, mapping: &ResidentMapping) {
        self.pages.mapped += mapping.end - mapping.start;
        self.pages.resident += mapping.resident;
    }
}

/// Whether every aligned part of the mapping begins like a heap of glibc. Neighbouring heaps may share one mapping.
fn are_heaps(mapping: &ResidentMapping) -> bool {
    mapping.start % HEAP_BYTES == 0
        && (mapping.start..mapping.end)
            .step_by(HEAP_BYTES as usize)
            .all(|start| {
                // The arena, the arena's previous heap, the bytes in use, the accessible bytes.
                let [arena, previous, size, accessible] = read_words(start).unwrap_or_default();
                arena != 0
                    && previous % HEAP_BYTES == 0
                    && size > 0
                    && size <= accessible
                    && accessible <= HEAP_BYTES
                    && accessible % 4096 == 0
            })
}

/// Reads memory that another thread may unmap at any time.
fn read_words(address: u64) -> Option<[u64; 4]> {
    let mut words = [0u64; 4];
    let local = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(&words),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: size_of_val(&words),
    };
    // SAFETY: the local vector describes a live array; the kernel checks the remote address and returns an error if it is
    // not mapped.
    let n_read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (n_read == size_of_val(&words) as isize).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heap(arenas: u64, in_use: u64) -> LibcHeap {
        LibcHeap {
            arenas,
            arenas_in_use: in_use,
            in_use,
            free: arenas - in_use,
        }
    }

    #[test]
    fn only_resident_bytes_beyond_the_used_ones_are_certainly_free() {
        let pages = |mapped, resident| ArenaPages { mapped, resident };
        assert_eq!(heap(100, 30).resident_free(&pages(100, 100)), 70);
        assert_eq!(heap(100, 30).resident_free(&pages(100, 50)), 20);
        assert_eq!(heap(100, 30).resident_free(&pages(100, 10)), 0);
        // Ten bytes of the mapping belong to another library and may be resident.
        assert_eq!(heap(100, 30).resident_free(&pages(110, 100)), 60);
        assert_eq!(heap(100, 30).resident_free(&pages(0, 0)), 0);
    }

    #[test]
    fn arena_of_a_thread_is_found_with_its_touched_pages() {
        const N: usize = 400;
        let thread = std::thread::spawn(|| {
            // Smaller than the size from which libc maps each block.
            let blocks: Vec<Vec<u8>> = (0..N).map(|_| vec![1u8; 100_000]).collect();
            let mut finder = ArenaFinder::default();
            let mapped = heaptide_procfs::resident_mappings("self", |it| finder.visit(it));
            drop(blocks);
            mapped.map(|()| finder.finish())
        });
        let pages = thread.join().expect("no panic").expect("smaps");
        if LibcHeap::read().is_some() {
            assert!(pages.resident >= N as u64 * 100_000, "{pages:?}");
            assert!(pages.resident <= pages.mapped, "{pages:?}");
        }
    }
}
