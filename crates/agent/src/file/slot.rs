//! One slot: a part of the memory shared with the file, which one thread fills.
//!
//! Runs on: any thread. Allocates: never. Locks: never; the pool in [`super::store`] passes slots from owner to owner.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heaptide_capture::area::{ChunkHead, SlotHead};

/// Slots have two sizes. A thread begins with small ones, because most threads never fill them and a process that is killed
/// leaves them in its file. It continues with large ones, because every chunk starts with empty tables and repeats the
/// whole stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Small,
    Large,
}

/// The number of small chunks at the beginning of a stream.
const N_SMALL_CHUNKS: u32 = 4;

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
        if number < N_SMALL_CHUNKS {
            Size::Small
        } else {
            Size::Large
        }
    }
}

/// A slot by the address of its head. It has one owner at a time: the pool, the thread that fills it, or the one that
/// packs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub head: NonNull<u8>,
    pub size: Size,
}

// SAFETY: a slot passes from owner to owner under the pool's lock, and only its owner accesses its memory.
unsafe impl Send for Slot {}

impl Slot {
    pub fn payload(self) -> *mut u8 {
        // SAFETY: a slot is mapped memory that is longer than its head.
        unsafe { self.head.as_ptr().add(SlotHead::LEN) }
    }

    pub fn payload_len(self) -> usize {
        self.size.slot_len() - SlotHead::LEN
    }

    pub fn end(self) -> *mut u8 {
        // SAFETY: the result is one past the slot's last byte, which pointer arithmetic allows.
        unsafe { self.head.as_ptr().add(self.size.slot_len()) }
    }

    /// Publishes the number of complete bytes of the payload.
    #[inline(always)]
    pub fn commit(self, n_bytes: usize) {
        // SAFETY: the word lies within the slot's head and is aligned, because slots are page-aligned. Only the slot's
        // owner accesses it. Release keeps the stores to the payload before it, for readers of the file.
        unsafe { AtomicU64::from_ptr(self.head.as_ptr().add(SlotHead::COMMITTED_AT).cast()) }
            .store(n_bytes as u64, Ordering::Release);
    }

    /// Writes the head of a new chunk.
    pub fn begin(self, chunk: ChunkHead) {
        self.set_in_use(false);
        let head = SlotHead {
            chunk,
            committed: 0,
            in_use: false,
        };
        let bytes = head.to_bytes();
        // SAFETY: the head lies within the slot, which belongs to the caller alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.head.as_ptr(), bytes.len()) };
        self.set_in_use(true);
    }

    pub fn set_in_use(self, in_use: bool) {
        // SAFETY: the word lies within the slot's head and is aligned, because slots are page-aligned. Only the slot's
        // owner accesses it.
        unsafe { AtomicU32::from_ptr(self.head.as_ptr().add(SlotHead::IN_USE_AT).cast()) }
            .store(in_use.into(), Ordering::Release);
    }

    pub fn read_head(self) -> Option<SlotHead> {
        // SAFETY: the head lies within the slot, which belongs to the caller alone, so no other thread writes to it.
        SlotHead::from_bytes(unsafe {
            std::slice::from_raw_parts(self.head.as_ptr(), SlotHead::LEN)
        })
    }
}

/// A filled slot, with the fields of its block's head that the slot's head does not have.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    pub slot: Slot,
    pub n_events: u32,
    pub last_sequence: u64,
}
