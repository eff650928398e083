//! Live mappings. Unlike a block of malloc, a mapping can be unmapped in parts, and one call can cover several mappings and
//! the space between them.
//!
//! A mapping counts as one block until its last piece is unmapped; its bytes decrease with each piece.

use std::collections::BTreeMap;

use crate::amount::{Raw, Weigher};
use crate::encoding::{Decoder, Encoder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    length: u64,
    mapping: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    site: u32,
    /// The requested size; a sampled mapping keeps the weight of this size.
    size: u64,
    n_pieces: u32,
    /// The amount of its remaining pieces. The last piece takes all of it, so that rounding leaves no remainder.
    left: Raw,
}

/// An unmapped piece, with everything needed to restore it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released {
    pub start: u64,
    pub length: u64,
    mapping: u64,
    size: u64,
    pub site: u32,
    pub amount: Raw,
}

impl Released {
    /// Returns whether the piece is a whole mapping.
    pub fn is_whole(&self) -> bool {
        self.length == self.size && self.amount.count > 0
    }
}

#[derive(Default)]
pub(crate) struct Ranges {
    /// By start, without overlaps.
    pieces: BTreeMap<u64, Piece>,
    mappings: BTreeMap<u64, Mapping>,
    /// Numbers are never reused, so that an unmapping can be undone later.
    next_mapping: u64,
}

impl Ranges {
    /// Adds a mapping. The caller has removed all pieces in its range.
    pub fn insert(&mut self, start: u64, size: u64, site: u32, amount: Raw) {
        let mapping = self.next_mapping;
        self.next_mapping += 1;
        let length = size.min(u64::MAX - start);
        self.pieces.insert(start, Piece { length, mapping });
        let added = Mapping {
            site,
            size,
            n_pieces: 1,
            left: amount,
        };
        self.mappings.insert(mapping, added);
    }

    /// Removes the pieces between `start` and `start + length`. `weigher` returns the weigher of a site.
    pub fn release(
        &mut self,
        start: u64,
        length: u64,
        weigher: impl Fn(u32) -> Weigher,
    ) -> Vec<Released> {
        let end = start.saturating_add(length);
        let mut released = Vec::new();
        let from = match self.pieces.range(..=start).next_back() {
            Some((&at, piece)) if at + piece.length > start => at,
            _ => start,
        };
        let touched: Vec<(u64, Piece)> = self
            .pieces
            .range(from..end)
            .map(|(&at, &piece)| (at, piece))
            .collect();
        for (at, piece) in touched {
            self.pieces.remove(&at);
            let piece_end = at + piece.length;
            let (cut_start, cut_end) = (at.max(start), piece_end.min(end));
            let mut n_left = 0;
            for (kept_start, kept_end) in [(at, cut_start), (cut_end, piece_end)] {
                if kept_start < kept_end {
                    let kept = Piece {
                        length: kept_end - kept_start,
                        mapping: piece.mapping,
                    };
                    self.pieces.insert(kept_start, kept);
                    n_left += 1;
                }
            }
            let Some(mapping) = self.mappings.get_mut(&piece.mapping) else {
                continue;
            };
            mapping.n_pieces = mapping.n_pieces - 1 + n_left;
            let cut = cut_end - cut_start;
            let mut amount = weigher(mapping.site).weigh_part(mapping.size, cut);
            amount.bytes = amount.bytes.min(mapping.left.bytes);
            amount.variance = amount.variance.min(mapping.left.variance);
            if mapping.n_pieces == 0 {
                amount = mapping.left;
            }
            mapping.left -= amount;
            released.push(Released {
                start: cut_start,
                length: cut,
                mapping: piece.mapping,
                size: mapping.size,
                site: mapping.site,
                amount,
            });
            if mapping.n_pieces == 0 {
                self.mappings.remove(&piece.mapping);
            }
        }
        released
    }

    /// Returns start and length of the pieces whose sites are chosen.
    pub fn pieces_of(&self, is_chosen: impl Fn(u32) -> bool) -> Vec<(u64, u64)> {
        let chosen = self.pieces.iter().filter(|(_, piece)| {
            let mapping = self.mappings.get(&piece.mapping);
            mapping.is_some_and(|mapping| is_chosen(mapping.site))
        });
        chosen
            .map(|(&start, piece)| (start, piece.length))
            .collect()
    }

    /// Makes all counts fixed-point numbers.
    pub fn make_fixed_point(&mut self) {
        for mapping in self.mappings.values_mut() {
            mapping.left.make_fixed_point();
        }
    }

    /// Restores a removed piece. Nothing may be mapped in its range.
    pub fn restore(&mut self, released: &Released) {
        let mapping = self.mappings.entry(released.mapping).or_insert(Mapping {
            site: released.site,
            size: released.size,
            n_pieces: 0,
            left: Raw::default(),
        });
        mapping.n_pieces += 1;
        mapping.left += released.amount;
        let piece = Piece {
            length: released.length,
            mapping: released.mapping,
        };
        self.pieces.insert(released.start, piece);
    }

