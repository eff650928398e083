//! An open file of Heaptide in the program's table of descriptors.
//!
//! A program may close descriptors that it did not open (`os.closerange` before it becomes a daemon, for example), and the
//! number may then belong to another file. So Heaptide gives its file a high number, stores its device and inode, and
//! compares them before every use. If they differ, the descriptor is neither written to nor closed, and a thread of the
//! program opens the file again. Heaptide's own threads must not: for an instant the new descriptor has the lowest free
//! number, which the program may expect for its next file. A thread of the program that executes this code is not opening a
//! file itself at that instant.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// The maximum number of attempts to lock the file, with the pause below between them.
const MAX_LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

pub struct OwnFile {
    fd: AtomicI32,
    identity: Identity,
}

/// Device and inode.
type Identity = (u64, u64);

impl OwnFile {
    /// Takes `file` over, under a number that programs do not expect for their next descriptor.
    pub fn new(file: File) -> io::Result<OwnFile> {
        let file = with_high_number(file);
        let (identity, _) = status(file.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        Ok(OwnFile {
            fd: AtomicI32::new(file.into_raw_fd()),
            identity,
        })
    }

    /// Opens the file again after the program has closed its descriptor. Only for threads of the program.
    pub fn open_again(&self, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            // The name may belong to another file by now, such as a pipe, which must not block.
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        if status(file.as_raw_fd()).map(|(identity, _)| identity) != Some(self.identity) {
            return Err(io::Error::other("another file has its name"));
        }
        self.fd
            .store(with_high_number(file).into_raw_fd(), Ordering::Release);
        self.lock();
        Ok(())
    }

    /// Locks the file. The lock shows other processes, also in other containers, that the file is being written. Does nothing
    /// if the file system has no locks.
    pub fn lock(&self) {
        self.lock_with(|| std::thread::sleep(LOCK_PAUSE));
    }

    /// A reader that checks whether the file is being written holds its lock for an instant. Without Heaptide's lock the
    /// capture would appear finished for the whole recording, so this waits for that instant, but not for a reader that keeps
    /// the lock.
    fn lock_with(&self, mut pause: impl FnMut()) {
        for _ in 0..MAX_LOCK_TRIES {
            let Ok(fd) = self.fd() else { return };
            // SAFETY: the call takes numbers and no pointers.
            let is_locked = unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) } == 0;
            if is_locked || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock {
                return;
            }
            pause();
        }
    }

    /// The descriptor, if it still belongs to the same file.
    pub fn fd(&self) -> io::Result<RawFd> {
        self.fd_and_len().map(|(fd, _)| fd)
    }

    /// The descriptor, if it still belongs to the same file, and the length of the file.
    pub fn fd_and_len(&self) -> io::Result<(RawFd, u64)> {
        let fd = self.fd.load(Ordering::Acquire);
        match status(fd) {
            Some((identity, len)) if identity == self.identity => Ok((fd, len)),
            _ => Err(io::Error::other("the program has closed the file")),
        }
    }

    /// Closes the descriptor in a forked child. The lock stays, because it also belongs to the parent.
    pub fn close_after_fork(&self) {
        if let Ok(fd) = self.fd() {
            self.fd.store(-1, Ordering::Release);
            // SAFETY: the descriptor belongs to this file, which no longer refers to it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    /// Another descriptor of the file.
    pub fn duplicate(&self) -> io::Result<File> {
        // SAFETY: `fd` has just found the descriptor to be open.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd()?) };
        fd.try_clone_to_owned().map(File::from)
    }
}

fn with_high_number(file: File) -> File {
    for lowest in [700, 100, 3] {
        // SAFETY: the call takes numbers and no pointers.
        let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) };
        if fd >= 0 {
            // SAFETY: `fcntl` has just made this descriptor, so nothing else owns it.
            return unsafe { File::from_raw_fd(fd) };
        }
    }
    file
}

/// Identity and length of an open file.
fn status(fd: RawFd) -> Option<(Identity, u64)> {
    // SAFETY: `stat` consists of numbers, for which zero bytes are valid, and `fstat` fills the live struct.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let is_open = libc::fstat(fd, &mut status) == 0;
        is_open.then_some(((status.st_dev, status.st_ino), status.st_size as u64))
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if let Ok(fd) = self.fd() {
            // A forked child also has the descriptor, and would keep the lock until it exits.
            // SAFETY: the call takes numbers and no pointers.
            unsafe { libc::flock(fd, libc::LOCK_UN) };
            // SAFETY: `drop` runs once, and the descriptor still belongs to this file.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn flock(file: &File, operation: i32) -> bool {
        // SAFETY: the call takes numbers and no pointers.
        unsafe { libc::flock(file.as_raw_fd(), operation) == 0 }
    }

    fn is_locked(path: &Path) -> bool {
        let reader = File::open(path).unwrap();
        let is_free = flock(&reader, libc::LOCK_SH | libc::LOCK_NB);
        // Unlocked here and not by closing the file: a child that another test forks may also have it open.
        flock(&reader, libc::LOCK_UN);
        !is_free
    }

    #[test]
    fn reader_that_holds_the_lock_for_an_instant_does_not_prevent_locking() {
        let path = std::env::temp_dir().join(format!("heaptide-own-file-{}", std::process::id()));
        let own = OwnFile::new(File::create(&path).unwrap()).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(flock(&reader, libc::LOCK_SH));
        let mut n_pauses = 0;
        own.lock_with(|| n_pauses += 1);
        assert_eq!(n_pauses, MAX_LOCK_TRIES);
        assert!(!is_locked(&path));
        own.lock_with(|| assert!(flock(&reader, libc::LOCK_UN)));
        assert!(is_locked(&path));
        drop(own);
        assert!(!is_locked(&path));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn descriptor_that_became_another_file_is_neither_used_nor_closed() {
        let own = OwnFile::new(File::open("/proc/self/statm").unwrap()).unwrap();
        let fd = own.fd().unwrap();
        let other = File::open("/dev/null").unwrap();
        // SAFETY: both descriptors are open, and a program may replace its own descriptors.
        unsafe { libc::dup2(other.as_raw_fd(), fd) };
        assert!(own.fd().is_err());
        drop(own);
        assert!(status(fd).is_some());
        // SAFETY: `dup2` made this descriptor, and nothing else closes it.
        unsafe { libc::close(fd) };
    }

    #[test]
    fn file_is_opened_again_only_if_its_name_still_belongs_to_it() {
        let path = std::env::temp_dir().join(format!("heaptide-again-{}", std::process::id()));
        let own = OwnFile::new(File::create(&path).unwrap()).unwrap();
        // SAFETY: the descriptor is open, and a program may close its own descriptors.
        unsafe { libc::close(own.fd().unwrap()) };
        assert!(own.fd().is_err());
        own.open_again(&path).unwrap();
        assert!(own.fd().is_ok() && is_locked(&path));
        let moved = path.with_extension("moved");
        std::fs::rename(&path, &moved).unwrap();
        File::create(&path).unwrap();
        // SAFETY: as above.
        unsafe { libc::close(own.fd().unwrap()) };
        assert!(own.open_again(&path).is_err() && own.fd().is_err());
        std::os::unix::fs::symlink(&moved, path.with_extension("link")).unwrap();
        assert!(own.open_again(&path.with_extension("link")).is_err());
        for name in [&path, &moved, &path.with_extension("link")] {
            std::fs::remove_file(name).unwrap();
        }
    }
}
