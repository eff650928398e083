//! In which order a snapshot's objects are looked through, and what is fetched into the processor's caches meanwhile: memory is slow,
//! and most of a walk is waiting for it.

use super::output::{Columns, Output};
use super::types::Scan;
use super::walk::{Full, Walk};
use crate::cpython::heap_layout::{object, type_flag};

/// So far ahead an object is fetched, and then what it keeps beside it.
pub const FETCH_OBJECT: usize = 24;
const FETCH_CONTENT: usize = 10;

impl Walk<'_, Columns> {
    /// Objects that were found and not looked through yet.
    #[inline(always)]
    pub fn n_left(&self) -> usize {
        self.output.found.len() - self.output.n_scanned
    }

    /// Looks through what was found, but for so many.
    pub fn run_in_order(&mut self, n_left: usize) -> Result<(), Full> {
        while self.n_left() > n_left {
            let next = self.output.n_scanned;
            let Some(handle) = self.output.found.get(next).copied() else {
                break;
            };
            self.fetch_ahead();
            self.output.n_scanned += 1;
            self.failed |= !self.output.begin();
            self.scan(handle);
            if self.failed {
                return Err(Full);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn fetch_ahead(&self) {
        let further = |by| self.output.found.get(self.output.n_scanned + by);
        if let Some(handle) = further(FETCH_OBJECT) {
            fetch_object(self.visited.address_of(*handle));
        }
        if let Some(handle) = further(FETCH_CONTENT) {
            let at = self.visited.address_of(*handle);
            let type_address = self.reader.type_of(at);
            let scan = if type_address == self.reader.known.list {
                Scan::List
            } else if type_address == self.reader.known.dict {
                Scan::Dict
            } else {
                Scan::Traverse
            };
            self.fetch_content(at, scan, self.reader.flags(type_address));
        }
    }
}

impl<O: Output> Walk<'_, O> {
    /// What an object of a type that is looked through so keeps beside it is fetched into the processor's caches.
    #[inline(always)]
    pub fn fetch_content(&self, at: usize, scan: Scan, type_flags: usize) {
        match scan {
            Scan::List => prefetch(self.reader.word(at + object::LIST_ITEMS)),
            Scan::Dict => {
                let keys = self.reader.word(at + object::DICT_KEYS);
                prefetch(keys);
                prefetch(keys + 64);
            }
            _ if self.values_word != 0 && type_flags & type_flag::MANAGED_DICT != 0 => {
                prefetch(self.reader.word(at - self.values_word));
            }
            _ => {}
        }
    }
}

/// An object is fetched into the processor's caches, with what stands in front of it.
#[inline(always)]
pub fn fetch_object(at: usize) {
    prefetch(at - object::GC_HEADER);
    prefetch(at + 40);
}

#[inline(always)]
fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; the address need not even be readable.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
