//! Numbers objects in the order of their addresses: an object's number is the count of visited bits before its own. Only
//! the areas of memory are sorted.

use super::visited::{AREA_WORDS, Handle, Visited, area_of, word_and_bit};

const NONE: u32 = u32::MAX;

pub struct Renumbering {
    visited: Visited,
    /// Number of objects before each area.
    before: Vec<u32>,
    /// Number of objects of the area before each word of bits.
    in_area: Vec<u16>,
    /// The twin of each area, if any: it covers the same memory and holds the objects at the other multiples of eight.
    twins: Vec<u32>,
    /// Areas in the order of their addresses; only the first of two twins.
    order: Vec<u32>,
}

impl Renumbering {
    pub fn new(visited: Visited) -> Renumbering {
        let n_areas = visited.areas.len();
        let mut in_area = Vec::with_capacity(n_areas * AREA_WORDS);
        let mut sums = Vec::with_capacity(n_areas);
        for bits in visited.bits.chunks_exact(AREA_WORDS) {
            let mut sum = 0;
            for word in bits {
                in_area.push(sum as u16);
                sum += word.count_ones();
            }
            sums.push(sum);
        }
        let mut order: Vec<u32> = (0..n_areas as u32).collect();
        order.sort_unstable_by_key(|area| visited.areas[*area as usize]);
        let mut twins = vec![NONE; n_areas];
        let mut before = vec![0; n_areas];
        let mut objects = 0;
        let mut firsts = Vec::with_capacity(n_areas);
        for area in order {
            let at = area as usize;
            match firsts.last() {
                Some(first) if visited.areas[*first as usize] | 8 == visited.areas[at] => {
                    (twins[at], twins[*first as usize]) = (*first, area);
                    before[at] = before[*first as usize];
                }
                _ => {
                    before[at] = objects;
                    firsts.push(area);
                }
            }
            objects += sums[at];
        }
        Renumbering {
            visited,
            before,
            in_area,
            twins,
            order: firsts,
        }
    }

    /// Returns the number of an object in the order of addresses.
    #[inline(always)]
    pub fn number(&self, handle: Handle) -> u32 {
        let area = area_of(handle);
        let (word, bit) = word_and_bit(handle);
        let own = self.before[area] + self.set_before(word, bit);
        match self.twins[area] {
            NONE => own,
            twin => {
                let other = twin as usize * AREA_WORDS + word % AREA_WORDS;
                // The twin's object at the same multiple of sixteen comes first if this one is at an odd multiple of eight.
                let odd = self.visited.areas[area] & 8 != 0;
                let same = u32::from(odd && self.visited.bits[other] >> bit & 1 != 0);
                own + self.set_before(other, bit) + same
            }
        }
    }

    #[inline(always)]
    fn set_before(&self, word: usize, bit: u32) -> u32 {
        let below = self.visited.bits[word] & ((1 << bit) - 1);
        u32::from(self.in_area[word]) + below.count_ones()
    }

    pub fn find(&self, address: u64) -> Option<u32> {
        self.visited.find(address).map(|handle| self.number(handle))
    }

    /// Returns all addresses in ascending order.
    pub fn addresses(&self, n_objects: usize) -> Vec<u64> {
        let mut addresses = Vec::with_capacity(n_objects);
        for area in &self.order {
            let twin = self.twins[*area as usize];
            for word in 0..AREA_WORDS {
                let own = self.visited.bits[*area as usize * AREA_WORDS + word];
                let other = match twin {
                    NONE => 0,
                    twin => self.visited.bits[twin as usize * AREA_WORDS + word],
                };
                let mut left = own | other;
                while left != 0 {
                    let bit = left.trailing_zeros();
                    left &= left - 1;
                    let offset = ((word as u64) << 6 | u64::from(bit)) << 4;
                    for (area, bits) in [(*area, own), (twin, other)] {
                        if bits >> bit & 1 != 0 {
                            addresses.push(self.visited.areas[area as usize] + offset);
                        }
                    }
                }
            }
        }
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_the_order_of_addresses() {
        let mut visited = Visited::new().unwrap();
        // At every multiple of eight of one range, and far apart; added in random order.
        let mut addresses: Vec<u64> = (0..5000).map(|number| 0x5000_0000 + number * 8).collect();
        addresses.extend((0..3000).map(|number| 0x7f00_0000_0000 + number * 81_920));
        addresses.extend((0..40).map(|number| 0x1008 + number * 1_000_000 * 16));
        for step in 0..addresses.len() {
            let at = step * 2311 % addresses.len();
            visited.mark(addresses[at] as usize).unwrap();
        }
        addresses.sort_unstable();
        let numbering = Renumbering::new(visited);
        assert_eq!(numbering.addresses(addresses.len()), addresses);
        for (number, address) in addresses.iter().enumerate() {
            assert_eq!(numbering.find(*address), Some(number as u32));
        }
        assert_eq!(numbering.find(0x1018), None);
    }
}
