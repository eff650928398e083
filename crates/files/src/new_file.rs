//! Creates files that only the user can read and that never appear unfinished.
//!
//! A file is written without a name (`O_TMPFILE`) and linked to its name when its content is complete, so a killed process
//! leaves no partial file. On a file system without unnamed files, it is written under a random name in the same folder and
//! renamed. A device, a pipe, or a file in a folder that cannot be changed is written in place.

use std::fs::{File, Metadata};
use std::io::{self, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::PRIVATE;

/// Attempts to find an unused random name. A second attempt is already unlikely.
const MAX_TRIES: usize = 16;

/// What to do if a file of the same name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Refuse,
    /// Replace the file or the link, never the target of a link. Readers of the old file keep its content, unless the
    /// file can only be written in place.
    Replace,
}

/// A file that gets its name from [`NewFile::publish`]. Dropping it earlier leaves no file.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    existing: Existing,
    state: State,
}

#[derive(Debug)]
enum State {
    Unnamed,
    Temporary(PathBuf),
    /// Written in place, or published.
    Named,
}

impl NewFile {
    /// Creates a file, open for reading and writing, that will appear at `path`.
    pub fn create(path: &Path, existing: Existing) -> io::Result<NewFile> {
        NewFile::create_with(path, existing, unnamed_or_temporary)
    }

