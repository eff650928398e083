//! The table of live blocks by address. It uses open addressing; most lookups read one cache line.
//!
//! An allocator gives a freed address away again soon. So the entry of a freed block keeps its address, and the next block
//! at this address takes the same entry without a search. Entries of freed blocks disappear when the table is rebuilt,
//! which happens when few entries are unused.
//!
//! ```text
//! 256 bytes of memory  ─[hash]→  8 entries: one for each 32 bytes, then the next unused entry
//! ```
//! Blocks that are neighbours in memory have neighbouring entries, so a program that builds or frees a large structure
//! reads the table in order. Independent of threads and of Python.

use heaptide_capture::Allocator;

use super::accounts::Block;

/// log2 of the bytes of memory whose blocks share a bucket.
const REGION_BITS: u32 = 8;
/// log2 of the bytes of memory for each entry of a bucket.
const UNIT_BITS: u32 = 5;
const BUCKET_LEN: usize = 1 << (REGION_BITS - UNIT_BITS);
const MIN_LEN: usize = 1024;

#[derive(Clone, Copy)]
struct Entry {
    /// 0 if the entry has never been used.
    address: usize,
    block: Block,
    is_live: bool,
}

const UNUSED: Entry = Entry {
    address: 0,
    block: Block {
        size: 0,
        job: 0,
        site: 0,
        number: 0,
        allocator: Allocator::Malloc,
    },
    is_live: false,
};

/// There is no memory for a larger table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

#[derive(Default)]
pub(super) struct Blocks {
    /// The number of entries is 0 or a power of two.
    entries: Vec<Entry>,
    n_live: usize,
    /// Entries with an address.
    n_used: usize,
    /// The number of used entries at which the table is rebuilt.
    limit: usize,
    /// Turns a hash into a number of entries.
    shift: u32,
}

impl Blocks {
    #[inline(always)]
    fn home(&self, address: usize) -> usize {
        let hash = (address >> REGION_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        (hash & !(BUCKET_LEN - 1)) | (address >> UNIT_BITS & (BUCKET_LEN - 1))
    }

    /// Returns the entry of an address, or the unused entry where it belongs. The table is not empty.
    #[inline(always)]
    fn position(&self, address: usize) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.home(address);
        // Ends, because `limit` leaves unused entries.
        loop {
            let found = self.entries[at & mask].address;
            if found == address || found == 0 {
                return at & mask;
            }
            at += 1;
        }
    }

    #[inline(always)]
    fn live_position(&self, address: usize) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        let at = self.position(address);
        self.entries[at].is_live.then_some(at)
    }

    #[inline(always)]
    pub fn get(&self, address: usize) -> Option<&Block> {
        self.live_position(address)
            .map(|at| &self.entries[at].block)
    }

    /// Stores a block and returns the one that was at the address.
    #[inline(always)]
    pub fn insert(&mut self, address: usize, block: Block) -> Result<Option<Block>, NoRoom> {
        if self.n_used >= self.limit {
            self.rebuild()?;
        }
        let at = self.position(address);
        let entry = &mut self.entries[at];
        let before = entry.is_live.then_some(entry.block);
        self.n_live += usize::from(!entry.is_live);
        self.n_used += usize::from(entry.address == 0);
        *entry = Entry {
            address,
            block,
            is_live: true,
        };
        Ok(before)
    }

    #[inline(always)]
    pub fn remove(&mut self, address: usize) -> Option<Block> {
        self.remove_if(address, |_| true)
    }

    /// Removes and returns the block at an address if `condition` is true for it.
    #[inline(always)]
    pub fn remove_if(
        &mut self,
        address: usize,
        condition: impl FnOnce(&Block) -> bool,
    ) -> Option<Block> {
        let at = self.live_position(address)?;
        let entry = &mut self.entries[at];
        if !condition(&entry.block) {
            return None;
        }
        entry.is_live = false;
        self.n_live -= 1;
        Some(entry.block)
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &Block)> {
        let live = self.entries.iter().filter(|entry| entry.is_live);
        live.map(|entry| (entry.address, &entry.block))
    }

    /// Removes the entries of freed blocks, and adapts the size of the table to the number of live blocks.
    #[cold]
    #[inline(never)]
    fn rebuild(&mut self) -> Result<(), NoRoom> {
        let mut len = MIN_LEN;
        while self.n_live >= len / 8 * 3 {
            len *= 2;
        }
        let mut entries = Vec::new();
        entries.try_reserve_exact(len).map_err(|_| NoRoom)?;
        entries.resize(len, UNUSED);
        let before = std::mem::replace(&mut self.entries, entries);
        self.shift = usize::BITS - len.trailing_zeros();
        self.limit = len / 8 * 5;
        self.n_used = self.n_live;
        for entry in before.iter().filter(|entry| entry.is_live) {
            let at = self.position(entry.address);
            self.entries[at] = *entry;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn block(number: u32) -> Block {
        Block {
            size: number as usize,
            number,
            ..UNUSED.block
        }
    }

    #[test]
    fn table_agrees_with_a_map_while_blocks_come_and_go() {
        let mut blocks = Blocks::default();
        let mut expected: HashMap<usize, Block> = HashMap::new();
        let mut random = 1u64;
        for number in 0..200_000u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Addresses of neighbouring blocks of 16 bytes: first more and more of them, then a few again and again.
            let n_addresses = if number < 100_000 {
                number / 4 + 1
            } else {
                500
            };
            let address = 0x7f00_0000_0000 + 16 * ((random >> 33) as usize % n_addresses as usize);
            if random >> 20 & 3 == 0 {
                assert_eq!(blocks.remove(address), expected.remove(&address));
            } else {
                let before = blocks.insert(address, block(number));
                assert_eq!(before, Ok(expected.insert(address, block(number))));
            }
            assert_eq!(blocks.get(address), expected.get(&address));
        }
        let found: HashMap<usize, Block> = blocks.iter().map(|(at, block)| (at, *block)).collect();
        assert_eq!(found, expected);
        assert_eq!(blocks.n_live, expected.len());
    }

    #[test]
    fn freed_addresses_do_not_make_the_table_grow() {
        let mut blocks = Blocks::default();
        for i in 1..1_000_000 {
            blocks.insert(i * 64, block(0)).unwrap();
            assert!(blocks.remove(i * 64).is_some());
        }
        assert_eq!(blocks.entries.len(), MIN_LEN);
        assert_eq!(blocks.iter().count(), 0);
    }

    #[test]
    fn a_block_that_does_not_meet_the_condition_stays() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.remove(0x100), None);
        blocks.insert(0x100, block(1)).unwrap();
        assert_eq!(blocks.remove_if(0x100, |block| block.number == 2), None);
        assert_eq!(blocks.get(0x100), Some(&block(1)));
    }
}
