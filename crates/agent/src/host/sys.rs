//! The system calls the agent makes, each with the one promise its callers need: `errno` stays the program's own.
//!
//! Hooks run between a program's call and its look at `errno`, so whatever the agent asks of the kernel in a hook is
//! wrapped in [`KeepErrno`].
//!
//! Runs on: any thread. Allocates: never. Locks: never. During fork/exit: no state.

use std::io;
use std::os::fd::RawFd;

/// Puts `errno` back when it goes out of scope.
pub struct KeepErrno(libc::c_int);

impl KeepErrno {
    pub fn now() -> Self {
        // SAFETY: libc gives every thread a valid errno place.
        KeepErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: as above; the guard does not leave its thread.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

pub fn page_len() -> u64 {
    // SAFETY: no preconditions.
    let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(len).unwrap_or(4096)
}

pub fn thread_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Fresh zeroed private memory that does not come from the program's heap; null when the kernel refuses.
pub fn map_private(len: usize) -> *mut u8 {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        std::ptr::null_mut()
    } else {
        memory.cast()
    }
}

/// Memory shared with a part of a file.
pub fn map_file(fd: RawFd, offset: u64, len: usize) -> io::Result<*mut u8> {
    // SAFETY: a mapping at an address of the kernel's choice touches nothing that exists.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd,
            offset as libc::off_t,
        )
    };
    if memory == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(memory.cast())
    }
}

/// # Safety
/// `memory` and `len` name a mapping made by this module that nobody uses any more.
pub unsafe fn unmap(memory: *mut u8, len: usize) {
    // SAFETY: passed on to the caller.
    unsafe { libc::munmap(memory.cast(), len) };
}

/// Asks for large pages, which cost less to fill; the kernel may refuse.
///
/// # Safety
/// `memory` and `len` name a mapping made by [`map_private`].
pub unsafe fn prefer_large_pages(memory: *mut u8, len: usize) {
    let _errno = KeepErrno::now();
    // SAFETY: passed on to the caller; the content stays as it is.
    unsafe { libc::madvise(memory.cast(), len, libc::MADV_HUGEPAGE) };
}

/// A longer mapping with the same content, wherever the kernel finds room for it; null when it refuses.
///
/// # Safety
/// `memory` and `len` name a mapping made by [`map_private`] into which nobody keeps an address.
pub unsafe fn remap(memory: *mut u8, len: usize, new_len: usize) -> *mut u8 {
    // SAFETY: passed on to the caller.
    let memory = unsafe { libc::mremap(memory.cast(), len, new_len, libc::MREMAP_MAYMOVE) };
    if memory == libc::MAP_FAILED {
        std::ptr::null_mut()
    } else {
        memory.cast()
    }
}

/// Makes sure that the disk has these bytes, so that writing to their mapping can never fail with a signal.
pub fn reserve(fd: RawFd, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: works on a file descriptor, not on memory.
    let result = unsafe { libc::fallocate(fd, 0, offset as libc::off_t, len as libc::off_t) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // The file system cannot reserve: write zeros, which comes to the same.
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => {
            let zeros = [0u8; 4096];
            let mut done = 0;
            while done < len {
                let step = (len - done).min(zeros.len() as u64);
                write_all_at(fd, &zeros[..step as usize], offset + done)?;
                done += step;
            }
            Ok(())
        }
        _ => Err(error),
    }
}

pub fn write_all_at(fd: RawFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and length are those of a live slice.
        let written = unsafe {
            libc::pwrite(
                fd,
                bytes.as_ptr().cast(),
                bytes.len(),
                offset as libc::off_t,
            )
        };
        match written {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            1.. => {
                bytes = &bytes[written as usize..];
                offset += written as u64;
            }
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

pub fn read_exact_at(fd: RawFd, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        // SAFETY: the pointer and length are those of a live slice.
        let read = unsafe {
            libc::pread(
                fd,
                rest.as_mut_ptr().cast(),
                rest.len(),
                (offset + done as u64) as libc::off_t,
            )
        };
        match read {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            1.. => done += read as usize,
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// A full memory barrier on all running threads of the process: the expensive half of a pair whose cheap half is
/// "nothing". `false` if the kernel has none.
pub fn barrier_on_all_threads() -> bool {
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    // SAFETY: membarrier takes no pointers.
    unsafe {
        libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0) == 0
            && libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0) == 0
    }
}

/// One line on standard error, in one piece, without touching the program's buffers.
pub fn complain(message: &str) {
    let line = format!("heaptide: {message}\n");
    // SAFETY: the pointer and length are those of a live string. A failed write leaves nothing to do.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}
