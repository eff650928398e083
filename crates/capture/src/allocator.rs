//! The functions whose calls are recorded, under the names that reports print.

/// The function that allocated a block. The discriminants are part of the file format: never renumber, only add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
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

impl Allocator {
    pub const ALL: [Allocator; 15] = [
        Allocator::Malloc,
        Allocator::Calloc,
        Allocator::Realloc,
        Allocator::Reallocarray,
        Allocator::PosixMemalign,
        Allocator::AlignedAlloc,
        Allocator::Memalign,
        Allocator::Valloc,
        Allocator::Pvalloc,
        Allocator::Mmap,
        Allocator::MmapFile,
        Allocator::Mremap,
        Allocator::PymallocMalloc,
        Allocator::PymallocCalloc,
        Allocator::PymallocRealloc,
    ];

    /// Whether it is one of Python's own allocators.
    #[inline]
    pub fn is_pythons(self) -> bool {
        self as u8 >= Allocator::PymallocMalloc as u8
    }

    /// Returns the allocator with this number.
    #[inline(always)]
    pub fn from_number(number: u8) -> Option<Allocator> {
        const BY_NUMBER: [Option<Allocator>; 32] = {
            let mut table = [None; 32];
            let mut i = 0;
            while i < Allocator::ALL.len() {
                table[Allocator::ALL[i] as usize] = Some(Allocator::ALL[i]);
                i += 1;
            }
            table
        };
        BY_NUMBER.get(usize::from(number)).copied().flatten()
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
