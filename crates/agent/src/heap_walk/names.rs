//! The names that labels refer to, each stored once.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use heaptide_capture::heap::{Label, Names};

use super::column::Column;
use super::index::Index;
use super::reader::Reader;
use crate::cpython::references::Object;

/// Longer names are cut.
const MAX_NAME: usize = 100;
/// Marks a name that was cut.
const CUT: &str = "…";

pub struct NameTable {
    pub names: Names,
    by_text: TextIndex,
    /// String objects that were used as names, by address, and the number of each.
    seen: Index,
    seen_addresses: Column<u64>,
    seen_numbers: Column<u32>,
}

impl NameTable {
    pub fn new() -> Option<NameTable> {
        Some(NameTable {
            names: Names::default(),
            by_text: TextIndex::new()?,
            seen: Index::new()?,
            seen_addresses: Column::new(),
            seen_numbers: Column::new(),
        })
    }

    pub fn of_text(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let hash = self.by_text.hash(text.as_bytes());
        if let Some(number) = self.by_text.find(&self.names, hash, text) {
            return number;
        }
        if self.names.len() >= Label::MAX_NUMBER as usize {
            return 0;
        }
        let number = self.names.push(text);
        if self.by_text.add(hash, number).is_none() {
            return 0;
        }
        number
    }

    /// Returns the number of a string object's text; 0 if it cannot be read.
    #[inline]
    pub fn of_object(&mut self, reader: &Reader, object: Object) -> u32 {
        match self
            .seen
            .find(&self.seen_addresses, object.address() as u64)
        {
            Some(position) => self
                .seen_numbers
                .get(position as usize)
                .copied()
                .unwrap_or(0),
            None => self.of_new_object(reader, object),
        }
    }

    #[cold]
    fn of_new_object(&mut self, reader: &Reader, object: Object) -> u32 {
        let mut buffer = [0; MAX_NAME];
        let number = match reader.text(object, &mut buffer) {
            Some((text, false)) => self.of_text(text),
            Some((text, true)) => self.of_text(&format!("{text}{CUT}")),
            None => 0,
        };
        let added = self
            .seen
            .find_or_add(&self.seen_addresses, object.address() as u64);
        if added.is_some_and(|(_, new)| new)
            && self.seen_addresses.push(object.address() as u64)
            && !self.seen_numbers.push(number)
        {
            return 0;
        }
        number
    }
}

/// Slots of a new index of texts; always a power of two.
const FIRST_SLOTS: usize = 1 << 13;
/// An odd number with irregular bits. A product with it mixes the bits of the other factor.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// An index from texts to their numbers, without copies of the texts.
struct TextIndex {
    /// The hash in the upper half, the number plus one in the lower half; 0 marks a free slot.
    slots: Column<u64>,
    n_used: usize,
    /// Random, so that no program can choose texts that get the same slot.
    seed: u64,
}

impl TextIndex {
    fn new() -> Option<TextIndex> {
        Some(TextIndex {
            slots: Column::zeroed(FIRST_SLOTS)?,
            n_used: 0,
            seed: RandomState::new().hash_one(0),
        })
    }

    fn hash(&self, text: &[u8]) -> u32 {
        // The product of 64-bit numbers has 128 bits; both halves together depend on all bits of the factors.
        let fold = |one: u64, other: u64| {
            let product = u128::from(one) * u128::from(other);
            product as u64 ^ (product >> 64) as u64
        };
        let mut hash = self.seed ^ text.len() as u64;
        for piece in text.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            hash = fold(hash ^ u64::from_ne_bytes(word), self.seed | 1) ^ FACTOR;
        }
        (fold(hash, FACTOR) >> 32) as u32
    }

    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.slots.len() as u64) >> 32) as usize
    }

    fn find(&self, names: &Names, hash: u32, text: &str) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = self.home(hash);
        loop {
            let slot = *self.slots.get(at)?;
            if slot == 0 {
                return None;
            }
            let number = slot as u32 - 1;
            if (slot >> 32) as u32 == hash && names.get(number) == text {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds the number of a text that the index does not contain. Returns `None` if memory for a larger index is missing.
    fn add(&mut self, hash: u32, number: u32) -> Option<()> {
        if self.n_used * 4 >= self.slots.len() * 3 {
            let slots = Column::zeroed(self.slots.len() * 2)?;
            let old = std::mem::replace(&mut self.slots, slots);
            for slot in old.iter().filter(|slot| **slot != 0) {
                self.insert(*slot)?;
            }
        }
        self.n_used += 1;
        self.insert(u64::from(hash) << 32 | u64::from(number + 1))
    }

    fn insert(&mut self, slot: u64) -> Option<()> {
        let mask = self.slots.len() - 1;
        let mut at = self.home((slot >> 32) as u32);
        while *self.slots.get(at)? != 0 {
            at = (at + 1) & mask;
        }
        *self.slots.get_mut(at)? = slot;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_keeps_its_number_while_the_index_grows() {
        let mut names = NameTable::new().unwrap();
        let text = |number: u32| format!("{}{number}", "x".repeat(number as usize % 20));
        for _ in 0..2 {
            for number in 0..20_000 {
                assert_eq!(names.of_text(&text(number)), number + 1);
            }
        }
        assert_eq!(names.names.len(), 20_001);
        assert_eq!(names.of_text(""), 0);
    }
}
