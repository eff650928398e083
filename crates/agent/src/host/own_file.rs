//! A file of ours in somebody else's table of open files.
//!
//! A program may close descriptors that it did not open (`os.closerange` before it becomes a daemon, for example), and the
//! number then means another file. So ours gets a number out of the way, remembers which file it is, and is asked before
//! every use whether it still is that one. If not, it is left alone: neither written to nor closed.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::Duration;

/// A recording that begins waits no longer than these together for its lock.
const MAX_LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

pub struct OwnFile {
    file: ManuallyDrop<File>,
    /// Device and inode.
    identity: (u64, u64),
}

impl OwnFile {
    /// Takes `file` over, under a number that programs do not expect to get next.
    pub fn new(file: File) -> io::Result<OwnFile> {
        let mut file = file;
        for lowest in [700, 100, 3] {
            // SAFETY: works on file descriptors alone.
            let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) };
            if fd >= 0 {
                // SAFETY: the descriptor was made just now and belongs to nobody else.
                file = unsafe { File::from_raw_fd(fd) };
                break;
            }
        }
        let identity = identity(file.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        Ok(OwnFile {
            file: ManuallyDrop::new(file),
            identity,
        })
    }

    /// Says to every process that can see the file, also from another container, that somebody writes into it. Where
    /// locks are not to be had, nothing is said.
    pub fn lock(&self) {
        self.lock_with(|| std::thread::sleep(LOCK_PAUSE));
    }

    /// Who asks whether somebody writes has a lock for an instant, and without ours the capture would pass for finished as
    /// long as it is written. So that instant is waited for, but not for somebody who keeps the lock.
    fn lock_with(&self, mut pause: impl FnMut()) {
        for _ in 0..MAX_LOCK_TRIES {
            let Ok(fd) = self.fd() else { return };
            // SAFETY: works on a file descriptor alone.
            let is_locked = unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) } == 0;
            if is_locked || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock {
                return;
            }
            pause();
        }
    }

    /// The descriptor, if it is still ours.
    pub fn fd(&self) -> io::Result<RawFd> {
        let fd = self.file.as_raw_fd();
        if identity(fd) == Some(self.identity) {
            Ok(fd)
        } else {
            Err(io::Error::other("the program has closed the file"))
        }
    }

    /// The file, if it is still ours.
    pub fn file(&self) -> io::Result<&File> {
        self.fd().map(|_| &*self.file)
    }
}

fn identity(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: the structure is plain numbers, which `fstat` fills in.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut status) == 0).then_some((status.st_dev, status.st_ino))
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if let Ok(fd) = self.fd() {
            // A forked child has the descriptor, too, and the lock would last as long as the child.
            // SAFETY: works on a file descriptor alone.
            unsafe { libc::flock(fd, libc::LOCK_UN) };
            // SAFETY: dropped once, here; the descriptor is ours.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn flock(file: &File, operation: i32) -> bool {
        // SAFETY: works on a file descriptor alone.
        unsafe { libc::flock(file.as_raw_fd(), operation) == 0 }
    }

    fn is_locked(path: &Path) -> bool {
        let asking = File::open(path).unwrap();
        let is_free = flock(&asking, libc::LOCK_SH | libc::LOCK_NB);
        // Not left to the end of the file: a child that another test forks may have it, too.
        flock(&asking, libc::LOCK_UN);
        !is_free
    }

    #[test]
    fn somebody_who_asks_for_the_lock_at_that_instant_does_not_keep_us_from_having_it() {
        let path = std::env::temp_dir().join(format!("heaptide-own-file-{}", std::process::id()));
        let own = OwnFile::new(File::create(&path).unwrap()).unwrap();
        let asking = File::open(&path).unwrap();
        assert!(flock(&asking, libc::LOCK_SH));
        let mut n_pauses = 0;
        own.lock_with(|| n_pauses += 1);
        assert_eq!(n_pauses, MAX_LOCK_TRIES);
        assert!(!is_locked(&path));
        own.lock_with(|| assert!(flock(&asking, libc::LOCK_UN)));
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
        // SAFETY: what the program under test may do to its own descriptors.
        unsafe { libc::dup2(other.as_raw_fd(), fd) };
        assert!(own.fd().is_err());
        drop(own);
        assert!(identity(fd).is_some());
        // SAFETY: made by `dup2` above.
        unsafe { libc::close(fd) };
    }
}
