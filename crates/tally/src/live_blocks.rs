//! The live blocks: address → size and site.
//!
//! This table dominates the memory of a report, and every event passes through it, so it is compact and fast. Four blocks
//! share a bucket of one cache line. The table grows one segment of 64 KiB at a time (extendible hashing: a full
//! segment splits in two). The table is therefore never copied as a whole, and never needs memory for two copies:
//!
//! ```text
//! hash  [ top bits: directory → segment | … | low 10 bits: home bucket, or the next one with room ]
//! ```
//!
//! A bucket counts the blocks that did not fit and lie in a later bucket; a search ends at a count of zero. Segments split
//! at 80 %, so a block takes between 20 and 40 bytes. An ordered map holds the blocks that do not fit into a bucket. These
//! are blocks of 4 GiB and more, impossible addresses, and the surplus of a segment that crafted addresses fill.

mod segment;

use std::collections::BTreeMap;
use std::hint::black_box;

use crate::encoding::{Decoder, Encoder};
use crate::index::hash;

use segment::{Bucket, MASK, MAX_USED, N_BUCKETS, ONE_PAST, Packed, Segment};

/// Ratio of directory entries to segments at which the directory no longer doubles. Real addresses spread evenly and
/// stay far below it.
const MAX_DIRECTORY_EXCESS: usize = 64;

/// Number of blocks that are prefetched together when the table is written or read, so that their cache misses overlap.
const BATCH: usize = 16;
/// Typical bytes of a block in a checkpoint.
const USUAL_BYTES: usize = 5;

/// A live block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    pub size: u64,
    pub site: u32,
}

/// A block with its address, as in checkpoints.
#[derive(Clone, Copy, Default)]
struct AddressedBlock {
    address: u64,
    block: Block,
}

impl AddressedBlock {
    /// Writes `next` as its difference from this block.
    fn write_next(&self, next: &AddressedBlock, out: &mut Encoder) {
        // Nearly all addresses are multiples of 16.
        out.number((next.address - self.address).rotate_right(4));
        out.number(next.block.size);
        out.difference(next.block.site.into(), self.block.site.into());
    }

    fn read_next(&self, input: &mut Decoder, n_sites: usize) -> Option<AddressedBlock> {
        let step = input.number()?.rotate_left(4);
        let size = input.number()?;
        let site = u32::try_from(input.difference(self.block.site.into())?).ok()?;
        let address = self.address.checked_add(step)?;
        let block = Block { size, site };
        let is_possible = step > 0 && (site as usize) < n_sites;
        is_possible.then_some(AddressedBlock { address, block })
    }
}

pub(crate) struct LiveBlocks {
    /// `1 << depth` numbers of segments.
    directory: Vec<u32>,
    depth: u32,
    segments: Vec<Segment>,
    misfits: BTreeMap<u64, Block>,
}

impl LiveBlocks {
    pub fn new() -> LiveBlocks {
        LiveBlocks {
            directory: vec![0],
            depth: 0,
            segments: vec![Segment::new(0)],
            misfits: BTreeMap::new(),
        }
    }

    #[inline(always)]
    fn segment_of(&self, hash: u64) -> usize {
        // Two shifts, because a shift by 64 (a directory of depth 0) is not defined.
        self.directory[((hash >> 1) >> (63 - self.depth)) as usize] as usize
    }

    /// Reads the bucket that an operation on `address` will read first, so that the cache misses of several
    /// operations overlap. The result is meaningless; it only keeps the optimizer from removing the read.
    #[inline(always)]
    pub fn touch(&self, address: u64) -> u64 {
        let hash = hash(address);
        self.segments[self.segment_of(hash)].buckets[hash as usize & MASK].addresses[0]
    }

    /// Returns whether the whole table fits into the nearest caches, so that prefetching gains nothing.
    #[inline(always)]
    pub fn is_small(&self) -> bool {
        self.segments.len() <= 2
    }

    /// Adds a block; returns the one that was at its address. The address must not be 0.
    #[inline]
    pub fn insert(&mut self, address: u64, block: Block) -> Option<Block> {
        if !fits(address, block) || !self.misfits.is_empty() {
            return self.insert_misfit(address, block);
        }
        self.insert_fitting(address, block)
    }

