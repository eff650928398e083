//! Reads only regular files that belong to this user. A file whose path or name is itself a link is refused.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

// A pipe must not block the reader, and a terminal must not become the controlling one.
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// A folder of this user that others cannot change.
#[derive(Debug)]
pub struct OwnFolder(OwnedFd);

impl OwnFolder {
    /// Fails for a link, for a folder of another user, and for one that others can write to.
    pub fn open(path: &Path) -> io::Result<OwnFolder> {
        let folder = rustix::fs::open(path, FLAGS | OFlags::DIRECTORY, Mode::empty())?;
        let metadata = rustix::fs::fstat(&folder)?;
        let is_safe = metadata.st_uid == crate::user() && metadata.st_mode & 0o022 == 0;
        if is_safe {
            Ok(OwnFolder(folder))
        } else {
            Err(Errno::PERM.into())
        }
    }

    /// Returns the names of all entries.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_bytes().to_owned();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(&name).to_owned());
            }
        }
        Ok(names)
    }

    /// Opens a file in the folder. Fails for a link, for anything but a regular file, and for a file of another user.
    pub fn file(&self, name: &OsStr) -> io::Result<File> {
        own(rustix::fs::openat(&self.0, name, FLAGS, Mode::empty())?)
    }

    /// Returns the content of a file, cut after `limit` bytes.
    pub fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = self.file(OsStr::new(name))?;
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Opens a file by its path. Fails for a link, for anything but a regular file, and for a file of another user.
pub fn open_own(path: &Path) -> io::Result<File> {
    own(rustix::fs::open(path, FLAGS, Mode::empty())?)
}

fn own(descriptor: OwnedFd) -> io::Result<File> {
    let file = File::from(descriptor);
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.uid() == crate::user() {
        Ok(file)
    } else {
        Err(Errno::PERM.into())
    }
}
