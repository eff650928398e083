//! The table of live blocks by address: a tree of pages over the address space, and a list of entries.
//!
//! Nothing is hashed, and no entry moves. A lookup reads the same words, whether the address is known or not.
//!
//! ```text
//! address  [ 12 bits: root | 13 bits: region of 8 MiB | 13 bits: leaf of 1 KiB | 6 bits: unit | 4 bits: 0 ]
//! root ─► region ─► leaf ─► unit: number of an entry ─► block
//! ```
//! Number 0 leads to tables, leaves and entries that stay empty, so a lookup needs no test on its way. A freed entry is
//! reused first, and a leaf without blocks also. Tables stay: they take 0.4% of the regions that had blocks.
//!
//! Addresses that have other bits set are rare: allocators align blocks to 16 bytes, and a process has addresses beyond 48
//! bits only if it asks for them. A map has the entries of such blocks. Independent of threads and of Python.

use heaptide_capture::Allocator;

use super::accounts::Block;
use super::sites::Words;

const UNIT_BITS: u32 = 4;
const LEAF_BITS: u32 = 10;
const TABLE_BITS: u32 = 13;
const REGION_BITS: u32 = LEAF_BITS + TABLE_BITS;
const ROOT_BITS: u32 = REGION_BITS + TABLE_BITS;
const ADDRESS_BITS: u32 = 48;
const LEAF_LEN: usize = 1 << (LEAF_BITS - UNIT_BITS);
const TABLE_LEN: usize = 1 << TABLE_BITS;
/// The number of entries that are added at once.
const N_ADDED: u32 = 64;
const N_RECENT: usize = 8;
/// The first table stays empty, and the second is the root.
const ROOT: usize = 1;
/// The bits that are 0 in usual addresses.
const UNUSUAL_BITS: usize = !((1 << ADDRESS_BITS) - 1) | ((1 << UNIT_BITS) - 1);

#[derive(Clone, Copy)]
struct Entry {
    /// 0 if the entry has no block. Then the number of its block is the next entry without one.
    address: usize,
    block: Block,
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
};

/// A region and the position of its table, which is that of the empty table if the region has none.
#[derive(Clone, Copy)]
struct Recent {
    region: usize,
    table: usize,
}

/// There is no memory for a larger table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

pub(super) struct Blocks {
    entries: Vec<Entry>,
    /// The first entry without a block; 0 if all have one.
    unused_entry: u32,
    n_live: usize,
    /// The tables one after the other: the root and the regions, with the numbers of tables and of leaves.
    tables: Vec<u32>,
    /// The regions that were searched last, by the lowest bits of their number.
    recent: [Recent; N_RECENT],
    leaves: Vec<[u32; LEAF_LEN]>,
    /// The number of blocks of each leaf.
    n_in_leaf: Vec<u8>,
    /// Leaves without blocks.
    unused_leaves: Vec<u32>,
    /// The entries of unusual addresses.
    unusual: Words<usize, u32>,
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks {
            entries: vec![UNUSED],
            unused_entry: 0,
            n_live: 0,
            tables: vec![0; (ROOT + 1) * TABLE_LEN],
            recent: [Recent {
                region: 0,
                table: 0,
            }; N_RECENT],
            leaves: vec![[0; LEAF_LEN]],
            n_in_leaf: vec![0],
            unused_leaves: Vec::new(),
            unusual: Words::default(),
        }
    }
}

#[inline(always)]
fn is_unusual(address: usize) -> bool {
    address & UNUSUAL_BITS != 0
}

#[inline(always)]
fn unit_of(address: usize) -> usize {
    address >> UNIT_BITS & (LEAF_LEN - 1)
}

impl Blocks {
    /// Returns the position in `tables` of the leaf of a usual address.
    #[inline(always)]
    fn leaf_position(&mut self, address: usize) -> usize {
        let region = address >> REGION_BITS;
        let recent = self.recent[region % N_RECENT];
        let table = match recent.region == region {
            true => recent.table,
            false => self.find_region(address),
        };
        table + (address >> LEAF_BITS & (TABLE_LEN - 1))
    }

