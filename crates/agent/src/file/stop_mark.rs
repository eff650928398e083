//! Writes the stop mark of a failed recording into memory shared with the file. This needs no disk space and no lock.
//!
//! Runs on: the thread that finds the failure, also in a signal handler. Allocates: never. Locks: never.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heaptide_capture::StopMark;
use heaptide_capture::stop_mark::STOP_MAGIC;

/// The mark of one capture, by its address in the head of the first extent.
#[derive(Clone, Copy)]
pub struct StopMarkMemory(*mut u8);

// SAFETY: the fields are only accessed as atomics, except the reason, which is written once and before the magic number.
unsafe impl Send for StopMarkMemory {}
// SAFETY: as above.
unsafe impl Sync for StopMarkMemory {}

impl StopMarkMemory {
    /// # Safety
    /// `extent` is the address of a mapped extent of this session, page-aligned and with a whole page before its slots.
    pub unsafe fn of_extent(extent: *mut u8) -> StopMarkMemory {
        // SAFETY: the mark lies within the page that the caller promises.
        StopMarkMemory(unsafe { extent.add(StopMark::AT) })
    }

    /// Writes the mark. Called once per session.
    pub fn write(self, time: u64, reason: &str) {
        let reason = reason.as_bytes();
        let len = reason.len().min(StopMark::MAX_REASON_LEN);
        // SAFETY: all offsets lie within the mark, which lies in mapped memory and is aligned to eight bytes. Readers of the
        // file trust the other fields only if they see the magic number, which is stored last.
        unsafe {
            std::ptr::copy_nonoverlapping(reason.as_ptr(), self.0.add(StopMark::REASON_AT), len);
            AtomicU32::from_ptr(self.0.add(StopMark::REASON_LEN_AT).cast())
                .store(len as u32, Ordering::Relaxed);
            AtomicU64::from_ptr(self.0.add(StopMark::TIME_AT).cast())
                .store(time, Ordering::Relaxed);
            AtomicU64::from_ptr(self.0.cast()).store(STOP_MAGIC, Ordering::Release);
        }
    }

    /// The counter of dropped events.
    pub fn n_dropped(self) -> *mut AtomicU64 {
        // SAFETY: the offset lies within the mark.
        unsafe { self.0.add(StopMark::DROPPED_AT).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_mark_can_be_read_with_its_count() {
        let mut extent = [0u64; 64];
        let memory = extent.as_mut_ptr().cast();
        // SAFETY: the array is aligned and longer than the end of the mark.
        let mark = unsafe { StopMarkMemory::of_extent(memory) };
        mark.write(42, "could not write the capture: disk full");
        // SAFETY: the counter lies in the array, which is alive.
        unsafe { &*mark.n_dropped() }.fetch_add(7, Ordering::Relaxed);
        let bytes: Vec<u8> = extent.iter().flat_map(|word| word.to_le_bytes()).collect();
        let expected = StopMark {
            time: 42,
            n_dropped: 7,
            reason: "could not write the capture: disk full".into(),
        };
        assert_eq!(StopMark::from_bytes(&bytes[StopMark::AT..]), Some(expected));
    }
}
