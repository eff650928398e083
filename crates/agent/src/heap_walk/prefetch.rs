//! The order in which a snapshot's objects are scanned, and prefetching: a walk mostly waits for memory, so objects
//! are loaded into the processor's caches before their turn.

use super::output::{Columns, Output};
use super::reader::word_at;
use super::types::Scan;
use super::walk::{Full, Walk};
use crate::cpython::offsets::{object, type_flag};
use crate::cpython::references::Object;

/// The distance, in objects, at which an object is prefetched, and then its contents.
pub const FETCH_OBJECT: usize = 24;
const FETCH_CONTENT: usize = 10;

impl Walk<'_, Columns> {
    /// Returns the number of objects that were found and not scanned yet.
    #[inline(always)]
    pub fn n_left(&self) -> usize {
        self.output.handles.len() - self.output.n_scanned
    }

    /// Scans all found objects but the last `n_left`.
    pub fn run_in_order(&mut self, n_left: usize) -> Result<(), Full> {
        while self.n_left() > n_left {
            let next = self.output.n_scanned;
            let Some(handle) = self.output.handles.get(next).copied() else {
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
        let ahead = |by| self.output.handles.get(self.output.n_scanned + by);
        if let Some(handle) = ahead(FETCH_OBJECT) {
            fetch_object(self.object_of(*handle));
        }
        if let Some(handle) = ahead(FETCH_CONTENT) {
            let object = self.object_of(*handle);
            let type_ = self.reader.type_of(object);
            let scan = if type_ == self.reader.known.list {
                Scan::List
            } else if type_ == self.reader.known.dict {
                Scan::Dict
            } else {
                Scan::Traverse
            };
            // SAFETY: the object is of the type that `scan` and the flags were chosen by.
            unsafe { self.fetch_content(object, scan, self.reader.flags(type_)) };
        }
    }
}

impl<O: Output> Walk<'_, O> {
    /// Prefetches the memory that an object owns.
    ///
    /// # Safety
    /// The object's type has these flags, and `scan` is `List` or `Dict` only if the object is one.
    #[inline(always)]
    pub unsafe fn fetch_content(&self, object: Object, scan: Scan, type_flags: usize) {
        // SAFETY: a list and a dict have these fields; an instance with a managed dict has a word before it.
        unsafe {
            match scan {
                Scan::List => prefetch(self.reader.word(object, object::LIST_ITEMS)),
                Scan::Dict => {
                    let keys = self.reader.word(object, object::DICT_KEYS);
                    prefetch(keys);
                    prefetch(keys + 64);
                }
                _ if self.values_before != 0 && type_flags & type_flag::MANAGED_DICT != 0 => {
                    prefetch(word_at(object.address() - self.values_before));
                }
                _ => {}
            }
        }
    }
}

/// Prefetches an object and the header before it.
#[inline(always)]
pub fn fetch_object(object: Object) {
    prefetch(object.address() - object::GC_HEADER);
    prefetch(object.address() + 40);
}

#[inline(always)]
fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint to the processor; the address need not be readable.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
