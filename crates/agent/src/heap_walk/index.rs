//! A hash index from addresses to numbers: four bytes per slot. The addresses are in a column of the caller.

use super::column::Column;

/// Slots of a new index; always a power of two.
const FIRST: usize = 1 << 14;

pub struct Index {
    /// Number plus one; 0 marks a free slot.
    slots: Column<u32>,
    n_used: usize,
}

impl Index {
    pub fn new() -> Option<Index> {
        Some(Index {
            slots: Column::zeroed(FIRST)?,
            n_used: 0,
        })
    }

    #[inline(always)]
    fn home(&self, address: u64) -> usize {
        // Addresses are aligned, so the lowest bits are always 0; the multiplication spreads the others to the top.
        let hash = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    /// Returns the number of an address.
    #[inline(always)]
    pub fn find(&self, addresses: &[u64], address: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut slot = self.home(address);
        loop {
            let number = *self.slots.get(slot)?;
            if number == 0 {
                return None;
            }
            if addresses.get(number as usize - 1) == Some(&address) {
                return Some(number - 1);
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Returns the number of an address, and whether it is new; a new number is `addresses.len()`. The caller appends a
    /// new address to the column. Returns `None` if no memory is left.
    #[inline(always)]
    pub fn find_or_add(&mut self, addresses: &[u64], address: u64) -> Option<(u32, bool)> {
        // Three quarters full at most.
        if self.n_used * 4 >= self.slots.len() * 3 {
            self.grow(addresses)?;
        }
        let mask = self.slots.len() - 1;
        let mut slot = self.home(address);
        loop {
            let number = *self.slots.get(slot)?;
            if number == 0 {
                let new = u32::try_from(addresses.len()).ok()?;
                *self.slots.get_mut(slot)? = new + 1;
                self.n_used += 1;
                return Some((new, true));
            }
            if addresses.get(number as usize - 1) == Some(&address) {
                return Some((number - 1, false));
            }
            slot = (slot + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self, addresses: &[u64]) -> Option<()> {
        // The old slots are freed first: the addresses are enough to fill the new ones.
        let len = self.slots.len() * 2;
        self.slots = Column::new();
        self.slots = Column::zeroed(len)?;
        let mask = len - 1;
        for (number, address) in addresses.iter().enumerate() {
            let mut slot = self.home(*address);
            while *self.slots.get(slot)? != 0 {
                slot = (slot + 1) & mask;
            }
            *self.slots.get_mut(slot)? = number as u32 + 1;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_keeps_its_number_while_the_index_grows() {
        let mut index = Index::new().unwrap();
        let mut addresses: Vec<u64> = Vec::new();
        for round in 0..2 {
            for number in 0..100_000_u64 {
                let address = 0x7f00_0000_0000 + (number * 48) % (1 << 20) * 4096 + number * 16;
                let (stored, new) = index.find_or_add(&addresses, address).unwrap();
                assert_eq!((u64::from(stored), new), (number, round == 0));
                if new {
                    addresses.push(address);
                }
            }
        }
        assert_eq!(index.find(&addresses, 8), None);
        assert_eq!(index.find(&addresses, addresses[77]), Some(77));
    }
}
