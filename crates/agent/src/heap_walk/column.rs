//! A growing array in Heaptide's own memory: mapped, never from the program's heap. The kernel moves a large array when it
//! grows, so growing neither copies it nor needs twice its memory. Small ones are parts of an [`Arena`].

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use super::arena::Arena;
use crate::host::own_memory;
use crate::host::sys;

/// Bytes of the first mapping, outside an arena.
const FIRST: usize = 1 << 16;
/// Bytes of a column's first part of an arena, and of its largest. A part that is too small is left unused, so parts
/// grow fast.
const FIRST_PART: usize = 1 << 12;
const LARGEST_PART: usize = 4 << 20;
const PART_GROWTH: usize = 4;

/// Mappings of at least this many bytes use large pages.
const LARGE: usize = 4 << 20;

/// Types for which zeroed bytes are a valid value.
///
/// # Safety
/// All bytes of the type may be 0.
pub unsafe trait Zeroable: Copy {}

// SAFETY: 0 is a number.
unsafe impl Zeroable for u8 {}
// SAFETY: 0 is a number.
unsafe impl Zeroable for u32 {}
// SAFETY: 0 is a number.
unsafe impl Zeroable for u64 {}

/// An array of numbers or small structs. Without memory a push returns `false` and does not panic.
pub struct Column<T: Copy> {
    /// Dangling, but aligned, as long as the capacity is 0.
    memory: NonNull<T>,
    len: usize,
    capacity: usize,
    /// The arena that the memory is a part of; `None` for a mapping of its own.
    arena: Option<Arc<Arena>>,
}

impl<T: Copy> Column<T> {
    pub const fn new() -> Column<T> {
        Column {
            memory: NonNull::dangling(),
            len: 0,
            capacity: 0,
            arena: None,
        }
    }

    #[inline(always)]
    pub fn push(&mut self, value: T) -> bool {
        if self.len == self.capacity && self.grow_to(self.len + 1).is_none() {
            return false;
        }
        // SAFETY: the mapping holds `capacity` entries, which is more than `len`.
        unsafe { self.memory.add(self.len).write(value) };
        self.len += 1;
        true
    }

    /// Pushes the value if `condition` is true, without a branch that the processor would have to predict.
    #[inline(always)]
    pub fn push_if(&mut self, value: T, condition: bool) -> bool {
        if self.len == self.capacity && self.grow_to(self.len + 1).is_none() {
            return false;
        }
        // SAFETY: as in `push`; a value written after the last entry is ignored.
        unsafe { self.memory.add(self.len).write(value) };
        self.len += usize::from(condition);
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

    /// Removes the first entries.
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
        if (self.capacity == 0 || self.arena.is_some()) && self.grow_in_arena(wanted).is_some() {
            return Some(());
        }
        let bytes = wanted.max(old_bytes.checked_mul(2)?).max(FIRST);
        let bytes = bytes.checked_next_multiple_of(sys::page_len() as usize)?;
        let is_mapped = self.capacity != 0 && self.arena.is_none();
        let memory = if !is_mapped {
            sys::map_private(bytes)
        } else {
            // SAFETY: the range is this column's mapping, and `&mut self` rules out other references to it.
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
            // SAFETY: the mapping has just been made and belongs to this column.
            unsafe { sys::prefer_large_pages(memory, bytes) };
        }
        if is_mapped {
            own_memory::remove(old_bytes_mapped::<T>(self.capacity));
        } else {
            // SAFETY: the entries are in the arena or there are none, and the new mapping is larger and separate.
            unsafe { mapped.copy_from_nonoverlapping(self.memory, self.len) };
            self.arena = None;
        }
        own_memory::add(bytes);
        self.memory = mapped;
        self.capacity = bytes / size_of::<T>();
        Some(())
    }

    /// Moves the entries to a larger part of the arena; `None` if there is no arena, or not enough of it left.
    fn grow_in_arena(&mut self, wanted: usize) -> Option<()> {
        let old_bytes = self.capacity * size_of::<T>();
        let grown = old_bytes.checked_mul(PART_GROWTH)?.min(LARGEST_PART);
        let bytes = wanted.max(grown).max(FIRST_PART);
        if bytes > LARGEST_PART || align_of::<T>() > Arena::ALIGNMENT {
            return None;
        }
        let arena = self.arena.clone().or_else(Arena::current)?;
        let memory: NonNull<T> = arena.take(bytes)?.cast();
        // SAFETY: the new part is larger than the entries and overlaps nothing that is in use.
        unsafe { memory.copy_from_nonoverlapping(self.memory, self.len) };
        self.memory = memory;
        self.capacity = bytes / size_of::<T>();
        self.arena = Some(arena);
        Some(())
    }
}

impl<T: Zeroable> Column<T> {
    /// Returns a column of zeroed entries; `None` without memory.
    pub fn zeroed(len: usize) -> Option<Column<T>> {
        let mut column = Column::new();
        column.grow_to(len.max(1))?;
        column.len = len;
        Some(column)
    }

    /// Appends zeroed entries; `false` without memory. Only for columns that never shrink: the kernel zeroes new memory.
    pub fn extend_zeroed(&mut self, n_entries: usize) -> bool {
        let len = self.len + n_entries;
        if len > self.capacity && self.grow_to(len).is_none() {
            return false;
        }
        self.len = len;
        true
    }
}

/// Returns the bytes that were mapped for this capacity: whole pages.
fn old_bytes_mapped<T>(capacity: usize) -> usize {
    (capacity * size_of::<T>()).next_multiple_of(sys::page_len() as usize)
}

impl<T: Copy> Deref for Column<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` entries were written, or zeroed by the kernel and of a `Zeroable` type. Without
        // memory `len` is 0, and the dangling address is aligned.
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
        if self.capacity != 0 && self.arena.is_none() {
            let bytes = old_bytes_mapped::<T>(self.capacity);
            own_memory::remove(bytes);
            // SAFETY: the mapping belongs to this column, and nothing refers to it any more.
            unsafe { sys::unmap(self.memory.as_ptr().cast(), bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_values_while_the_column_grows() {
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