    #[inline(always)]
    fn insert_fitting(&mut self, address: u64, block: Block) -> Option<Block> {
        let hash = hash(address);
        let packed = Packed {
            size: block.size as u32,
            site: block.site,
        };
        loop {
            let number = self.segment_of(hash);
            let segment = &mut self.segments[number];
            if let Some((bucket, way)) = segment.find(hash, address) {
                let before = std::mem::replace(&mut segment.buckets[bucket].blocks[way], packed);
                return Some(before.into());
            }
            let has_room = segment.n_used < MAX_USED;
            if has_room && segment.put(hash, address, packed) {
                return None;
            }
            if has_room || !self.split(number) {
                self.misfits.insert(address, block);
                return None;
            }
        }
    }

    #[cold]
    fn insert_misfit(&mut self, address: u64, block: Block) -> Option<Block> {
        if fits(address, block) && !self.misfits.contains_key(&address) {
            return self.insert_fitting(address, block);
        }
        let before = self.remove(address);
        self.misfits.insert(address, block);
        before
    }

    /// Splits a segment by the next bit of the hash. Returns false if it may not be split further.
    #[cold]
    fn split(&mut self, number: usize) -> bool {
        let depth = self.segments[number].depth;
        if depth == self.depth {
            if self.directory.len() >= self.segments.len() * MAX_DIRECTORY_EXCESS {
                return false;
            }
            self.directory = self.directory.iter().flat_map(|&n| [n, n]).collect();
            self.depth += 1;
        }
        let old = std::mem::replace(&mut self.segments[number], Segment::new(depth + 1));
        let added = self.segments.len();
        self.segments.push(Segment::new(depth + 1));
        for bucket in old.buckets.iter() {
            for (&address, &block) in bucket.addresses.iter().zip(&bucket.blocks) {
                let address = address & (ONE_PAST - 1);
                if address == 0 {
                    continue;
                }
                let hash = hash(address);
                let upper = (hash >> (63 - depth)) & 1 == 1;
                let segment = if upper { added } else { number };
                if !self.segments[segment].put(hash, address, block) {
                    self.misfits.insert(address, block.into());
                }
            }
        }
        let free_bits = self.depth - depth - 1;
        for (index, segment) in self.directory.iter_mut().enumerate() {
            if *segment as usize == number && (index >> free_bits) & 1 == 1 {
                *segment = added as u32;
            }
        }
        true
    }

    /// Removes a block.
    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<Block> {
        let hash = hash(address);
        let number = self.segment_of(hash);
        // Without its top byte, an impossible address could equal another one, or the mark of an empty way.
        if address != 0 && address < ONE_PAST {
            if let Some(packed) = self.segments[number].take(hash, address) {
                return Some(packed.into());
            }
        }
        if self.misfits.is_empty() {
            return None;
        }
        self.misfits.remove(&address)
    }

    fn get(&self, address: u64) -> Option<Block> {
        if address != 0 && address < ONE_PAST {
            let hash = hash(address);
            let segment = &self.segments[self.segment_of(hash)];
            if let Some((bucket, way)) = segment.find(hash, address) {
                return Some(segment.buckets[bucket].blocks[way].into());
            }
        }
        self.misfits.get(&address).copied()
    }

    /// Returns the addresses of all blocks, ascending.
    fn addresses(&self) -> Vec<u64> {
        let n_used: usize = self.segments.iter().map(|one| one.n_used as usize).sum();
        let mut addresses = Vec::with_capacity(n_used + self.misfits.len());
        for bucket in self.segments.iter().flat_map(|one| one.buckets.iter()) {
            let here = bucket.addresses.map(|address| address & (ONE_PAST - 1));
            addresses.extend(here.into_iter().filter(|&address| address != 0));
        }
        addresses.extend(self.misfits.keys());
        addresses.sort_unstable();
        addresses
    }

