//! In which order a snapshot's objects are looked through, and what is fetched into the processor's caches meanwhile: memory is slow,
//! and most of a walk is waiting for it.

use super::notes::{Columns, Notes};
use super::types::Looks;
use super::walk::{Full, Walk};
use crate::cpython::heap_layout::{object, type_flag};

/// So far ahead an object is fetched, and then what it keeps beside it.
pub const FETCH_OBJECT: usize = 24;
const FETCH_CONTENT: usize = 10;

impl Walk<'_, Columns> {
    /// Objects that were found and not looked through yet.
    #[inline(always)]
    pub fn n_left(&self) -> usize {
        self.notes.found.len() - self.notes.n_looked_through
    }

    /// Looks through what was found, but for so many.
    pub fn run_in_order(&mut self, n_left: usize) -> Result<(), Full> {
        while self.n_left() > n_left {
            let next = self.notes.n_looked_through;
            let Some(place) = self.notes.found.get(next).copied() else {
                break;
            };
            self.fetch_ahead();
            self.notes.n_looked_through += 1;
            self.failed |= !self.notes.begin();
            self.look_through(place);
            if self.failed {
                return Err(Full);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn fetch_ahead(&self) {
        let further = |by| self.notes.found.get(self.notes.n_looked_through + by);
        if let Some(place) = further(FETCH_OBJECT) {
            fetch_object(self.marks.address_of(*place));
        }
        if let Some(place) = further(FETCH_CONTENT) {
            let at = self.marks.address_of(*place);
            let type_address = self.live.type_of(at);
            let looks = if type_address == self.live.known.list {
                Looks::List
            } else if type_address == self.live.known.dict {
                Looks::Dict
            } else {
                Looks::Traverse
            };
            self.fetch_content(at, looks, self.live.flags(type_address));
        }
    }
}

impl<N: Notes> Walk<'_, N> {
    /// What an object of a type that is looked through so keeps beside it is fetched into the processor's caches.
    #[inline(always)]
    pub fn fetch_content(&self, at: usize, looks: Looks, type_flags: usize) {
        match looks {
            Looks::List => prefetch(self.live.word(at + object::LIST_ITEMS)),
            Looks::Dict => {
                let keys = self.live.word(at + object::DICT_KEYS);
                prefetch(keys);
                prefetch(keys + 64);
            }
            _ if self.values_word != 0 && type_flags & type_flag::MANAGED_DICT != 0 => {
                prefetch(self.live.word(at - self.values_word));
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
