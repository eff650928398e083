//! Which objects were found: a bit for every sixteen bytes of memory where there are any, so that the bits of millions
//! of objects stay in the processor's caches.
//!
//! An object's *place* is four bytes: the number of its area of memory, and where in that area it is. Places need no
//! table from addresses to numbers; counting bits turns them into numbers in the order of addresses ([`super::renumber`]).

use super::column::Column;

/// Bytes of an area, as a power of two.
const AREA_BITS: u32 = 18;
/// Objects begin at a multiple of sixteen bytes; the interpreter's static ones at eight, in areas of their own.
const STEP_BITS: u32 = 4;
const OFFSET_BITS: u32 = AREA_BITS - STEP_BITS;
/// Words of bits of an area.
pub const AREA_WORDS: usize = 1 << (OFFSET_BITS - 6);
/// More areas than four bytes have names for: 64 GiB of memory with objects everywhere.
const MAX_AREAS: usize = 1 << (32 - OFFSET_BITS);
/// Slots of the table at first; always a power of two.
const FIRST: usize = 1 << 10;
/// Areas that are found without the table; a power of two.
const RECENT: usize = 64;
/// Bits of a slot for the number of an area plus one.
const NUMBER_BITS: u32 = 20;

/// Area and place in it, in four bytes.
pub type Handle = u32;

/// No place: memory ran out, or the address cannot be one of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Full,
    NoObject,
}

pub struct Visited {
    /// Key of an area and its number plus one; 0 is free.
    slots: Column<u64>,
    /// Where each area begins.
    pub areas: Column<u64>,
    pub bits: Column<u64>,
    /// Areas asked for lately: what their objects' addresses have in common, and the number.
    recent: [(u64, u32); RECENT],
}

/// Area of an address; every area has one key for objects at multiples of sixteen and one for the others.
#[inline(always)]
fn key_of(address: u64) -> u64 {
    address >> AREA_BITS << 1 | address >> 3 & 1
}

/// What the addresses of an area's objects have in common: the highest bits, and the lowest ones. No area is ever asked
/// for by an address that cannot be an object's, so none has an odd one in common with it.
#[inline(always)]
fn common_of(address: u64) -> u64 {
    address & !(((1 << OFFSET_BITS) - 1) << STEP_BITS)
}

#[inline(always)]
fn handle_of(number: u32, address: u64) -> Handle {
    number << OFFSET_BITS | (address >> STEP_BITS) as u32 & ((1 << OFFSET_BITS) - 1)
}

/// The word of bits that a place is in, and its bit.
#[inline(always)]
pub fn word_and_bit(handle: Handle) -> (usize, u32) {
    ((handle >> 6) as usize, handle & 63)
}

/// The number of the area that a place is in.
#[inline(always)]
pub fn area_of(handle: Handle) -> usize {
    (handle >> OFFSET_BITS) as usize
}

impl Visited {
    pub fn new() -> Option<Visited> {
        Some(Visited {
            slots: Column::zeroed(FIRST)?,
            areas: Column::new(),
            bits: Column::new(),
            recent: [(u64::MAX, 0); RECENT],
        })
    }

    /// The place of an object, and whether it was not known before.
    #[inline(always)]
    pub fn mark(&mut self, address: usize) -> Result<(Handle, bool), Refused> {
        let address = address as u64;
        let common = common_of(address);
        let recent = (address >> AREA_BITS) as usize % RECENT;
        let number = match self.recent[recent] {
            (known, number) if known == common => number,
            _ => {
                let number = self.find_or_add_area(address)?;
                self.recent[recent] = (common, number);
                number
            }
        };
        let handle = handle_of(number, address);
        let (word, bit) = word_and_bit(handle);
        let bits = self.bits.get_mut(word).ok_or(Refused::Full)?;
        let bit = 1 << bit;
        let new = *bits & bit == 0;
        *bits |= bit;
        Ok((handle, new))
    }

