//! Two ways to read the memory of this process: by plain loads, and through the kernel, which checks every address.
//!
//! The readers in this folder are generic over [`Memory`]. A hook uses [`Direct`], which compiles to loads. The
//! self-check uses [`Probed`], so that a wrong layout causes an error instead of a crash of the user's program.
//! Neither allocates.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// No object lives in the first page; an address there is a null pointer plus an offset.
const FIRST_PAGE: usize = 4096;

/// A source of bytes by address.
///
/// All methods have one contract: the bytes must be readable, and no other thread may write them at the same time.
/// An implementation may check addresses itself and accept any address, as [`Probed`] does; [`Direct`] checks only the first
/// page. A reader that is generic over `Memory` passes the contract on to its caller.
pub trait Memory {
    /// Fills `to` from the address. Returns `false` if it could not; then the content of `to` is undefined.
    ///
    /// # Safety
    /// As for the trait, for `to.len()` bytes at `from`.
    unsafe fn copy(&mut self, from: usize, to: &mut [u8]) -> bool;

    /// Returns the pointer-sized word at an address.
    ///
    /// # Safety
    /// As for the trait, for 8 bytes.
    #[inline]
    unsafe fn word(&mut self, at: usize) -> Option<usize> {
        let mut bytes = [0; size_of::<usize>()];
        // SAFETY: passed on from the caller.
        unsafe { self.copy(at, &mut bytes) }.then(|| usize::from_ne_bytes(bytes))
    }

    /// Returns the 32-bit word at an address.
    ///
    /// # Safety
    /// As for the trait, for 4 bytes.
    #[inline]
    unsafe fn half(&mut self, at: usize) -> Option<u32> {
        let mut bytes = [0; 4];
        // SAFETY: passed on from the caller.
        unsafe { self.copy(at, &mut bytes) }.then(|| u32::from_ne_bytes(bytes))
    }

    /// Returns the byte at an address.
    ///
    /// # Safety
    /// As for the trait, for 1 byte.
    #[inline]
    unsafe fn byte(&mut self, at: usize) -> Option<u8> {
        let mut bytes = [0; 1];
        // SAFETY: passed on from the caller.
        unsafe { self.copy(at, &mut bytes) }.then_some(bytes[0])
    }
}

/// Reads by plain loads and refuses only the first page.
pub struct Direct;

impl Memory for Direct {
    #[inline]
    unsafe fn copy(&mut self, from: usize, to: &mut [u8]) -> bool {
        if from < FIRST_PAGE {
            return false;
        }
        // SAFETY: the caller promises that the bytes are readable and not written meanwhile; `to` is borrowed
        // exclusively, so the two ranges cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        true
    }
}

/// Reads through a pipe: `write` from an unreadable address returns an error code and raises no signal.
pub struct Probed {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// A pipe holds at least one page, so writing a piece of this size never blocks.
const PIECE: usize = 4096;

impl Probed {
    /// Returns `None` if the process has no file descriptors left.
    pub fn open() -> Option<Self> {
        let mut ends = [-1; 2];
        // SAFETY: `ends` has room for the two descriptors the call writes.
        let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if made != 0 {
            return None;
        }
        // SAFETY: `pipe2` has just made both descriptors, and nothing else owns them.
        unsafe {
            Some(Self {
                reader: OwnedFd::from_raw_fd(ends[0]),
                writer: OwnedFd::from_raw_fd(ends[1]),
            })
        }
    }

    fn piece(&mut self, from: usize, to: &mut [u8]) -> bool {
        // SAFETY: the kernel checks the source and returns EFAULT or a short count if it is not readable.
        let written =
            unsafe { libc::write(self.writer.as_raw_fd(), from as *const c_void, to.len()) };
        let Ok(written) = usize::try_from(written) else {
            return false;
        };
        // A short write is also drained, so that the next piece finds the pipe empty.
        // SAFETY: `written` is at most `to.len()`, and `to` is writable for its whole length.
        let read = unsafe { libc::read(self.reader.as_raw_fd(), to.as_mut_ptr().cast(), written) };
        written == to.len() && usize::try_from(read) == Ok(written)
    }
}

impl Memory for Probed {
    unsafe fn copy(&mut self, from: usize, to: &mut [u8]) -> bool {
        self.copy(from, to)
    }
}

/// The same reads without a contract: the kernel checks every address.
impl Probed {
    pub fn copy(&mut self, from: usize, to: &mut [u8]) -> bool {
        let mut at = from;
        to.chunks_mut(PIECE).all(|piece| {
            let done = at >= FIRST_PAGE && self.piece(at, piece);
            at = at.wrapping_add(piece.len());
            done
        })
    }

    pub fn word(&mut self, at: usize) -> Option<usize> {
        // SAFETY: `copy` above accepts any address.
        unsafe { Memory::word(self, at) }
    }

    pub fn half(&mut self, at: usize) -> Option<u32> {
        // SAFETY: `copy` above accepts any address.
        unsafe { Memory::half(self, at) }
    }

    pub fn byte(&mut self, at: usize) -> Option<u8> {
        // SAFETY: `copy` above accepts any address.
        unsafe { Memory::byte(self, at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One readable page followed by one that is not.
    struct TwoPages(usize);

    impl TwoPages {
        fn map() -> Self {
            // SAFETY: a fresh private mapping at an address that the kernel chooses overlaps no other memory.
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
    fn probing_reads_the_bytes_of_a_readable_range() {
        let source: Vec<u8> = (0..10_000_u32).map(|n| (n % 251) as u8).collect();
        let mut copy = vec![0; source.len()];
        let mut memory = Probed::open().unwrap();
        assert!(memory.copy(source.as_ptr() as usize, &mut copy));
        assert_eq!(copy, source);
    }

    #[test]
    fn probing_an_unreadable_address_fails_and_the_next_read_succeeds() {
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
        let value = 7_u32;
        // SAFETY: the addresses are in the first page, which is refused, or that of a live local variable.
        unsafe {
            assert_eq!(Direct.word(0), None);
            assert_eq!(Direct.half(4095), None);
            assert_eq!(Direct.half(&raw const value as usize), Some(7));
        }
    }
}
