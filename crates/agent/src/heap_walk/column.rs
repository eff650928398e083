//! A growing column in memory of our own: mapped, never from the program's heap, and moved by the kernel when it grows,
//! so that growing neither copies nor doubles it.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::host::own_memory;
use crate::host::sys;

/// Bytes of the first mapping.
const FIRST: usize = 1 << 16;

/// From here on large pages are worth it.
const LARGE: usize = 8 << 20;

/// Numbers one behind the other. Pushing fails instead of panicking where there is no memory.
pub struct Column<T: Copy> {
    /// Without a mapping, which is without capacity, an address that is only aligned.
    memory: NonNull<T>,
    len: usize,
    capacity: usize,
}

impl<T: Copy> Column<T> {
    pub const fn new() -> Column<T> {
        Column {
            memory: NonNull::dangling(),
            len: 0,
            capacity: 0,
        }
    }

    /// Zeroed entries; `None` without memory.
    pub fn zeroed(len: usize) -> Option<Column<T>> {
        let mut column = Column::new();
        column.grow_to(len.max(1))?;
        column.len = len;
        Some(column)
    }

    #[inline(always)]
    pub fn push(&mut self, value: T) -> bool {
        if self.len == self.capacity && self.grow_to(self.len + 1).is_none() {
            return false;
        }
        // SAFETY: the mapping has room for `capacity` entries, and there is one more than `len`.
        unsafe { self.memory.add(self.len).write(value) };
        self.len += 1;
        true
    }

    /// The same, if `really`, without a branch that the processor would have to guess.
    #[inline(always)]
    pub fn push_if(&mut self, value: T, really: bool) -> bool {
        if self.len == self.capacity && self.grow_to(self.len + 1).is_none() {
            return false;
        }
        // SAFETY: as above; what is written behind the last entry is not one.
        unsafe { self.memory.add(self.len).write(value) };
        self.len += usize::from(really);
        true
    }

    /// Appends zeros; `false` without memory. Only for columns that never shrink: new memory is zeroed by the kernel.
    pub fn extend_zeroed(&mut self, n_entries: usize) -> bool {
        let len = self.len + n_entries;
        if len > self.capacity && self.grow_to(len).is_none() {
            return false;
        }
        self.len = len;
        true
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn pop(&mut self) -> Option<T> {
        let last = self.last().copied()?;
        self.len -= 1;
        Some(last)
    }

    /// Leaves out the first entries.
    pub fn remove_first(&mut self, n_entries: usize) {
        let n_entries = n_entries.min(self.len);
        self.copy_within(n_entries.., 0);
        self.len -= n_entries;
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    #[cold]
    fn grow_to(&mut self, len: usize) -> Option<()> {
        let old_bytes = self.capacity * size_of::<T>();
        let wanted = len.checked_mul(size_of::<T>())?;
        let bytes = wanted.max(old_bytes.checked_mul(2)?).max(FIRST);
        let bytes = bytes.checked_next_multiple_of(sys::page_len() as usize)?;
        let memory = if self.capacity == 0 {
            sys::map_private(bytes)
        } else {
            // SAFETY: the range is a mapping of this column's, and nobody keeps an address in it while it grows.
            unsafe {
                sys::remap(
                    self.memory.as_ptr().cast(),
                    old_bytes_mapped::<T>(self.capacity),
                    bytes,
                )
            }
        };
        let mapped = NonNull::new(memory.cast())?;
        if bytes >= LARGE {
            // SAFETY: the mapping has just been made, and is this column's.
            unsafe { sys::prefer_large_pages(memory, bytes) };
        }
        own_memory::add(bytes - old_bytes_mapped::<T>(self.capacity));
        self.memory = mapped;
        self.capacity = bytes / size_of::<T>();
        Some(())
    }
}

/// The bytes that were mapped for so many entries: whole pages.
fn old_bytes_mapped<T>(capacity: usize) -> usize {
    (capacity * size_of::<T>()).next_multiple_of(sys::page_len() as usize)
}

impl<T: Copy> Deref for Column<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` entries were written, or zeroed by the kernel for types made of numbers; without a
        // mapping there are none.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for Column<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl<T: Copy> Drop for Column<T> {
    fn drop(&mut self) {
        if self.capacity != 0 {
            let bytes = old_bytes_mapped::<T>(self.capacity);
            own_memory::remove(bytes);
            // SAFETY: the mapping is this column's, and it ends here.
            unsafe { sys::unmap(self.memory.as_ptr().cast(), bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_while_the_column_grows() {
        let mut column = Column::new();
        for number in 0..200_000_u64 {
            assert!(column.push(number * 3));
        }
        assert_eq!(column.len(), 200_000);
        assert!(
            column
                .iter()
                .enumerate()
                .all(|(at, value)| *value == at as u64 * 3)
        );
        assert_eq!(column.bytes(), 1_600_000);
        column.remove_first(199_999);
        assert_eq!(column[..], [599_997]);
        assert_eq!(column.pop(), Some(599_997));
        column.clear();
        assert!(column.is_empty());
    }

    #[test]
    fn zeroed_column_holds_zeros() {
        let column: Column<u32> = Column::zeroed(70_000).unwrap();
        assert_eq!(column.len(), 70_000);
        assert!(column.iter().all(|value| *value == 0));
    }
}
