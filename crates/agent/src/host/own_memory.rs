//! Heaptide's own memory in the process: counted for reports, with a reserve for the case that the C library has none left.
//!
//! A Rust program aborts when its allocator fails. Inside another program that must not happen. If the C library has no
//! memory left, Heaptide uses a small reserve that was mapped at the start, and abandons the recording.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::host::sys;

static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Address space; it takes memory only when it is used.
const RESERVE_BYTES: usize = 8 << 20;
/// Address of the reserve; 0 before it exists.
static RESERVE: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the reserve in use. They are never freed: the session ends soon after the first use.
static RESERVE_USED: AtomicUsize = AtomicUsize::new(0);
static RAN_OUT: AtomicBool = AtomicBool::new(false);

pub fn add(n_bytes: usize) {
    BYTES.fetch_add(n_bytes, Ordering::Relaxed);
}

pub(crate) fn remove(n_bytes: usize) {
    BYTES.fetch_sub(n_bytes, Ordering::Relaxed);
}

pub fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// Maps the reserve, once. Returns `false` if there is no memory for it, or if too little of it is left.
pub(crate) fn prepare_reserve() -> bool {
    RAN_OUT.store(false, Ordering::Relaxed);
    if RESERVE.load(Ordering::Acquire) != 0 {
        // It is never replaced: parts of it may still be in use.
        return RESERVE_USED.load(Ordering::Relaxed) < RESERVE_BYTES / 2;
    }
    let memory = sys::map_private(RESERVE_BYTES);
    RESERVE.store(memory as usize, Ordering::Release);
    !memory.is_null()
}

/// Whether the C library has run out of memory since the reserve was prepared.
pub(crate) fn ran_out() -> bool {
    RAN_OUT.load(Ordering::Relaxed)
}

fn is_reserve(pointer: *mut u8) -> bool {
    let reserve = RESERVE.load(Ordering::Acquire);
    reserve != 0 && (pointer as usize).wrapping_sub(reserve) < RESERVE_BYTES
}

/// Zeroed memory from the reserve; null when the reserve is used up.
#[cold]
fn from_reserve(layout: Layout) -> *mut u8 {
    RAN_OUT.store(true, Ordering::Relaxed);
    let reserve = RESERVE.load(Ordering::Acquire);
    let align = layout.align().max(16);
    let used = RESERVE_USED.fetch_add(layout.size() + align, Ordering::Relaxed);
    if reserve == 0 || used + layout.size() + align > RESERVE_BYTES {
        return std::ptr::null_mut();
    }
    (reserve + used).next_multiple_of(align) as *mut u8
}

/// The C library's functions, called directly. In an executable at a fixed address even Heaptide's own calls of
/// `malloc` would go through the executable's import slot, which holds the hook.
mod libc_heap {
    use std::alloc::{GlobalAlloc, Layout, System};

    use crate::hooks::real;

    /// The C library aligns every block to this.
    const ALIGN: usize = 16;

    /// # Safety
    /// As for [`GlobalAlloc::alloc`].
    pub(crate) unsafe fn alloc(layout: Layout) -> *mut u8 {
        let (Some(malloc), Some(posix_memalign)) = (
            real::malloc.get_if_found(),
            real::posix_memalign.get_if_found(),
        ) else {
            // SAFETY: the caller keeps the contract of `alloc`.
            return unsafe { System.alloc(layout) };
        };
        if layout.align() <= ALIGN {
            return malloc(layout.size()).cast();
        }
        let mut block = std::ptr::null_mut();
        posix_memalign(&mut block, layout.align(), layout.size());
        block.cast()
    }

    /// # Safety
    /// As for [`GlobalAlloc::dealloc`].
    pub unsafe fn free(pointer: *mut u8, layout: Layout) {
        match real::free.get_if_found() {
            Some(free) => free(pointer.cast()),
            // SAFETY: the caller keeps the contract of `dealloc`, and System's blocks are those of the C library.
            None => unsafe { System.dealloc(pointer, layout) },
        }
    }
}

/// The C library's allocator with a count and a reserve: the global allocator of the extension module.
pub struct Counted;

// SAFETY: every call goes to the C library's allocator with unchanged arguments, or to the reserve. The reserve is never
// unmapped, and its aligned pieces do not overlap and are used once.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        let block = unsafe { libc_heap::alloc(layout) };
        if block.is_null() {
            from_reserve(layout)
        } else {
            block
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        remove(layout.size());
        if !is_reserve(pointer) {
            // SAFETY: the caller keeps the contract of `dealloc`, and a block outside the reserve is the C library's.
            unsafe { libc_heap::free(pointer, layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is that of `alloc`.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: `alloc` returned a block of this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Ok(new_layout) = Layout::from_size_align(new_size, layout.align()) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the caller keeps the contract of `realloc`, which includes that of `alloc` for the new size.
        let block = unsafe { self.alloc(new_layout) };
        if !block.is_null() {
            // SAFETY: both blocks are at least this long and do not overlap, because the new one was just allocated. The
            // caller keeps the contract of `realloc`, so the old block may be freed.
            unsafe {
                std::ptr::copy_nonoverlapping(pointer, block, layout.size().min(new_size));
                self.dealloc(pointer, layout);
            }
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_gives_aligned_pieces_that_do_not_overlap_until_it_is_used_up() {
        assert!(prepare_reserve());
        assert!(!ran_out());
        let layout = Layout::from_size_align(1000, 64).unwrap();
        let (first, second) = (from_reserve(layout), from_reserve(layout));
        assert!(is_reserve(first) && is_reserve(second));
        assert_eq!(first as usize % 64, 0);
        assert!(second as usize >= first as usize + 1000);
        assert!(ran_out());
        assert!(prepare_reserve());
        assert!(!ran_out());
        assert!(from_reserve(Layout::from_size_align(RESERVE_BYTES, 16).unwrap()).is_null());
        assert!(!prepare_reserve());
    }
}
