//! A hash table of positions in a vector that holds the keys.
//!
//! Stacks, sites, threads and sizes are vectors whose elements must be found by value. The keys are outside the table, so one
//! implementation serves them all and takes four bytes per slot.

const EMPTY: u32 = u32::MAX;

/// A 64-bit hash whose high and low bits are equally good: the two halves of a product, folded.
#[inline(always)]
pub(crate) fn hash(key: u64) -> u64 {
    let product = u128::from(key ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

#[derive(Default)]
pub(crate) struct Index {
    /// A power of two long, at most three quarters full.
    slots: Vec<u32>,
    len: usize,
}

impl Index {
    /// Returns the position for which `same` holds among those stored under `hash`.
    #[inline]
    pub fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            match self.slots[slot] {
                EMPTY => return None,
                position if same(position) => return Some(position),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// Returns a table with room for this many positions.
    pub fn with_room(n_positions: usize) -> Index {
        let n_slots = (n_positions + n_positions / 3 + 16).next_power_of_two();
        Index {
            slots: vec![EMPTY; n_slots],
            len: 0,
        }
    }

    /// Whether the next position makes the table grow.
    pub fn is_full(&self) -> bool {
        (self.len + 1) * 4 > self.slots.len() * 3
    }

    /// Stores a new position. `hash_of` returns the hash of any stored position.
    pub fn insert(&mut self, hash: u64, position: u32, hash_of: impl Fn(u32) -> u64) {
        if self.is_full() {
            let n_slots = (self.slots.len() * 2).max(16);
            let old = std::mem::replace(&mut self.slots, vec![EMPTY; n_slots]);
            for position in old.into_iter().filter(|&position| position != EMPTY) {
                self.put(hash_of(position), position);
            }
        }
        self.put(hash, position);
        self.len += 1;
    }

    fn put(&mut self, hash: u64, position: u32) {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot] != EMPTY {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = position;
    }

    /// Number of stored positions.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stored_key_is_found_again_and_no_other() {
        let keys: Vec<u64> = (0..10_000).map(|n| n * 48).collect();
        let mut index = Index::default();
        for (position, &key) in keys.iter().enumerate() {
            assert_eq!(index.find(hash(key), |at| keys[at as usize] == key), None);
            index.insert(hash(key), position as u32, |at| hash(keys[at as usize]));
        }
        for (position, &key) in keys.iter().enumerate() {
            let stored = index.find(hash(key), |at| keys[at as usize] == key);
            assert_eq!(stored, Some(position as u32));
        }
        assert_eq!(index.find(hash(7), |at| keys[at as usize] == 7), None);
    }
}