    /// Returns all blocks, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        let buckets = self.segments.iter().flat_map(|one| one.buckets.iter());
        let fitting = buckets.flat_map(|bucket| {
            let ways = bucket.addresses.iter().zip(&bucket.blocks);
            let used = ways.filter(|(address, _)| **address & (ONE_PAST - 1) != 0);
            used.map(|(_, &packed)| Block::from(packed))
        });
        fitting.chain(self.misfits.values().copied())
    }

    /// Writes all blocks, ordered by address, because neighbours are similar and their differences are small. Only the
    /// addresses are sorted: sorting whole blocks would need as much memory as the table.
    pub fn write(&self, out: &mut Encoder) {
        let addresses = self.addresses();
        out.number(addresses.len() as u64);
        out.reserve(addresses.len() * USUAL_BYTES);
        let mut previous = AddressedBlock::default();
        for batch in addresses.chunks(BATCH) {
            black_box(batch.iter().fold(0, |sum, &at| sum ^ self.touch(at)));
            for &address in batch {
                let block = self.get(address).unwrap_or(previous.block);
                let next = AddressedBlock { address, block };
                previous.write_next(&next, out);
                previous = next;
            }
        }
    }

    pub fn read(input: &mut Decoder, n_sites: usize) -> Option<LiveBlocks> {
        let mut blocks = LiveBlocks::new();
        let mut previous = AddressedBlock::default();
        let mut n_left = input.length(3)?;
        let mut batch = Vec::with_capacity(BATCH);
        while n_left > 0 {
            batch.clear();
            for _ in 0..n_left.min(BATCH) {
                previous = previous.read_next(input, n_sites)?;
                batch.push(previous);
            }
            n_left -= batch.len();
            let touch = |sum: u64, next: &AddressedBlock| sum ^ blocks.touch(next.address);
            black_box(batch.iter().fold(0, touch));
            for next in &batch {
                blocks.insert(next.address, next.block);
            }
        }
        Some(blocks)
    }

    pub fn heap_bytes(&self) -> usize {
        self.segments.len() * size_of::<[Bucket; N_BUCKETS]>()
            + self.directory.capacity() * size_of::<u32>()
            + self.misfits.len() * 2 * size_of::<(u64, Block)>()
    }
}

#[inline(always)]
fn fits(address: u64, block: Block) -> bool {
    block.size <= u64::from(u32::MAX) && address < ONE_PAST
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn table_agrees_with_a_plain_map_through_growth_and_shrinking() {
        let mut table = LiveBlocks::new();
        let mut plain: HashMap<u64, Block> = HashMap::new();
        let mut state = 7u64;
        for step in 0..400_000u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            let mut address = 0x5555_0000_0000 + ((state >> 40) % 60_000) * 16;
            if (state >> 40) % 1_000 == 0 {
                address |= 0xff << 56;
            }
            // Grows first, then shrinks to nothing.
            if (state >> 20) % 100 < if step < 250_000 { 70 } else { 20 } {
                let block = Block {
                    size: if step % 5_000 == 0 {
                        u64::MAX
                    } else {
                        state >> 50
                    },
                    site: step as u32,
                };
                assert_eq!(table.insert(address, block), plain.insert(address, block));
            } else {
                assert_eq!(table.remove(address), plain.remove(&address));
            }
        }
        let sizes = |blocks: &mut dyn Iterator<Item = Block>| -> Vec<u64> {
            let mut sizes: Vec<u64> = blocks.map(|block| block.size).collect();
            sizes.sort_unstable();
            sizes
        };
        assert_eq!(
            sizes(&mut table.iter()),
            sizes(&mut plain.values().copied())
        );
        for (address, block) in plain {
            assert_eq!(table.remove(address), Some(block));
        }
    }

    #[test]
    fn block_takes_at_most_48_bytes_among_more_than_100_000_blocks() {
        let mut table = LiveBlocks::new();
        for n in 1..1_000_000u64 {
            let block = Block { size: 32, site: 0 };
            table.insert(0x7f00_0000_0000 + n * 32, block);
            if n > 100_000 && n % 1_000 == 0 {
                let each = table.heap_bytes() as f64 / n as f64;
                assert!(each <= 48.0, "{each} bytes each for {n} blocks");
            }
        }
    }

    #[test]
    fn block_that_does_not_fit_into_an_unsplittable_segment_is_found() {
        // As if crafted addresses had driven the directory to its bound: 64 entries for a single segment.
        let mut table = LiveBlocks::new();
        table.directory = vec![0; MAX_DIRECTORY_EXCESS];
        table.depth = MAX_DIRECTORY_EXCESS.ilog2();
        table.segments[0].depth = table.depth;
        let block = |n: u64| Block { size: n, site: 1 };
        for n in 1..=2 * (N_BUCKETS * segment::WAYS) as u64 {
            assert_eq!(table.insert(n << 20, block(n)), None);
        }
        assert_eq!(table.directory.len(), MAX_DIRECTORY_EXCESS);
        for n in 1..=2 * (N_BUCKETS * segment::WAYS) as u64 {
            assert_eq!(table.remove(n << 20), Some(block(n)));
        }
    }
}
