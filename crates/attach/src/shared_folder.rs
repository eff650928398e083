//! A folder that both this process and the target can reach: in a temporary folder of the target.
//!
//! Paths are resolved within the root of the target, links included: a container cannot make this process write anywhere
//! else.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown, fchown, lchown};
use std::path::{Path, PathBuf};

use heaptide_procfs as procfs;

use crate::preflight::Target;
use crate::refusal::Refusal;

/// Folders that are usually writable, tried after `TMPDIR`.
const USUAL_FOLDERS: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];
const RESOLVE_IN_ROOT: u64 = 0x10;
const MAX_TRIES: u32 = 100;
/// The maximum length of an answer, which is a sentence or the names of files.
const MAX_ANSWER: u64 = 64 << 10;

/// A folder that is removed with its content when this is dropped, unless it is kept.
///
/// The folder belongs to this process's user until [`SharedFolder::hand_over`]. Its files are opened through a
/// descriptor from its creation, so the owner of the target cannot replace the folder.
pub struct SharedFolder {
    /// Its path, as the target sees it.
    pub path: PathBuf,
    name: String,
    parent: File,
    folder: File,
    /// Paths that will belong to the target's user.
    made: Vec<PathBuf>,
    owner: (u32, u32),
    is_kept: bool,
}

impl SharedFolder {
    /// Makes a folder that both processes can reach.
    pub fn make(target: &Target) -> Result<SharedFolder, Refusal> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for folder in temporary_folders(target.pid) {
            match SharedFolder::make_in(target, &folder) {
                Ok(folder) => return Ok(folder),
                Err(error) => last = error,
            }
        }
        let step = "making a folder in its /tmp";
        Err(Refusal::failed(target.pid, step, &last))
    }

    fn make_in(target: &Target, parent_path: &Path) -> io::Result<SharedFolder> {
        let parent = open_in_root(target.pid, parent_path)?;
        if forbids_programs(&parent) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        for n in 0..MAX_TRIES {
            let name = format!("heaptide-{}-{}-{n}", target.pid, std::process::id());
            match make_folder(&descriptor_path(&parent).join(&name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(folder) => {
                    return Ok(SharedFolder {
                        path: parent_path.join(&name),
                        name,
                        parent,
                        folder,
                        made: Vec::new(),
                        owner: (target.status.users[3], target.status.groups[3]),
                        is_kept: false,
                    });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Writes a new file that the target may read and remove.
    pub fn put(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = descriptor_path(&self.folder).join(name);
        new_file(&path)?.write_all(content)?;
        self.made.push(path);
        Ok(())
    }

    /// Copies a Python package, with its subpackages, into a new folder of the same name.
    pub fn copy(&mut self, package: &Path) -> io::Result<()> {
        let into = descriptor_path(&self.folder).join(package.file_name().unwrap_or_default());
        self.copy_folder(package, into)
    }

    fn copy_folder(&mut self, from: &Path, into: PathBuf) -> io::Result<()> {
        make_folder(&into)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let path = into.join(entry.file_name());
            let file_type = entry.file_type()?;
            if file_type.is_file() {
                io::copy(&mut File::open(entry.path())?, &mut new_file(&path)?)?;
                self.made.push(path);
            } else if file_type.is_dir() && entry.file_name() != "__pycache__" {
                self.copy_folder(&entry.path(), path)?;
            }
        }
        self.made.push(into);
        Ok(())
    }

    /// Makes the target's user the owner. Nothing more is written into the folder after this.
    pub fn hand_over(&self) -> io::Result<()> {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } == self.owner.0 {
            return Ok(());
        }
        for path in &self.made {
            lchown(path, Some(self.owner.0), Some(self.owner.1))?;
        }
        fchown(&self.folder, Some(self.owner.0), Some(self.owner.1))
    }

    /// Reads a file that the target wrote, if it exists.
    pub fn take(&self, name: &str) -> Option<Vec<u8>> {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_NOFOLLOW);
        let file = options
            .open(descriptor_path(&self.folder).join(name))
            .ok()?;
        let mut content = Vec::new();
        file.take(MAX_ANSWER).read_to_end(&mut content).ok()?;
        Some(content)
    }

    pub fn has(&self, name: &str) -> bool {
        descriptor_path(&self.folder)
            .join(name)
            .symlink_metadata()
            .is_ok()
    }

    /// Removes a file; returns whether it existed.
    pub fn remove(&self, name: &str) -> bool {
        fs::remove_file(descriptor_path(&self.folder).join(name)).is_ok()
    }

    /// Leaves the folder to the target.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        if !self.is_kept {
            // A failure cannot be handled here.
            let _ = fs::remove_dir_all(descriptor_path(&self.parent).join(&self.name));
        }
    }
}

