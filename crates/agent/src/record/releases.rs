//! The addresses that were released since the mode changed.
//!
//! After a change from exact to sampled, or when Python objects are no longer recorded, blocks of the former mode are still
//! alive, and their releases must be recorded. The agent has no list of them. It therefore records the first release at
//! each address since the change. A live block of the former mode was not released since, and after its release the address
//! can only hold a later block. Some of these releases belong to blocks that were never recorded; readers ignore them.
//!
//! One bit for every eight bytes of address space, in pages that are mapped when they are first needed: 1.6 % of the
//! addresses in use.
//!
//! ```text
//! address  [ 14 bits: table | 13 bits: region of 1 MiB | 17 bits: bit | 3 bits ]
//! ```
//! Runs on: any thread. Allocates: pages from the kernel, which are kept for the next change. Locks: never. During fork: the
//! child has a copy, and starts another session without changes.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::host::{own_memory, sys};

const REGION_BITS: u32 = 20;
const N_WORDS: usize = (1 << REGION_BITS) / 8 / 64;
const TABLE_BITS: u32 = 13;
const N_REGIONS: usize = 1 << TABLE_BITS;
/// Addresses of a process have 47 bits, unless it asks for more.
const N_TABLES: usize = 1 << (47 - REGION_BITS - TABLE_BITS);

type Region = [AtomicU64; N_WORDS];
type Table = [AtomicPtr<Region>; N_REGIONS];

/// Whether first releases are recorded.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
static TABLES: [AtomicPtr<Table>; N_TABLES] = [const { AtomicPtr::new(null_mut()) }; N_TABLES];

/// Forgets all releases, and records the first one at each address from now on.
pub fn begin() {
    for_each_region(|region| {
        for word in region {
            word.store(0, Ordering::Relaxed);
        }
    });
    IS_WANTED.store(true, Ordering::SeqCst);
}

/// Stops recording first releases, because a session starts or records every event.
pub fn end() {
    IS_WANTED.store(false, Ordering::SeqCst);
}

#[inline]
pub fn are_wanted() -> bool {
    IS_WANTED.load(Ordering::Relaxed)
}

/// Whether this is the first release at `address` since the change. Also true if there is no memory to remember it: an
/// unnecessary release in the capture does no harm.
pub fn is_first(address: usize) -> bool {
    let Some((word, bit)) = word_of(address) else {
        return true;
    };
    // Later releases at the same address only read the word, which is cheaper than writing it.
    word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::AcqRel) & bit == 0
}

fn word_of(address: usize) -> Option<(&'static AtomicU64, u64)> {
    let region = address >> REGION_BITS;
    if region >> TABLE_BITS >= N_TABLES {
        // Beyond 47 bits: such addresses are rare, and each of their releases is recorded.
        return None;
    }
    let table = child(&TABLES[region >> TABLE_BITS])?;
    let words = child(&table[region & (N_REGIONS - 1)])?;
    let bit = address >> 3 & ((1 << (REGION_BITS - 3)) - 1);
    Some((&words[bit >> 6], 1 << (bit & 63)))
}

/// Returns the memory that a pointer refers to. If the pointer is null, maps the memory first.
#[inline]
fn child<T>(pointer: &'static AtomicPtr<T>) -> Option<&'static T> {
    let mut present = pointer.load(Ordering::Acquire);
    if present.is_null() {
        present = new_child(pointer);
    }
    // SAFETY: null, or zeroed memory of this size, which is a valid value of arrays of atomics and is never unmapped.
    unsafe { present.as_ref() }
}

#[cold]
fn new_child<T>(pointer: &'static AtomicPtr<T>) -> *mut T {
    let _errno = sys::KeepErrno::now();
    let memory: *mut T = sys::map_private(size_of::<T>()).cast();
    if memory.is_null() {
        return memory;
    }
    match pointer.compare_exchange(null_mut(), memory, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            own_memory::add(size_of::<T>());
            memory
        }
        Err(winner) => {
            // SAFETY: this mapping was made above, and no other thread knows it.
            unsafe { sys::unmap(memory.cast(), size_of::<T>()) };
            winner
        }
    }
}

fn for_each_region(mut visit: impl FnMut(&Region)) {
    for table in &TABLES {
        // SAFETY: null, or memory that `new_child` mapped and that is never unmapped.
        let Some(table) = (unsafe { table.load(Ordering::Acquire).as_ref() }) else {
            continue;
        };
        for region in table {
            // SAFETY: as above.
            if let Some(region) = unsafe { region.load(Ordering::Acquire).as_ref() } {
                visit(region);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_release_at_an_address_is_recorded_after_each_change() {
        begin();
        assert!(are_wanted());
        for address in [0x7000_1234_5670, 0x7000_1234_5678, 0x1000, 0x7fff_ffff_fff8] {
            assert!(is_first(address) && !is_first(address), "{address:x}");
        }
        begin();
        assert!(is_first(0x1000));
        assert!(is_first(1 << 50) && is_first(1 << 50));
        end();
        assert!(!are_wanted());
    }
}
