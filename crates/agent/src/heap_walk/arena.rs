//! A mapping that the columns of one walk share while they are small. It uses large pages: a walk of a small heap would
//! otherwise spend a fifth of its time in page faults.
//!
//! Parts are handed out one after the other and never reused, so each is zeroed. The mapping is freed with the last column
//! in it.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::host::own_memory;
use crate::host::sys;

/// Bytes of an arena; a multiple of a large page. They take memory only when they are used.
const LEN: usize = 16 << 20;
/// Bytes of a large page.
const LARGE_PAGE: usize = 2 << 20;

thread_local! {
    /// The arena of the walk that this thread does.
    static CURRENT: Cell<Option<Arc<Arena>>> = const { Cell::new(None) };
}

pub struct Arena {
    /// A mapping with room for `LEN` bytes from a multiple of a large page on.
    mapping: NonNull<u8>,
    used: AtomicUsize,
}

// SAFETY: the mapping belongs to the arena, no two calls hand out the same part of it, and the counter is atomic.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Parts start at multiples of this.
    pub const ALIGNMENT: usize = 64;

    fn new() -> Option<Arena> {
        let memory = sys::map_private(LEN + LARGE_PAGE);
        let mapping = NonNull::new(memory)?;
        let arena = Arena {
            mapping,
            used: AtomicUsize::new(0),
        };
        // SAFETY: the range is inside the mapping, which has just been made.
        unsafe { sys::prefer_large_pages(arena.begin().as_ptr(), LEN) };
        Some(arena)
    }

    /// Returns the first multiple of a large page in the mapping.
    fn begin(&self) -> NonNull<u8> {
        let offset = self.mapping.align_offset(LARGE_PAGE);
        // SAFETY: the mapping is a large page longer than `LEN`, so the offset is inside it.
        unsafe { self.mapping.add(offset) }
    }

    /// Returns the arena of this thread's walk.
    pub fn current() -> Option<Arc<Arena>> {
        let read = |current: &Cell<Option<Arc<Arena>>>| {
            let arena = current.take();
            current.set(arena.clone());
            arena
        };
        CURRENT.try_with(read).ok()?
    }

    /// Returns zeroed bytes that nothing else uses; `None` if too few are left.
    pub fn take(&self, n_bytes: usize) -> Option<NonNull<u8>> {
        let n_bytes = n_bytes.checked_next_multiple_of(Self::ALIGNMENT)?;
        let next = |used: usize| used.checked_add(n_bytes).filter(|end| *end <= LEN);
        let order = Ordering::Relaxed;
        let offset = self.used.fetch_update(order, order, next).ok()?;
        own_memory::add(n_bytes);
        // SAFETY: `offset + n_bytes` is at most `LEN`, and as many bytes are mapped from `begin` on.
        Some(unsafe { self.begin().add(offset) })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        own_memory::remove(self.used.load(Ordering::Relaxed));
        // SAFETY: the mapping belongs to this arena, and every column in it holds a reference to the arena.
        unsafe { sys::unmap(self.mapping.as_ptr(), LEN + LARGE_PAGE) };
    }
}

/// As long as this exists, new columns of the calling thread are parts of one arena.
pub struct ArenaScope(());

impl ArenaScope {
    /// Without memory for an arena, columns have mappings of their own.
    pub fn enter() -> ArenaScope {
        let _ = CURRENT.try_with(|current| current.replace(Arena::new().map(Arc::new)));
        ArenaScope(())
    }
}

impl Drop for ArenaScope {
    fn drop(&mut self) {
        let _ = CURRENT.try_with(|current| current.take());
    }
}

#[cfg(test)]
mod tests {
    use super::super::column::Column;
    use super::*;

    #[test]
    fn columns_of_an_arena_outlive_its_scope() {
        let scope = ArenaScope::enter();
        let arena = Arena::current().unwrap();
        let (mut one, mut other) = (Column::<u32>::new(), Column::<u64>::new());
        for number in 0..100_000 {
            assert!(one.push(number) && other.push(u64::from(number) * 2));
        }
        let zeroed: Column<u8> = Column::zeroed(5000).unwrap();
        assert!(Arc::strong_count(&arena) > 3);
        drop(scope);
        assert!(Arena::current().is_none());
        drop(arena);
        assert!(
            one.iter()
                .enumerate()
                .all(|(at, value)| *value == at as u32)
        );
        assert!(
            other
                .iter()
                .enumerate()
                .all(|(at, value)| *value == at as u64 * 2)
        );
        assert!(zeroed.iter().all(|value| *value == 0));
    }

    #[test]
    fn columns_too_large_for_the_arena_keep_their_values() {
        let _scope = ArenaScope::enter();
        let mut columns: Vec<Column<u64>> = (0..6).map(|_| Column::new()).collect();
        for number in 0..400_000 {
            assert!(columns.iter_mut().all(|column| column.push(number)));
        }
        let is_whole = |column: &Column<u64>| column.iter().copied().eq(0..400_000);
        assert!(columns.iter().all(is_whole));
    }
}
