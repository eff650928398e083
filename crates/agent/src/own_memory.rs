//! How much memory the agent itself holds in the program: counted, so that it can be shown.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static BYTES: AtomicUsize = AtomicUsize::new(0);

pub fn add(n_bytes: usize) {
    BYTES.fetch_add(n_bytes, Ordering::Relaxed);
}

pub fn remove(n_bytes: usize) {
    BYTES.fetch_sub(n_bytes, Ordering::Relaxed);
}

pub fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// libc's allocator with a count: the global allocator of the extension module.
pub struct Counted;

// SAFETY: every call goes to the system's allocator with unchanged arguments; counting has no effect on memory.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        remove(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        add(new_size);
        remove(layout.size());
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