/// Returns a path to an open file or folder.
fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn make_folder(path: &Path) -> io::Result<File> {
    fs::DirBuilder::new().mode(0o700).create(path)?;
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY)
        .open(path)
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Opens a file or folder by its path in the root of a process.
pub fn open_in_root(pid: u32, path: &Path) -> io::Result<File> {
    #[repr(C)]
    struct How {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    let root = File::open(procfs::root(pid))?;
    let name = CString::new(path.as_os_str().as_bytes())?;
    let how = How {
        flags: (libc::O_RDONLY | libc::O_CLOEXEC) as u64,
        mode: 0,
        resolve: RESOLVE_IN_ROOT,
    };
    // SAFETY: the name is a live C string, and the struct is an `open_how` of the given length; the kernel only reads both.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            name.as_ptr(),
            &raw const how,
            size_of::<How>(),
        )
    };
    match i32::try_from(answer) {
        // SAFETY: a non-negative result is a descriptor that was just opened and that nothing else owns.
        Ok(file) if file >= 0 => Ok(unsafe { File::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes a file by its path in the root of a process, and its folder if that is then empty.
pub fn remove_in_root(pid: u32, path: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let opened = open_in_root(pid, folder)?;
    fs::remove_file(descriptor_path(&opened).join(name))?;
    if let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) {
        let above = open_in_root(pid, above)?;
        // Fails if the folder contains other files; then it stays.
        let _ = fs::remove_dir(descriptor_path(&above).join(name));
    }
    Ok(())
}

/// Creates the file if the target runs as another user, who may be unable to create files in that folder. Makes that user
/// its owner. Returns whether the file was created.
pub fn make_for(target: &Target, path: &Path) -> io::Result<bool> {
    let (user, group) = (target.status.users[3], target.status.groups[3]);
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == user {
        return Ok(false);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(path)?;
    chown(path, Some(user), Some(group))?;
    Ok(true)
}

/// Returns whether the file system is mounted `noexec`: libraries cannot be loaded from there.
fn forbids_programs(folder: &File) -> bool {
    // SAFETY: the struct consists of numbers, for which zero bytes are valid, and the call writes only to this live
    // struct.
    let (answer, status) = unsafe {
        let mut status: libc::statvfs = std::mem::zeroed();
        (libc::fstatvfs(folder.as_raw_fd(), &mut status), status)
    };
    answer == 0 && status.f_flag & libc::ST_NOEXEC != 0
}

fn temporary_folders(pid: u32) -> Vec<PathBuf> {
    let chosen = procfs::environment_variable(pid, "TMPDIR").map(PathBuf::from);
    let chosen = chosen.filter(|path| path.is_absolute());
    chosen
        .into_iter()
        .chain(USUAL_FOLDERS.into_iter().map(PathBuf::from))
        .collect()
}

/// Returns the folder of the Python package that contains this code, if there is one.
pub fn own_package() -> Option<PathBuf> {
    let mappings = procfs::mappings(std::process::id()).ok()?;
    let here = own_package as *const () as u64;
    let own = mappings
        .iter()
        .find(|mapping| (mapping.start..mapping.end).contains(&here))?;
    let folder = Path::new(&own.path).parent()?;
    let is_package = folder.join("attached.py").is_file();
    is_package.then(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_path_is_opened_and_missing_one_is_reported() {
        let own = std::process::id();
        assert!(open_in_root(own, Path::new("/proc/self/status")).is_ok());
        assert!(open_in_root(own, Path::new("/../../proc/self/status")).is_ok());
        let missing = open_in_root(own, Path::new("/no such folder"));
        assert_eq!(
            missing.err().map(|error| error.kind()),
            Some(io::ErrorKind::NotFound)
        );
    }
}
