//! In which order objects are looked through, and what is fetched into the processor's caches meanwhile: memory is slow,
//! and most of a walk is waiting for it.

use super::notes::Notes;
use super::walk::{Full, Walk};
use crate::cpython::heap_layout::{object, type_flag};

/// So far ahead an object is fetched, and then what it keeps beside it.
const FETCH_OBJECT: usize = 24;
const FETCH_CONTENT: usize = 10;
/// So many objects have been looked through before a census forgets them.
const FORGET_FROM: usize = 1 << 12;

impl<N: Notes> Walk<'_, N> {
    /// Looks through everything that was found and not looked through yet.
    pub fn run(&mut self) -> Result<(), Full> {
        loop {
            let n_left = if self.long.is_empty() {
                0
            } else {
                FETCH_OBJECT
            };
            if !self.run_until(n_left) {
                return Err(Full);
            }
            if !self.more_items() && n_left == 0 {
                return Ok(());
            }
        }
    }

    /// Looks through what was found but for the last few, which are still on their way into the processor's caches;
    /// `false` if there is no memory for more.
    #[inline(always)]
    pub fn keep_up(&mut self) -> bool {
        self.found.len() - self.n_looked_through <= FETCH_OBJECT || self.run_until(FETCH_OBJECT)
    }

    fn run_until(&mut self, n_left: usize) -> bool {
        while self.found.len() - self.n_looked_through > n_left {
            let Some(place) = self.found.get(self.n_looked_through).copied() else {
                break;
            };
            self.fetch_ahead();
            self.n_looked_through += 1;
            self.failed |= !self.notes.begin();
            self.look_through(place);
            if self.failed {
                return false;
            }
            if !N::REFERENCES && self.n_looked_through >= FORGET_FROM {
                self.forget();
            }
        }
        true
    }

    /// A census does not need again what was looked through.
    #[inline(always)]
    fn forget(&mut self) {
        if self.n_looked_through * 2 >= self.found.len() {
            self.found.remove_first(self.n_looked_through);
            self.n_looked_through = 0;
        }
    }

    /// Objects further on are fetched into the processor's caches, and what lists, dicts and instances keep beside them.
    #[inline(always)]
    fn fetch_ahead(&self) {
        if let Some(place) = self.found.get(self.n_looked_through + FETCH_OBJECT) {
            let at = self.marks.address_of(*place);
            prefetch(at - object::GC_HEADER);
            prefetch(at + 40);
        }
        let Some(place) = self.found.get(self.n_looked_through + FETCH_CONTENT) else {
            return;
        };
        let at = self.marks.address_of(*place);
        let type_address = self.live.type_of(at);
        if type_address == self.live.known.list {
            prefetch(self.live.word(at + object::LIST_ITEMS));
        } else if type_address == self.live.known.dict {
            let keys = self.live.word(at + object::DICT_KEYS);
            prefetch(keys);
            prefetch(keys + 64);
        } else if self.values_word != 0
            && self.live.flags(type_address) & type_flag::MANAGED_DICT != 0
        {
            prefetch(self.live.word(at - self.values_word));
        }
    }
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
