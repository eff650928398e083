//! An allocator that counts the bytes of the process, for tests that limit the memory of a function.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A test binary that measures memory declares a `#[global_allocator]` of this type.
#[derive(Debug)]
pub struct CountingAllocator {
    held: AtomicUsize,
    peak: AtomicUsize,
}

impl CountingAllocator {
    #[expect(
        clippy::new_without_default,
        reason = "a static cannot be initialised by `Default`"
    )]
    pub const fn new() -> CountingAllocator {
        CountingAllocator {
            held: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        }
    }

    /// Runs `work`. Returns the peak of the bytes that all threads held during it, minus the bytes held before, and the
    /// result of `work`.
    pub fn peak_of<T>(&self, work: impl FnOnce() -> T) -> (usize, T) {
        let before = self.held.load(Ordering::Relaxed);
        self.peak.store(before, Ordering::Relaxed);
        let result = work();
        let peak = self.peak.load(Ordering::Relaxed);
        (peak.saturating_sub(before), result)
    }
}

// SAFETY: every call is passed to the system's allocator unchanged; the counters touch no memory it manages.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = self.held.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        self.peak.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller guarantees a valid layout, as `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.held.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `alloc` above, that is from `System`, with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}