    #[inline(never)]
    fn find_or_add_area(&mut self, address: u64) -> Result<u32, Refused> {
        if address & 7 != 0 {
            return Err(Refused::NoObject);
        }
        match self.number_of(key_of(address)) {
            Some(number) => Ok(number),
            None => self.add_area(address),
        }
    }

    /// The place of an object that was found.
    pub fn find(&self, address: u64) -> Option<Handle> {
        let handle = handle_of(self.number_of(key_of(address))?, address);
        let (word, bit) = word_and_bit(handle);
        (self.bits.get(word)? >> bit & 1 != 0 && address & 7 == 0).then_some(handle)
    }

    #[inline(always)]
    pub fn address_of(&self, handle: Handle) -> usize {
        let begin = self.areas.get(area_of(handle)).copied().unwrap_or(0);
        begin as usize + ((handle as usize & ((1 << OFFSET_BITS) - 1)) << STEP_BITS)
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    #[inline(always)]
    fn number_of(&self, key: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        loop {
            let slot = *self.slots.get(at)?;
            if slot == 0 {
                return None;
            }
            if slot >> NUMBER_BITS == key {
                return Some((slot & ((1 << NUMBER_BITS) - 1)) as u32 - 1);
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn add_area(&mut self, address: u64) -> Result<u32, Refused> {
        let key = key_of(address);
        // No program has addresses of so many bits.
        if key >> (64 - NUMBER_BITS) != 0 {
            return Err(Refused::NoObject);
        }
        let number = self.areas.len();
        if number >= MAX_AREAS {
            return Err(Refused::Full);
        }
        if number * 2 >= self.slots.len() {
            self.grow().ok_or(Refused::Full)?;
        }
        let begin = address >> AREA_BITS << AREA_BITS | address & 8;
        if !(self.areas.push(begin) && self.bits.extend_zeroed(AREA_WORDS)) {
            return Err(Refused::Full);
        }
        self.insert(key, number as u32).ok_or(Refused::Full)?;
        Ok(number as u32)
    }

    fn insert(&mut self, key: u64, number: u32) -> Option<()> {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        while *self.slots.get(at)? != 0 {
            at = (at + 1) & mask;
        }
        *self.slots.get_mut(at)? = key << NUMBER_BITS | u64::from(number + 1);
        Some(())
    }

    fn grow(&mut self) -> Option<()> {
        let old = std::mem::replace(&mut self.slots, Column::new());
        self.slots = Column::zeroed(old.len() * 2)?;
        for slot in old.iter().filter(|slot| **slot != 0) {
            let number = (slot & ((1 << NUMBER_BITS) - 1)) as u32 - 1;
            self.insert(slot >> NUMBER_BITS, number)?;
        }
        Some(())
    }

    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.areas.bytes() + self.bits.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_keeps_its_place() {
        let mut visited = Visited::new().unwrap();
        // Over more areas than the table has slots at first, at multiples of eight.
        let addresses: Vec<usize> = (0..100_000)
            .map(|number| 0x7f00_0000_0000 + (number * 4099 * 64 + number % 2 * 8))
            .collect();
        let mut handles = Vec::new();
        for address in &addresses {
            let (handle, new) = visited.mark(*address).unwrap();
            assert!(new);
            handles.push(handle);
        }
        for (address, handle) in addresses.iter().zip(&handles) {
            assert_eq!(visited.mark(*address), Ok((*handle, false)));
            assert_eq!(visited.find(*address as u64), Some(*handle));
            assert_eq!(visited.address_of(*handle), *address);
            assert_eq!(visited.find(*address as u64 + 16), None);
        }
        handles.sort_unstable();
        handles.dedup();
        assert_eq!(handles.len(), addresses.len());
    }

    #[test]
    fn what_cannot_be_an_object_has_no_place() {
        let mut visited = Visited::new().unwrap();
        assert_eq!(visited.mark(0x7f00_0000_0003), Err(Refused::NoObject));
        assert_eq!(visited.mark(usize::MAX - 7), Err(Refused::NoObject));
        assert_eq!(visited.mark(0x7f00_0000_0008).map(|(_, new)| new), Ok(true));
    }
}