    /// Returns the position of the table of an address's region, and remembers it.
    #[inline(never)]
    fn find_region(&mut self, address: usize) -> usize {
        let region = address >> REGION_BITS;
        let table = self.region_table(address);
        self.recent[region % N_RECENT] = Recent { region, table };
        table
    }

    fn region_table(&self, address: usize) -> usize {
        let leaves = self.tables[ROOT * TABLE_LEN + (address >> ROOT_BITS)] as usize;
        let index = address >> REGION_BITS & (TABLE_LEN - 1);
        self.tables[leaves * TABLE_LEN + index] as usize * TABLE_LEN
    }

    #[cold]
    #[inline(never)]
    fn unusual_entry_of(&self, address: usize) -> u32 {
        self.unusual.get(&address).copied().unwrap_or(0)
    }

    pub fn get(&self, address: usize) -> Option<&Block> {
        let at = if is_unusual(address) {
            self.unusual_entry_of(address)
        } else {
            let index = address >> LEAF_BITS & (TABLE_LEN - 1);
            let leaf = self.tables[self.region_table(address) + index] as usize;
            self.leaves[leaf][unit_of(address)]
        };
        (at != 0).then(|| &self.entries[at as usize].block)
    }

    /// Stores a block and returns the one that was at the address.
    #[inline(always)]
    pub fn insert(&mut self, address: usize, block: Block) -> Result<Option<Block>, NoRoom> {
        if is_unusual(address) {
            return self.insert_unusual(address, block);
        }
        let position = self.leaf_position(address);
        let leaf = match self.tables[position] as usize {
            0 => self.add_leaf(address)?,
            leaf => leaf,
        };
        let unit = unit_of(address);
        let known = self.leaves[leaf][unit] as usize;
        if known != 0 {
            return Ok(Some(std::mem::replace(
                &mut self.entries[known].block,
                block,
            )));
        }
        self.leaves[leaf][unit] = self.fill_entry(address, block)?;
        self.n_in_leaf[leaf] += 1;
        Ok(None)
    }

    #[cold]
    #[inline(never)]
    fn insert_unusual(&mut self, address: usize, block: Block) -> Result<Option<Block>, NoRoom> {
        if let Some(&known) = self.unusual.get(&address) {
            let entry = &mut self.entries[known as usize];
            return Ok(Some(std::mem::replace(&mut entry.block, block)));
        }
        self.unusual.try_reserve(1).map_err(|_| NoRoom)?;
        let entry = self.fill_entry(address, block)?;
        self.unusual.insert(address, entry);
        Ok(None)
    }

    /// Stores a block in an unused entry and returns the number of the entry.
    #[inline(always)]
    fn fill_entry(&mut self, address: usize, block: Block) -> Result<u32, NoRoom> {
        let at = match self.unused_entry {
            0 => self.add_entries()?,
            unused => unused,
        };
        let entry = &mut self.entries[at as usize];
        self.unused_entry = entry.block.number;
        *entry = Entry { address, block };
        self.n_live += 1;
        Ok(at)
    }

    /// Adds entries without blocks, and returns the first.
    #[cold]
    #[inline(never)]
    fn add_entries(&mut self) -> Result<u32, NoRoom> {
        let first = u32::try_from(self.entries.len()).map_err(|_| NoRoom)?;
        let last = first.checked_add(N_ADDED - 1).ok_or(NoRoom)?;
        let added = self.entries.try_reserve(N_ADDED as usize);
        added.map_err(|_| NoRoom)?;
        for at in first..=last {
            let mut entry = UNUSED;
            entry.block.number = if at < last { at + 1 } else { 0 };
            self.entries.push(entry);
        }
        Ok(first)
    }

