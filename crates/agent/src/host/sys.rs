//! The system calls of the agent.
//!
//! A hook runs between the program's call and the program's read of `errno`, so a system call in a hook must be wrapped in
//! [`KeepErrno`].
//!
//! Runs on: any thread. Allocates: never. Locks: never. During fork/exit: no state.

use std::io;
use std::os::fd::RawFd;

/// Restores `errno` when it is dropped.
pub(crate) struct KeepErrno(libc::c_int);

impl KeepErrno {
    pub fn now() -> Self {
        // SAFETY: the C library gives every thread a valid address of its `errno`.
        KeepErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: the C library gives every thread a valid address of its `errno`.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

pub(crate) fn page_len() -> u64 {
    // SAFETY: `sysconf` has no preconditions.
    let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(len).unwrap_or(4096)
}

/// The operating system's ID of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: `gettid` has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Maps zeroed private memory, outside the program's heap. Returns null if the kernel refuses.
pub(crate) fn map_private(len: usize) -> *mut u8 {
    // SAFETY: an anonymous mapping at an address that the kernel chooses overlaps no other mapping.
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

/// Maps a part of a file as shared memory.
pub(crate) fn map_file(fd: RawFd, offset: u64, len: usize) -> io::Result<*mut u8> {
    // SAFETY: a mapping at an address that the kernel chooses overlaps no other mapping.
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

/// Replaces a mapping by zeroed private memory at the same address. Safe to call in a signal handler. Returns `false` if the
/// kernel refuses.
///
/// # Safety
/// `memory` and `len` describe a mapping made by this module, which stays mapped during the call.
pub(crate) unsafe fn replace_by_private(memory: *mut u8, len: usize) -> bool {
    // A direct system call: in an executable at a fixed address the C library's function could be a hook.
    // SAFETY: the caller promises that the range is a mapping of this module, so nothing else is replaced.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            memory,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1 as libc::c_long,
            0 as libc::c_long,
        )
    };
    result != -1
}

/// Unmaps memory.
///
/// # Safety
/// `memory` and `len` describe a mapping made by this module that is not used any more.
pub(crate) unsafe fn unmap(memory: *mut u8, len: usize) {
    // SAFETY: the caller promises that nothing uses this mapping.
    unsafe { libc::munmap(memory.cast(), len) };
}

/// Requests large pages, which cost less to fill; the kernel may refuse.
///
/// # Safety
/// `memory` and `len` describe a mapping made by [`map_private`].
pub(crate) unsafe fn prefer_large_pages(memory: *mut u8, len: usize) {
    let _errno = KeepErrno::now();
    // SAFETY: the caller promises that this is a mapping of this module, and the advice does not change its content.
    unsafe { libc::madvise(memory.cast(), len, libc::MADV_HUGEPAGE) };
}

/// Makes a mapping longer, which may move it. Returns null if the kernel refuses.
///
/// # Safety
/// `memory` and `len` describe a mapping made by [`map_private`]. If the call succeeds, no address in it is used any
/// more.
pub(crate) unsafe fn remap(memory: *mut u8, len: usize, new_len: usize) -> *mut u8 {
    // SAFETY: the caller promises that this is a mapping of this module which may move.
    let memory = unsafe { libc::mremap(memory.cast(), len, new_len, libc::MREMAP_MAYMOVE) };
    if memory == libc::MAP_FAILED {
        std::ptr::null_mut()
    } else {
        memory.cast()
    }
}

/// Reserves disk space for these bytes, so that writing to their mapping cannot raise SIGBUS.
pub(crate) fn reserve(fd: RawFd, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: the call takes numbers and no pointers.
    let result = unsafe { libc::fallocate(fd, 0, offset as libc::off_t, len as libc::off_t) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // A file system that cannot reserve: writing zeros has the same effect.
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

pub(crate) fn write_all_at(fd: RawFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length describe a live slice.
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

pub(crate) fn set_len(fd: RawFd, len: u64) -> io::Result<()> {
    // SAFETY: the call takes numbers and no pointers.
    match unsafe { libc::ftruncate(fd, len as libc::off_t) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn read_exact_at(fd: RawFd, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        // SAFETY: the pointer and the length describe a live slice that is borrowed mutably.
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

/// Runs a full memory barrier on all threads of the process, so that the hot path needs none. Returns `false` if the kernel
/// cannot do that.
pub(crate) fn barrier_on_all_threads() -> bool {
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    // SAFETY: `membarrier` takes numbers and no pointers.
    unsafe {
        libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0) == 0
            && libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0) == 0
    }
}

/// Writes one line to standard error with one system call, bypassing the program's buffers.
pub(crate) fn warn(message: &str) {
    let message = heaptide_capture::reason::without_error_numbers(message);
    let line = format!("heaptide: {message}\n");
    // A failed write cannot be reported anywhere.
    // SAFETY: the pointer and the length describe a live string.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}
