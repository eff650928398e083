//! Two ways to read the memory of this process: plainly, and without trusting the address.
//!
//! The readers of this folder are written once over [`Memory`]. A hook uses [`Direct`], which compiles to loads. The
//! self-check uses [`Probed`], which lets the kernel do the reading, so that a wrong layout ends in a refusal instead
//! of a crash in somebody's program. Neither allocates.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// No object lives in the first page; an address there is a null pointer plus an offset.
const FIRST_PAGE: usize = 4096;

/// A source of bytes by address.
pub trait Memory {
    /// Fills `to` from the address and tells whether it could; on false `to` holds nothing of use.
    fn copy(&mut self, from: usize, to: &mut [u8]) -> bool;

    /// The pointer-sized word at an address.
    #[inline]
    fn word(&mut self, at: usize) -> Option<usize> {
        let mut bytes = [0; size_of::<usize>()];
        self.copy(at, &mut bytes)
            .then(|| usize::from_ne_bytes(bytes))
    }

    /// The 32-bit word at an address.
    #[inline]
    fn half(&mut self, at: usize) -> Option<u32> {
        let mut bytes = [0; 4];
        self.copy(at, &mut bytes).then(|| u32::from_ne_bytes(bytes))
    }

    /// The byte at an address.
    #[inline]
    fn byte(&mut self, at: usize) -> Option<u8> {
        let mut bytes = [0; 1];
        self.copy(at, &mut bytes).then_some(bytes[0])
    }
}

/// Reads by plain loads and refuses the first page only.
pub struct Direct(());

impl Direct {
    /// # Safety
    /// Every address that this value is asked for, outside the first page, must be readable, and nobody may write
    /// there at the same time.
    #[inline]
    pub const unsafe fn trusting() -> Self {
        Self(())
    }
}

impl Memory for Direct {
    #[inline]
    fn copy(&mut self, from: usize, to: &mut [u8]) -> bool {
        if from < FIRST_PAGE {
            return false;
        }
        // SAFETY: whoever made this value promised that what it is asked for is readable; `to` is a distinct,
        // exclusively borrowed buffer, so the two cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        true
    }
}

/// Reads through a pipe: writing from a bad address is an error code, not a signal.
pub struct Probed {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// A pipe holds at least one page, so a piece of this size never waits for a reader.
const PIECE: usize = 4096;

impl Probed {
    /// None if the process has no file descriptors left.
    pub fn open() -> Option<Self> {
        let mut ends = [-1; 2];
        // SAFETY: `ends` has room for the two descriptors the call writes.
        let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if made != 0 {
            return None;
        }
        // SAFETY: both descriptors were just made and belong to nobody else.
        unsafe {
            Some(Self {
                reader: OwnedFd::from_raw_fd(ends[0]),
                writer: OwnedFd::from_raw_fd(ends[1]),
            })
        }
    }

    fn piece(&mut self, from: usize, to: &mut [u8]) -> bool {
        // SAFETY: the kernel checks the source itself and answers EFAULT, or a short count, for what is not readable.
        let written =
            unsafe { libc::write(self.writer.as_raw_fd(), from as *const c_void, to.len()) };
        let Ok(written) = usize::try_from(written) else {
            return false;
        };
        // What went in is taken out in any case, so that the next piece finds the pipe empty.
        // SAFETY: `written` is at most `to.len()`, and `to` is writable for its whole length.
        let read = unsafe { libc::read(self.reader.as_raw_fd(), to.as_mut_ptr().cast(), written) };
        written == to.len() && usize::try_from(read) == Ok(written)
    }
}

impl Memory for Probed {
    fn copy(&mut self, from: usize, to: &mut [u8]) -> bool {
        let mut at = from;
        to.chunks_mut(PIECE).all(|piece| {
            let done = at >= FIRST_PAGE && self.piece(at, piece);
            at = at.wrapping_add(piece.len());
            done
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One readable page followed by one that is not.
    struct TwoPages(usize);

    impl TwoPages {
        fn map() -> Self {
            // SAFETY: a fresh private mapping at an address of the kernel's choice touches nobody's memory.
            let start = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    2 * FIRST_PAGE,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            assert_ne!(start, libc::MAP_FAILED);
            let second = start.wrapping_byte_add(FIRST_PAGE);
            // SAFETY: the second page is part of the mapping made above and nothing refers to it.
            let closed = unsafe { libc::mprotect(second, FIRST_PAGE, libc::PROT_NONE) };
            assert_eq!(closed, 0);
            Self(start as usize)
        }
    }

    impl Drop for TwoPages {
        fn drop(&mut self) {
            // SAFETY: the mapping was made by `map` and ends here.
            unsafe { libc::munmap(self.0 as *mut c_void, 2 * FIRST_PAGE) };
        }
    }

    #[test]
    fn probing_reads_what_is_there() {
        let source: Vec<u8> = (0..10_000_u32).map(|n| (n % 251) as u8).collect();
        let mut copy = vec![0; source.len()];
        let mut memory = Probed::open().unwrap();
        assert!(memory.copy(source.as_ptr() as usize, &mut copy));
        assert_eq!(copy, source);
    }

    #[test]
    fn probing_an_unreadable_address_says_no_and_the_next_read_is_right() {
        let pages = TwoPages::map();
        let mut memory = Probed::open().unwrap();
        assert_eq!(memory.word(0), None);
        assert_eq!(memory.word(16), None);
        assert_eq!(memory.word(usize::MAX - 3), None);
        assert_eq!(memory.word(pages.0 + FIRST_PAGE), None);
        assert_eq!(memory.word(pages.0 + FIRST_PAGE - 4), None);
        let value = 0x1234_5678_usize;
        assert_eq!(memory.word(&raw const value as usize), Some(value));
    }

    #[test]
    fn plain_reading_refuses_null_plus_an_offset() {
        // SAFETY: only the first page, which is refused, and a live local are asked for.
        let mut memory = unsafe { Direct::trusting() };
        assert_eq!(memory.word(0), None);
        assert_eq!(memory.half(4095), None);
        let value = 7_u32;
        assert_eq!(memory.half(&raw const value as usize), Some(7));
    }
}
