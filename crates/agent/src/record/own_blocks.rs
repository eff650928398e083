//! The blocks that a thread has allocated while Heaptide's own Python code runs on it.
//!
//! These blocks are not in the capture, so their releases must not be in it either: readers would take them for releases of
//! blocks from before the recording. All other releases at that time are of the program's blocks, which a garbage
//! collection or a cache of the interpreter drops.
//!
//! A *stretch* is one uninterrupted run of Heaptide's own code on a thread. The table has sets of four words, one word per
//! block. A word contains the number of its stretch, so words of earlier stretches need not be cleared. If a set is full, a
//! new block replaces another one. The release of the replaced block is recorded, and readers count it as that of a
//! block from before the recording.
//!
//! Blocks that outlive the stretch are forgotten, because another thread or the program may release them, and the program's
//! next block may lie at the same address.
//!
//! Runs on: the thread whose table it is. Allocates: one mapping per thread, which is kept. Locks: never. During fork: the
//! child has a copy.

use crate::host::{own_memory, sys};

const WAYS: usize = 4;
const N_SETS: usize = 1 << 12;
/// Bits of a word that hold an address. The other bits hold the number of the stretch.
const ADDRESS_BITS: u32 = 48;

type Sets = [[u64; WAYS]; N_SETS];

/// Zero bytes are a valid, empty table.
#[repr(C)]
pub struct OwnBlocks {
    sets: *mut Sets,
    /// The number of the current stretch; 0 before the first one.
    stretch: u16,
    /// Whether the thread is resizing a block of the program: first for the C library, then for Python's allocators.
    is_resizing: [bool; 2],
}

/// Distinguishes a block of Python's allocators from the block of the C library that it may lie in.
#[derive(Clone, Copy)]
pub struct Key(u64);

impl Key {
    /// Addresses of blocks are multiples of eight.
    pub fn new(address: usize, is_pythons: bool) -> Key {
        let address = address as u64 & ((1 << ADDRESS_BITS) - 1);
        Key(address & !7 | u64::from(is_pythons))
    }

    /// Neighbouring blocks are in neighbouring sets, so a short stretch touches few pages.
    fn set(self) -> usize {
        let address = self.0 as usize;
        (address >> 4 ^ address >> 16) % N_SETS
    }
}

impl OwnBlocks {
    /// Begins a stretch and forgets all blocks.
    pub fn begin(&mut self) {
        self.forget_resizing();
        self.stretch = self.stretch.wrapping_add(1);
        if self.stretch == 0 {
            // The numbers start again, so words of earlier stretches must be cleared.
            self.stretch = 1;
            if let Some(sets) = self.sets() {
                *sets = [[0; WAYS]; N_SETS];
            }
        }
    }

    /// Adds a block.
    pub fn add(&mut self, key: Key) {
        if self.sets.is_null() {
            self.map();
        }
        let (word, stretch) = (self.word(key), self.stretch);
        let Some(sets) = self.sets() else { return };
        let set = &mut sets[key.set()];
        let unused = set
            .iter()
            .position(|&other| other >> ADDRESS_BITS != u64::from(stretch));
        let way = unused.unwrap_or(key.0 as usize >> 12 & (WAYS - 1));
        set[way] = word;
    }

    /// Forgets a block. Returns whether it was in the table.
    pub fn remove(&mut self, key: Key) -> bool {
        let word = self.word(key);
        let Some(sets) = self.sets() else {
            return false;
        };
        let slot = sets[key.set()].iter_mut().find(|other| **other == word);
        slot.map(|other| *other = 0).is_some()
    }

    /// Notes whether a block of the program is being resized, by Python's allocators or by the C library.
    pub fn set_resizing(&mut self, is_pythons: bool, is_resizing: bool) {
        self.is_resizing[usize::from(is_pythons)] = is_resizing;
    }

    /// Returns whether the block that was just allocated replaces a resized block of the program, and resets this flag.
    pub fn take_resizing(&mut self, is_pythons: bool) -> bool {
        std::mem::take(&mut self.is_resizing[usize::from(is_pythons)])
    }

    /// Resets both flags of [`OwnBlocks::set_resizing`], for example because a resize failed.
    pub fn forget_resizing(&mut self) {
        self.is_resizing = [false; 2];
    }

    fn word(&self, key: Key) -> u64 {
        u64::from(self.stretch) << ADDRESS_BITS | key.0
    }

    fn sets(&mut self) -> Option<&mut Sets> {
        // SAFETY: null, or zeroed memory of this size that only this table refers to and that is never unmapped.
        unsafe { self.sets.as_mut() }
    }

    #[cold]
    fn map(&mut self) {
        let _errno = sys::KeepErrno::now();
        self.sets = sys::map_private(size_of::<Sets>()).cast();
        if !self.sets.is_null() {
            own_memory::add(size_of::<Sets>());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;

    fn empty() -> OwnBlocks {
        OwnBlocks {
            sets: null_mut(),
            stretch: 0,
            is_resizing: [false; 2],
        }
    }

    #[test]
    fn blocks_are_known_until_they_are_removed_or_the_stretch_ends() {
        let mut blocks = empty();
        blocks.begin();
        let addresses: Vec<usize> = (0..4000).map(|i| 0x7fff_1234_0000 + i * 48).collect();
        for &address in &addresses {
            blocks.add(Key::new(address, true));
        }
        assert!(!blocks.remove(Key::new(addresses[7], false)));
        for &address in &addresses[..2000] {
            assert!(blocks.remove(Key::new(address, true)), "{address:x}");
            assert!(!blocks.remove(Key::new(address, true)), "{address:x}");
        }
        blocks.begin();
        assert!(!blocks.remove(Key::new(addresses[3000], true)));
    }

    #[test]
    fn blocks_of_a_stretch_with_the_same_number_are_forgotten() {
        let mut blocks = empty();
        blocks.begin();
        blocks.add(Key::new(0x1000, false));
        for _ in 0..=u16::MAX {
            blocks.begin();
        }
        assert!(!blocks.remove(Key::new(0x1000, false)));
    }

    #[test]
    fn a_full_set_forgets_a_block_and_keeps_the_others() {
        let mut blocks = empty();
        blocks.begin();
        let addresses: Vec<usize> = (0..6).map(|i| 0x5000_0000 + (i << 28)).collect();
        for &address in &addresses {
            blocks.add(Key::new(address, false));
        }
        let known = addresses
            .iter()
            .filter(|&&address| blocks.remove(Key::new(address, false)));
        assert_eq!(known.count(), WAYS);
    }
}
