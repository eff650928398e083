//! What a block is: the Python object in it, if there is one.
//!
//! Python tells which types there are and how many bytes stand before an object of each (the collector's header and, from
//! 3.11 on, pointers to an instance's `__dict__` and weak references). A block holds an object if at that distance there is a
//! plausible reference count followed by the address of such a type. What is not an object is memory behind one: the items
//! of a list, the table of a dict, a buffer.

use super::sites::Words;
use crate::cpython::offsets::object;

/// Header lengths that occur.
const HEADERS: [usize; 3] = [0, 16, 32];

/// The types of the program, by address.
pub struct Types {
    by_address: Words<usize, (u32, usize)>,
}

impl Types {
    /// Of each type its address and how many bytes stand before its objects.
    pub fn new(types: &[(usize, usize)]) -> Types {
        let numbered = types.iter().zip(0..);
        Types {
            by_address: numbered
                .map(|(&(address, header), number)| (address, (number, header)))
                .collect(),
        }
    }

    /// The object in a block: the number of its type and its address.
    ///
    /// # Safety
    /// `size` bytes at `block` are readable.
    pub unsafe fn object_in(&self, block: usize, size: usize) -> Option<(u32, usize)> {
        HEADERS.iter().find_map(|&header| {
            if size < header + object::SIZE || block % 8 != 0 {
                return None;
            }
            let object = block + header;
            // SAFETY: within the block. Volatile, because what is no object may hold anything and change meanwhile.
            let (references, type_address) = unsafe {
                (
                    (object as *const usize).read_volatile(),
                    ((object + object::TYPE) as *const usize).read_volatile(),
                )
            };
            let &(number, expected) = self.by_address.get(&type_address)?;
            (expected == header && is_count(references)).then_some((number, object))
        })
    }
}

/// A pointer has bits set in the third quarter of a word, a reference count has not. (From 3.14 on the last quarter holds flags.)
fn is_count(word: usize) -> bool {
    word as u32 != 0 && word >> 32 & 0xffff == 0 && word >> 48 < 0x100
}

/// Whether the collector follows an object, which it does from the moment the object is complete.
///
/// # Safety
/// `object` is a live object with the collector's header before it.
pub unsafe fn is_followed(object: usize) -> bool {
    // SAFETY: the header's first word is the next object in the collector's list, or 0.
    unsafe { ((object - object::GC_HEADER) as *const usize).read() != 0 }
}
