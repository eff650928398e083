//! The set of visited objects: one bit for every sixteen bytes of memory that contains objects. The bits of millions of
//! objects stay in the processor's caches.
//!
//! A *handle* names an object in four bytes: the number of its area of memory, and its offset there. Handles need no
//! table from addresses to numbers; counting bits turns them into numbers in address order ([`super::renumber`]).

use super::column::Column;

/// Bytes of an area, as a power of two.
const AREA_BITS: u32 = 18;
/// Objects start at multiples of sixteen bytes. Static objects of the interpreter may start at other multiples of eight;
/// these are in separate areas.
const STEP_BITS: u32 = 4;
const OFFSET_BITS: u32 = AREA_BITS - STEP_BITS;
/// Number of 64-bit words that hold the bits of an area.
pub const AREA_WORDS: usize = 1 << (OFFSET_BITS - 6);
/// Number of areas that fit into a handle: 64 GiB of memory that contains objects.
const MAX_AREAS: usize = 1 << (32 - OFFSET_BITS);
/// Slots of a new table; always a power of two.
const FIRST_SLOTS: usize = 1 << 10;
/// Entries of the cache of recently used areas; a power of two.
const RECENT: usize = 64;
/// Bits of a slot for the number of an area plus one.
const NUMBER_BITS: u32 = 20;

/// Area of an object and offset in it.
pub type Handle = u32;

/// The reason why an address gets no handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No memory, or too many areas.
    Full,
    /// No object can have this address.
    NoObject,
}

pub struct Visited {
    /// Key of an area and its number plus one; 0 marks a free slot.
    slots: Column<u64>,
    /// First address of each area.
    pub areas: Column<u64>,
    pub bits: Column<u64>,
    /// Recently used areas: the common bits of their objects' addresses, and the number.
    recent: [(u64, u32); RECENT],
}

/// Returns the key of an address's area. A range of memory has two areas: for objects at multiples of sixteen, and for the
/// others.
#[inline(always)]
fn key_of(address: u64) -> u64 {
    address >> AREA_BITS << 1 | address >> 3 & 1
}

/// Returns the bits that all addresses of an area's objects have in common: the highest and the lowest ones. An address
/// that no object can have differs from all areas in its lowest bits.
#[inline(always)]
fn common_of(address: u64) -> u64 {
    address & !(((1 << OFFSET_BITS) - 1) << STEP_BITS)
}

#[inline(always)]
fn handle_of(number: u32, address: u64) -> Handle {
    number << OFFSET_BITS | (address >> STEP_BITS) as u32 & ((1 << OFFSET_BITS) - 1)
}

/// Returns the word of bits of a handle, and its bit there.
#[inline(always)]
pub fn word_and_bit(handle: Handle) -> (usize, u32) {
    ((handle >> 6) as usize, handle & 63)
}

/// Returns the number of a handle's area.
#[inline(always)]
pub fn area_of(handle: Handle) -> usize {
    (handle >> OFFSET_BITS) as usize
}

impl Visited {
    pub fn new() -> Option<Visited> {
        Some(Visited {
            slots: Column::zeroed(FIRST_SLOTS)?,
            areas: Column::new(),
            bits: Column::new(),
            recent: [(u64::MAX, 0); RECENT],
        })
    }

    /// Marks an object. Returns its handle, and whether it is new.
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

    /// Returns the handle of an object that was marked.
    pub fn find(&self, address: u64) -> Option<Handle> {
        let handle = handle_of(self.number_of(key_of(address))?, address);
        let (word, bit) = word_and_bit(handle);
        (self.bits.get(word)? >> bit & 1 != 0 && address & 7 == 0).then_some(handle)
    }

    /// Returns whether an object was marked. Faster than [`Visited::find`] if the last objects were in the same area.
    #[inline(always)]
    pub fn contains(&mut self, address: usize) -> bool {
        let address = address as u64;
        let common = common_of(address);
        let recent = (address >> AREA_BITS) as usize % RECENT;
        let number = match self.recent[recent] {
            (known, number) if known == common => number,
            _ => match self.find(address) {
                Some(handle) => {
                    self.recent[recent] = (common, area_of(handle) as u32);
                    return true;
                }
                None => return false,
            },
        };
        let (word, bit) = word_and_bit(handle_of(number, address));
        self.bits.get(word).is_some_and(|bits| bits >> bit & 1 != 0)
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
        // No process has addresses with this many bits.
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
    fn every_address_keeps_its_handle() {
        let mut visited = Visited::new().unwrap();
        // In more areas than a new table has slots, at multiples of eight.
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
            assert!(visited.contains(*address));
            assert_eq!(visited.address_of(*handle), *address);
            assert_eq!(visited.find(*address as u64 + 16), None);
            assert!(!visited.contains(*address + 16));
        }
        handles.sort_unstable();
        handles.dedup();
        assert_eq!(handles.len(), addresses.len());
    }

    #[test]
    fn an_address_that_no_object_can_have_gets_no_handle() {
        let mut visited = Visited::new().unwrap();
        assert_eq!(visited.mark(0x7f00_0000_0003), Err(Refused::NoObject));
        assert_eq!(visited.mark(usize::MAX - 7), Err(Refused::NoObject));
        assert_eq!(visited.mark(0x7f00_0000_0008).map(|(_, new)| new), Ok(true));
    }
}