    /// Adds the leaf of a usual address that has none, and the tables on the way to it.
    #[cold]
    #[inline(never)]
    fn add_leaf(&mut self, address: usize) -> Result<usize, NoRoom> {
        let region = self.table_at(ROOT * TABLE_LEN + (address >> ROOT_BITS))?;
        let index = address >> REGION_BITS & (TABLE_LEN - 1);
        self.table_at(region * TABLE_LEN + index)?;
        let leaf = match self.unused_leaves.pop() {
            Some(leaf) => leaf,
            None => {
                let leaf = u32::try_from(self.leaves.len()).map_err(|_| NoRoom)?;
                self.leaves.try_reserve(1).map_err(|_| NoRoom)?;
                self.n_in_leaf.try_reserve(1).map_err(|_| NoRoom)?;
                // Room for all leaves, because a release must not fail.
                let n_leaves = self.leaves.capacity() - self.unused_leaves.len();
                self.unused_leaves
                    .try_reserve(n_leaves)
                    .map_err(|_| NoRoom)?;
                self.leaves.push([0; LEAF_LEN]);
                self.n_in_leaf.push(0);
                leaf
            }
        };
        // The region may have a table only now.
        let position = self.find_region(address) + (address >> LEAF_BITS & (TABLE_LEN - 1));
        self.tables[position] = leaf;
        Ok(leaf as usize)
    }

    /// Returns the number of the table whose number is at a position; adds the table if there is none.
    fn table_at(&mut self, position: usize) -> Result<usize, NoRoom> {
        if self.tables[position] == 0 {
            let n_tables = self.tables.len() / TABLE_LEN;
            let added = u32::try_from(n_tables).map_err(|_| NoRoom)?;
            self.tables.try_reserve(TABLE_LEN).map_err(|_| NoRoom)?;
            self.tables.resize((n_tables + 1) * TABLE_LEN, 0);
            self.tables[position] = added;
        }
        Ok(self.tables[position] as usize)
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
        let is_unusual = is_unusual(address);
        let (leaf, at) = match is_unusual {
            true => (0, self.unusual_entry_of(address)),
            false => {
                let position = self.leaf_position(address);
                let leaf = self.tables[position] as usize;
                (leaf, self.leaves[leaf][unit_of(address)])
            }
        };
        let entry = &mut self.entries[at as usize];
        if at == 0 || !condition(&entry.block) {
            return None;
        }
        let block = entry.block;
        entry.address = 0;
        entry.block.number = self.unused_entry;
        self.unused_entry = at;
        self.n_live -= 1;
        if is_unusual {
            self.unusual.remove(&address);
            return Some(block);
        }
        self.leaves[leaf][unit_of(address)] = 0;
        self.n_in_leaf[leaf] -= 1;
        if self.n_in_leaf[leaf] == 0 {
            self.drop_leaf(leaf, address);
        }
        Some(block)
    }

    #[cold]
    #[inline(never)]
    fn drop_leaf(&mut self, leaf: usize, address: usize) {
        let position = self.leaf_position(address);
        self.tables[position] = 0;
        // `add_leaf` has reserved room.
        self.unused_leaves.push(leaf as u32);
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &Block)> {
        let live = self.entries.iter().filter(|entry| entry.address != 0);
        live.map(|entry| (entry.address, &entry.block))
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
        // The entries that are added at once, and one leaf, besides the empty ones.
        assert_eq!(blocks.entries.len(), 1 + N_ADDED as usize);
        assert_eq!(blocks.leaves.len(), 2);
        let n_regions = ((1_000_000 * 64) >> REGION_BITS) + 1;
        assert_eq!(blocks.tables.len() / TABLE_LEN, ROOT + 1 + 1 + n_regions);
        assert_eq!(blocks.iter().count(), 0);
    }

    #[test]
    fn unaligned_and_very_high_addresses_have_blocks_of_their_own() {
        let mut blocks = Blocks::default();
        let addresses = [
            0x1000,
            0x1008,
            0x1009,
            0x1010,
            1 << 48,
            1 << 48 | 0x1000,
            !15,
        ];
        for (&address, number) in addresses.iter().zip(1..) {
            assert_eq!(blocks.insert(address, block(number)), Ok(None));
        }
        assert_eq!(blocks.insert(0x1008, block(20)), Ok(Some(block(2))));
        assert_eq!(blocks.remove_if(0x1009, |_| false), None);
        assert_eq!(blocks.iter().count(), addresses.len());
        for (&address, number) in addresses.iter().zip([1, 20, 3, 4, 5, 6, 7]) {
            assert_eq!(blocks.remove(address), Some(block(number)));
            assert_eq!(blocks.remove(address), None);
        }
        assert_eq!(blocks.n_live, 0);
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