    fn create_with(
        path: &Path,
        existing: Existing,
        in_folder: impl FnOnce(&Path) -> io::Result<(File, State)>,
    ) -> io::Result<NewFile> {
        let new = |file, state| NewFile {
            file,
            path: path.to_owned(),
            existing,
            state,
        };
        match path.symlink_metadata() {
            Ok(_) if existing == Existing::Refuse => return Err(Errno::EXIST.into()),
            Ok(metadata) => {
                if let Some(file) = open_special(path, &metadata)? {
                    return Ok(new(file, State::Named));
                }
                if metadata.is_file() {
                    // A file without write permission could be replaced, but its owner removed the permission to protect
                    // it.
                    rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?;
                }
            }
            Err(_) => {}
        }
        match in_folder(&folder_of(path)) {
            Ok((file, state)) => Ok(new(file, state)),
            // Nothing can be added to the folder, but the file in it may be writable: a mounted file, for example.
            Err(error) if existing == Existing::Replace => match open_in_place(path) {
                Ok(file) => Ok(new(file, State::Named)),
                Err(_) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name. Fails with `AlreadyExists` if another file has taken the name and must not be replaced.
    /// Returns the file, opened by that name where possible, so that `/proc` shows it.
    pub fn publish(mut self) -> io::Result<File> {
        let handle = self.file.try_clone()?;
        if matches!(self.state, State::Named) {
            return Ok(handle);
        }
        let is_unnamed = matches!(self.state, State::Unnamed);
        if is_unnamed {
            match self.link() {
                Ok(()) => {}
                Err(Errno::EXIST) if self.existing == Existing::Refuse => {
                    return Err(Errno::EXIST.into());
                }
                Err(_) => self.name_temporarily()?,
            }
        }
        if let State::Temporary(temporary) = &self.state {
            match rename(temporary, &self.path, self.existing) {
                Err(error) if self.existing == Existing::Replace && is_fixed(&error) => {
                    return self.overwrite();
                }
                renamed => renamed?,
            }
        }
        self.state = State::Named;
        Ok(if is_unnamed {
            reopen(&self.path, &handle).unwrap_or(handle)
        } else {
            handle
        })
    }

    /// Links an unnamed file to its final name, which must be unused.
    fn link(&mut self) -> Result<(), Errno> {
        link(&self.file, &self.path)?;
        self.state = State::Named;
        Ok(())
    }

    /// Gives an unnamed file a random name, or copies it to a file that has one.
    fn name_temporarily(&mut self) -> io::Result<()> {
        let folder = folder_of(&self.path);
        for _ in 0..MAX_TRIES {
            let temporary = temporary_path(&folder)?;
            match link(&self.file, &temporary) {
                Ok(()) => {
                    self.state = State::Temporary(temporary);
                    return Ok(());
                }
                Err(Errno::EXIST) => {}
                Err(_) => break,
            }
        }
        // Without /proc an unnamed file cannot be linked.
        let (mut copy, temporary) = temporary_file(&folder)?;
        self.state = State::Temporary(temporary);
        self.file.rewind()?;
        io::copy(&mut self.file, &mut copy)?;
        self.file = copy;
        Ok(())
    }

    /// Copies the content into an existing file that cannot be replaced.
    fn overwrite(mut self) -> io::Result<File> {
        let mut file = open_in_place(&self.path)?;
        self.file.rewind()?;
        io::copy(&mut self.file, &mut file)?;
        Ok(file)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let State::Temporary(path) = &self.state {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns a file that has no name, for data that another process reads through the descriptor.
pub fn scratch_file(folder: &Path) -> io::Result<File> {
    let (file, state) = unnamed_or_temporary(folder)?;
    if let State::Temporary(path) = state {
        std::fs::remove_file(path)?;
    }
    Ok(file)
}

fn unnamed_or_temporary(folder: &Path) -> io::Result<(File, State)> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, PRIVATE) {
        Ok(descriptor) => Ok((private(descriptor)?, State::Unnamed)),
        Err(_) => temporary_file(folder).map(|(file, path)| (file, State::Temporary(path))),
    }
}

fn temporary_file(folder: &Path) -> io::Result<(File, PathBuf)> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..MAX_TRIES {
        let path = temporary_path(folder)?;
        match rustix::fs::open(&path, flags, PRIVATE) {
            Ok(descriptor) => return Ok((private(descriptor)?, path)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Sets the mode of a new file: the program's umask may have removed the user's own permissions.
fn private(descriptor: OwnedFd) -> io::Result<File> {
    let file = File::from(descriptor);
    if file.metadata()?.mode() & 0o777 != PRIVATE.as_raw_mode() {
        // Some file systems have no modes.
        let _ = rustix::fs::fchmod(&file, PRIVATE);
    }
    Ok(file)
}

/// Opens a device, pipe or socket, also through a link such as `/dev/stdout`. Returns `None` for any other file.
fn open_special(path: &Path, metadata: &Metadata) -> io::Result<Option<File>> {
    let is_special = |file_type: std::fs::FileType| {
        file_type.is_char_device()
            || file_type.is_block_device()
            || file_type.is_fifo()
            || file_type.is_socket()
    };
    let metadata = if metadata.is_symlink() {
        path.metadata().ok()
    } else {
        Some(metadata.clone())
    };
    match metadata {
        Some(metadata) if metadata.is_dir() => Err(Errno::ISDIR.into()),
        Some(metadata) if is_special(metadata.file_type()) => {
            let flags = OFlags::CLOEXEC | OFlags::NOCTTY;
            let open = |access| rustix::fs::open(path, access | flags, Mode::empty());
            // A capture needs a file that it can also read, so write-only access is the second choice.
            let file = open(OFlags::RDWR).or_else(|_| open(OFlags::WRONLY | OFlags::APPEND))?;
            Ok(Some(File::from(file)))
        }
        _ => Ok(None),
    }
}

/// Opens and empties an existing regular file. Fails if this process cannot restrict who reads it.
fn open_in_place(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Errno::INVAL.into());
    }
    if let Err(error) = rustix::fs::fchmod(&file, PRIVATE) {
        // Some file systems have no modes: continue, unless the file belongs to another user, who could read it.
        if metadata.uid() != crate::user() {
            return Err(error.into());
        }
    }
    file.set_len(0)?;
    Ok(file)
}

fn link(file: &File, path: &Path) -> Result<(), Errno> {
    let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, descriptor, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

fn rename(temporary: &Path, path: &Path, existing: Existing) -> Result<(), Errno> {
    if existing == Existing::Replace {
        return rustix::fs::rename(temporary, path);
    }
    match rustix::fs::renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        renamed => return renamed,
    }
    match rustix::fs::link(temporary, path) {
        Ok(()) => rustix::fs::unlink(temporary),
        Err(Errno::EXIST) => Err(Errno::EXIST),
        // Without hard links this is a race: of two processes that choose the same name, the later one wins.
        Err(_) if path.symlink_metadata().is_ok() => Err(Errno::EXIST),
        Err(_) => rustix::fs::rename(temporary, path),
    }
}

/// Whether the existing file cannot be replaced, because it is a mount point or its folder cannot be changed.
fn is_fixed(error: &Errno) -> bool {
    matches!(
        *error,
        Errno::BUSY | Errno::ACCESS | Errno::PERM | Errno::ROFS
    )
}

/// Opens the file by its name, if the name still belongs to it.
fn reopen(path: &Path, file: &File) -> Option<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut again = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let (new, old) = (again.metadata().ok()?, file.metadata().ok()?);
    let position = (&mut &*file).stream_position().ok()?;
    again.seek(io::SeekFrom::Start(position)).ok()?;
    ((new.dev(), new.ino()) == (old.dev(), old.ino())).then_some(again)
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Returns an unpredictable path in the folder, so that nobody can create the file first.
pub fn temporary_path(folder: &Path) -> io::Result<PathBuf> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let number = u64::from_ne_bytes(bytes);
    Ok(folder.join(format!(".heaptide-{number:016x}.part")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("heaptide-files-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Folder(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    type Maker = fn(&Path) -> io::Result<(File, State)>;

    /// Creates a named file, as on file systems without unnamed files.
    fn named(folder: &Path) -> io::Result<(File, State)> {
        temporary_file(folder).map(|(file, path)| (file, State::Temporary(path)))
    }

    const MAKERS: [(&str, Maker); 2] = [("unnamed", unnamed_or_temporary), ("named", named)];

    fn write(path: &Path, existing: Existing, maker: Maker) -> io::Result<File> {
        let new = NewFile::create_with(path, existing, maker)?;
        new.file().write_all(b"new")?;
        new.publish()
    }

    #[test]
    fn file_appears_under_its_name_only_when_it_is_published() {
        for (name, maker) in MAKERS {
            let folder = Folder::new(&format!("appears-{name}"));
            let path = folder.0.join("x.tide");
            let new = NewFile::create_with(&path, Existing::Refuse, maker).unwrap();
            assert!(!path.exists());
            new.file().write_all(b"header").unwrap();
            let mut file = new.publish().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"header");
            file.write_all(b" and more").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"header and more");
            let shown = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
            assert_eq!(shown, fs::canonicalize(&path).unwrap());
            assert_eq!(folder.names(), ["x.tide"]);
        }
    }

    #[test]
    fn file_that_is_never_published_leaves_nothing() {
        for (name, maker) in MAKERS {
            let folder = Folder::new(&format!("dropped-{name}"));
            drop(NewFile::create_with(&folder.0.join("x"), Existing::Refuse, maker).unwrap());
            assert!(folder.names().is_empty());
        }
    }

    #[test]
    fn new_and_replaced_files_are_readable_only_by_the_user() {
        for (name, maker) in MAKERS {
            let folder = Folder::new(&format!("mode-{name}"));
            let path = folder.0.join("x");
            let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            write(&path, Existing::Refuse, maker).unwrap();
            assert_eq!(mode(), 0o600);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            write(&path, Existing::Replace, maker).unwrap();
            assert_eq!(mode(), 0o600);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            open_in_place(&path).unwrap();
            assert_eq!(mode(), 0o600);
        }
    }

    #[test]
    fn name_taken_in_the_meantime_is_refused_and_not_overwritten() {
        for (name, maker) in MAKERS {
            let folder = Folder::new(&format!("taken-{name}"));
            let path = folder.0.join("x");
            let new = NewFile::create_with(&path, Existing::Refuse, maker).unwrap();
            fs::write(&path, "of another process").unwrap();
            let kind = new.publish().unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::AlreadyExists);
            let kind = write(&path, Existing::Refuse, maker).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&path).unwrap(), b"of another process");
            assert_eq!(folder.names(), ["x"]);
        }
    }

    #[test]
    fn planted_link_is_refused_or_replaced_and_never_followed() {
        for (name, maker) in MAKERS {
            let folder = Folder::new(&format!("link-{name}"));
            let (victim, path) = (folder.0.join("victim"), folder.0.join("x"));
            for target in [&victim, &folder.0.join("missing")] {
                fs::write(&victim, "precious").unwrap();
                symlink(target, &path).unwrap();
                assert!(write(&path, Existing::Refuse, maker).is_err());
                write(&path, Existing::Replace, maker).unwrap();
                assert!(fs::symlink_metadata(&path).unwrap().is_file());
                assert_eq!(fs::read(&victim).unwrap(), b"precious");
                assert_eq!(folder.names(), ["victim", "x"]);
                fs::remove_file(&path).unwrap();
            }
        }
    }

    #[test]
    fn readers_of_a_replaced_file_keep_the_old_content() {
        for (name, maker) in MAKERS {
            let folder = Folder::new(&format!("readers-{name}"));
            let path = folder.0.join("x");
            fs::write(&path, "old").unwrap();
            let reader = File::open(&path).unwrap();
            write(&path, Existing::Replace, maker).unwrap();
            assert_eq!(io::read_to_string(reader).unwrap(), "old");
            assert_eq!(fs::read(&path).unwrap(), b"new");
        }
    }

    #[test]
    fn device_is_written_in_place_and_a_folder_is_refused() {
        write(
            Path::new("/dev/null"),
            Existing::Replace,
            unnamed_or_temporary,
        )
        .unwrap();
        let is_device = fs::metadata("/dev/null").unwrap().file_type();
        assert!(is_device.is_char_device());
        assert!(write(Path::new("/dev/null"), Existing::Refuse, named).is_err());
        let folder = Folder::new("folder");
        assert!(write(&folder.0, Existing::Replace, named).is_err());
    }

    #[test]
    fn scratch_file_has_no_name() {
        let folder = Folder::new("scratch");
        let mut file = scratch_file(&folder.0).unwrap();
        file.write_all(b"text").unwrap();
        assert!(folder.names().is_empty());
    }
}