    pub fn write(&self, out: &mut Encoder) {
        out.number(self.next_mapping);
        out.number(self.mappings.len() as u64);
        for (&number, mapping) in &self.mappings {
            out.number(self.next_mapping - number);
            out.number(mapping.site.into());
            out.number(mapping.size);
            out.amount(mapping.left);
        }
        out.number(self.pieces.len() as u64);
        let mut end = 0;
        for (&start, piece) in &self.pieces {
            out.number(start - end);
            out.number(piece.length);
            out.number(self.next_mapping - piece.mapping);
            end = start + piece.length;
        }
    }

    pub fn read(input: &mut Decoder, n_sites: usize) -> Option<Ranges> {
        let mut ranges = Ranges {
            next_mapping: input.count()?,
            ..Ranges::default()
        };
        for _ in 0..input.length(6)? {
            let number = ranges.read_number(input)?;
            let mapping = Mapping {
                site: input.site(n_sites)?,
                size: input.number()?,
                n_pieces: 0,
                left: input.amount()?,
            };
            ranges.mappings.insert(number, mapping);
        }
        let mut end = 0u64;
        for _ in 0..input.length(3)? {
            let start = end.checked_add(input.number()?)?;
            let piece = Piece {
                length: input.number()?,
                mapping: ranges.read_number(input)?,
            };
            if piece.length == 0 {
                return None;
            }
            end = start.checked_add(piece.length)?;
            ranges.mappings.get_mut(&piece.mapping)?.n_pieces += 1;
            ranges.pieces.insert(start, piece);
        }
        let mut mappings = ranges.mappings.values();
        mappings
            .all(|mapping| mapping.n_pieces > 0)
            .then_some(ranges)
    }

    fn read_number(&self, input: &mut Decoder) -> Option<u64> {
        let back = input.number()?;
        let number = self.next_mapping.checked_sub(back)?;
        (back > 0).then_some(number)
    }

    pub fn write_released(&self, piece: &Released, out: &mut Encoder) {
        out.number(piece.start);
        out.number(piece.length);
        out.number(self.next_mapping - piece.mapping);
        out.number(piece.size);
        out.number(piece.site.into());
        out.amount(piece.amount);
    }

    pub fn read_released(&self, input: &mut Decoder, n_sites: usize) -> Option<Released> {
        let released = Released {
            start: input.number()?,
            length: input.number()?,
            mapping: self.read_number(input)?,
            size: input.number()?,
            site: input.site(n_sites)?,
            amount: input.amount()?,
        };
        released.start.checked_add(released.length)?;
        (released.length > 0).then_some(released)
    }

    pub fn heap_bytes(&self) -> usize {
        let piece = size_of::<(u64, Piece)>();
        let mapping = size_of::<(u64, Mapping)>();
        2 * (self.pieces.len() * piece + self.mappings.len() * mapping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: fn(u32) -> Weigher = |_| Weigher::new(0);

    fn mapped(sizes: &[u64]) -> Ranges {
        let mut ranges = Ranges::default();
        let mut start = 0x1000;
        for (site, &size) in sizes.iter().enumerate() {
            ranges.insert(start, size, site as u32, EXACT(0).weigh(size));
            start += size;
        }
        ranges
    }

    fn sums(released: &[Released]) -> Vec<(u32, u64, u64)> {
        let sum = |piece: &Released| (piece.site, piece.amount.bytes, piece.amount.count);
        released.iter().map(sum).collect()
    }

    #[test]
    fn hole_in_the_middle_leaves_two_pieces_and_one_block() {
        let mut ranges = mapped(&[0x3000]);
        let hole = ranges.release(0x2000, 0x1000, EXACT);
        assert_eq!(sums(&hole), [(0, 0x1000, 0)]);
        let first = ranges.release(0x1000, 0x1000, EXACT);
        assert_eq!(sums(&first), [(0, 0x1000, 0)]);
        let last = ranges.release(0x0, 0x10000, EXACT);
        assert_eq!(sums(&last), [(0, 0x1000, 1)]);
    }

    #[test]
    fn one_release_covers_several_mappings_and_parts_of_others() {
        let mut ranges = mapped(&[0x2000, 0x1000, 0x2000]);
        let released = ranges.release(0x2000, 0x3000, EXACT);
        assert_eq!(
            sums(&released),
            [(0, 0x1000, 0), (1, 0x1000, 1), (2, 0x1000, 0)]
        );
    }

    #[test]
    fn restored_pieces_can_be_released_again() {
        let mut ranges = mapped(&[0x2000]);
        for _ in 0..3 {
            let released = ranges.release(0x1000, 0x2000, EXACT);
            assert_eq!(sums(&released), [(0, 0x2000, 1)]);
            released.iter().for_each(|piece| ranges.restore(piece));
        }
    }

    #[test]
    fn mapping_at_the_end_of_the_address_space_does_not_wrap() {
        let mut ranges = Ranges::default();
        ranges.insert(u64::MAX - 10, u64::MAX, 0, EXACT(0).weigh(u64::MAX));
        let released = ranges.release(u64::MAX - 5, u64::MAX, EXACT);
        assert_eq!(released.len(), 1);
    }
}
