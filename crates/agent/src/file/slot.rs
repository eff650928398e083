//! One slot: a piece of memory shared with the file, which one thread fills.
//!
//! Runs on: any thread. Allocates: never. Locks: never; the pool in `store.rs` hands slots from owner to owner.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heaptide_capture::area::{ChunkHead, SlotHead};

/// Slots come in two sizes: a thread begins with a small one, because most threads never fill it, and goes on with
/// large ones, because every chunk repeats what the one before knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Small,
    Large,
}

impl Size {
    pub fn slot_len(self) -> usize {
        match self {
            Size::Small => 16 * 1024,
            Size::Large => 128 * 1024,
        }
    }

    pub fn slots_per_extent(self) -> usize {
        match self {
            Size::Small => 16,
            Size::Large => 8,
        }
    }

    /// The size for the chunk of this number in its stream.
    pub fn of_chunk(number: u32) -> Size {
        if number == 0 {
            Size::Small
        } else {
            Size::Large
        }
    }
}

/// A slot by the address of its head. Belongs to one owner at a time: the pool, a thread, or whoever packs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub head: NonNull<u8>,
    pub size: Size,
}

// SAFETY: a slot is handed from owner to owner through the pool's lock; there is no access without owning it.
unsafe impl Send for Slot {}

impl Slot {
    pub fn payload(self) -> *mut u8 {
        // SAFETY: a slot is mapped memory, longer than its head.
        unsafe { self.head.as_ptr().add(SlotHead::LEN) }
    }

    pub fn payload_len(self) -> usize {
        self.size.slot_len() - SlotHead::LEN
    }

    pub fn end(self) -> *mut u8 {
        // SAFETY: one past the slot's last byte.
        unsafe { self.head.as_ptr().add(self.size.slot_len()) }
    }

    /// Publishes how many bytes of the payload are complete.
    #[inline(always)]
    pub fn commit(self, n_bytes: usize) {
        // SAFETY: the place lies within the slot's head and is aligned, because slots are page-aligned. Readers of
        // the file see either value; release keeps the payload's stores before it.
        unsafe { AtomicU64::from_ptr(self.head.as_ptr().add(SlotHead::COMMITTED_AT).cast()) }
            .store(n_bytes as u64, Ordering::Release);
    }

    pub fn begin(self, chunk: ChunkHead) {
        self.set_in_use(false);
        let head = SlotHead {
            chunk,
            committed: 0,
            in_use: false,
        };
        let bytes = head.to_bytes();
        // SAFETY: the head lies within the slot, and the caller owns the slot.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.head.as_ptr(), bytes.len()) };
        self.set_in_use(true);
    }

    pub fn set_in_use(self, in_use: bool) {
        // SAFETY: as in `commit`.
        unsafe { AtomicU32::from_ptr(self.head.as_ptr().add(SlotHead::IN_USE_AT).cast()) }
            .store(in_use.into(), Ordering::Release);
    }

    pub fn read_head(self) -> Option<SlotHead> {
        // SAFETY: the head lies within the slot; the caller owns the slot, so nobody writes to it.
        SlotHead::from_bytes(unsafe {
            std::slice::from_raw_parts(self.head.as_ptr(), SlotHead::LEN)
        })
    }
}

/// A slot that is full, with what its block's head says beyond the slot's own.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    pub slot: Slot,
    pub n_events: u32,
    pub last_sequence: u64,
}
