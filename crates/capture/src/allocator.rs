//! The functions whose calls are recorded, under the names that reports print.

use crate::numbered::numbered;

numbered! {
    /// The function that allocated a block.
    pub enum Allocator {
        Malloc = 1,
        Calloc = 2,
        Realloc = 3,
        Reallocarray = 4,
        PosixMemalign = 5,
        AlignedAlloc = 6,
        Memalign = 7,
        Valloc = 8,
        Pvalloc = 9,
        /// Anonymous memory from the kernel.
        Mmap = 10,
        /// A mapping of a file: address space whose pages belong to the page cache.
        MmapFile = 11,
        /// A mapping after the kernel resized or moved it.
        Mremap = 12,
        /// Python's allocators, in all three domains (raw, mem, object).
        PymallocMalloc = 16,
        PymallocCalloc = 17,
        PymallocRealloc = 18,
    }
}

impl Allocator {
    /// Whether it is one of Python's own allocators.
    #[inline]
    pub fn is_pythons(self) -> bool {
        self as u8 >= Allocator::PymallocMalloc as u8
    }

    pub fn name(self) -> &'static str {
        match self {
            Allocator::Malloc => "MALLOC",
            Allocator::Calloc => "CALLOC",
            Allocator::Realloc => "REALLOC",
            Allocator::Reallocarray => "REALLOCARRAY",
            Allocator::PosixMemalign => "POSIX_MEMALIGN",
            Allocator::AlignedAlloc => "ALIGNED_ALLOC",
            Allocator::Memalign => "MEMALIGN",
            Allocator::Valloc => "VALLOC",
            Allocator::Pvalloc => "PVALLOC",
            Allocator::Mmap => "MMAP",
            Allocator::MmapFile => "MMAP_FILE",
            Allocator::Mremap => "MREMAP",
            Allocator::PymallocMalloc => "PYMALLOC_MALLOC",
            Allocator::PymallocCalloc => "PYMALLOC_CALLOC",
            Allocator::PymallocRealloc => "PYMALLOC_REALLOC",
        }
    }

    /// Returns whether its blocks are address ranges, which can be freed in part.
    #[inline(always)]
    pub fn is_range(self) -> bool {
        matches!(
            self,
            Allocator::Mmap | Allocator::MmapFile | Allocator::Mremap
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allocator_is_found_by_its_number() {
        for allocator in Allocator::ALL {
            assert_eq!(Allocator::from_number(allocator as u8), Some(allocator));
        }
        assert_eq!(Allocator::from_number(0), None);
        assert_eq!(Allocator::from_number(255), None);
    }
}
