//! The Python object in a block of memory, if there is one.
//!
//! A block contains an object if a plausible reference count and the address of a type follow a header. Objects of this
//! type must have a header of that length. Other blocks belong to an object: the items of a list, the table of a dict, a
//! buffer.

use super::sites::Words;
use crate::cpython::offsets::{TypeField, managed_bytes, object, type_flag};
use crate::cpython::references::Type;

/// All lengths of headers before objects.
const HEADERS: [usize; 3] = [0, 16, 32];

#[derive(Clone, Copy)]
struct Instances {
    /// Position of the type in the caller's list.
    number: u32,
    /// Bytes before an instance.
    header: usize,
    has_gc: bool,
}

/// The types of the program, by address.
pub struct Types {
    by_address: Words<usize, Instances>,
}

/// An object in a block.
#[derive(Clone, Copy)]
pub struct ObjectInBlock {
    pub type_number: u32,
    pub address: usize,
    has_gc: bool,
}

impl Types {
    /// `version` is that of the interpreter.
    pub fn new(types: &[Type], version: (u8, u8)) -> Types {
        let instances = |(type_, number): (&Type, u32)| {
            let flags = type_.field(TypeField::Flags);
            let has_gc = flags & type_flag::HAVE_GC != 0;
            let header = usize::from(has_gc) * object::GC_HEADER + managed_bytes(version, flags);
            let instances = Instances {
                number,
                header,
                has_gc,
            };
            (type_.address(), instances)
        };
        Types {
            by_address: types.iter().zip(0..).map(instances).collect(),
        }
    }

    /// Returns the object in a block.
    ///
    /// # Safety
    /// The first 48 bytes at `block` are readable, or `size` bytes if these are fewer.
    pub unsafe fn object_in(&self, block: usize, size: usize) -> Option<ObjectInBlock> {
        HEADERS.iter().find_map(|&header| {
            if size < header + object::SIZE || block % 8 != 0 {
                return None;
            }
            let address = block + header;
            // SAFETY: both words lie in the block. Volatile, because a block without an object may contain anything,
            // and another thread may write it meanwhile.
            let (references, type_address) = unsafe {
                (
                    (address as *const usize).read_volatile(),
                    ((address + object::TYPE) as *const usize).read_volatile(),
                )
            };
            let instances = self.by_address.get(&type_address)?;
            (instances.header == header && is_count(references)).then_some(ObjectInBlock {
                type_number: instances.number,
                address,
                has_gc: instances.has_gc,
            })
        })
    }
}

impl ObjectInBlock {
    /// Returns whether the object is complete. An object with a collector's header is complete once the collector tracks it.
    ///
    /// # Safety
    /// The object's header is readable.
    pub unsafe fn is_complete(&self) -> bool {
        // SAFETY: the header lies before the object, in the same block. Its first word is 0 while it is not tracked.
        !self.has_gc || unsafe { ((self.address - object::GC_HEADER) as *const usize).read() != 0 }
    }
}

/// Returns whether a word may be a reference count. An address has some of the bits 32 to 47 set, a count does not. (From
/// 3.14 on the highest 16 bits contain flags.)
fn is_count(word: usize) -> bool {
    word as u32 != 0 && word >> 32 & 0xffff == 0 && word >> 48 < 0x100
}
