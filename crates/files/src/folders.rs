//! Folders for Heaptide's own files: sockets, tokens and sessions.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

const BY_OTHERS: u32 = 0o077;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Makes sure that only this user can use the folder. Creates it if it does not exist.
///
/// An existing folder must belong to this user and must not be a link. If other users could only read it, this function
/// corrects the mode: they cannot have changed the content. If they could write to it, this function fails: the content may
/// be theirs.
pub fn private_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().ok_or(error)?;
            private_folder(parent)?;
            return private_folder(path);
        }
        Err(error) => return Err(error),
    }
    let shown = path.display();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open(path, flags, Mode::empty()) else {
        return refuse(format!("{shown} is not a folder of this user: remove it"));
    };
    let folder = File::from(folder);
    let metadata = folder.metadata()?;
    if metadata.uid() != crate::user() {
        return refuse(format!("{shown} belongs to another user"));
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return refuse(format!(
            "other users can write to {shown}: remove it, or check what is in it and run chmod go-rwx {shown}"
        ));
    }
    if metadata.mode() & BY_OTHERS != 0 {
        rustix::fs::fchmod(&folder, Mode::RWXU)?;
    }
    Ok(())
}

/// Makes sure that other users cannot change what this user keeps in the folder. Creates it if it does not exist.
///
/// Others may read the folder. In a folder with the sticky bit, such as `/tmp`, they may also create files, because they
/// cannot replace files of this user there. The owner of a folder can replace them, whatever its mode is, so the owner
/// must be this user or root. Root may use the folder of any user: a server may switch to that user, and a container
/// may have the folder mounted.
pub fn trusted_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)?;
    check_folder(path)
}

/// Refuses a folder in which others can replace files of this user, as described at [`trusted_folder`]. A folder that
/// does not exist passes.
pub fn check_folder(path: &Path) -> io::Result<()> {
    let (mode, owner) = match path.metadata() {
        Ok(metadata) => (metadata.mode(), metadata.uid()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let shown = path.display();
    if !may_use(crate::user(), owner) {
        return refuse(format!(
            "the folder {shown} belongs to another user, who can replace its files: choose another folder"
        ));
    }
    if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 {
        return refuse(format!(
            "other users can write to the folder {shown}: run chmod go-w {shown}, or choose another folder"
        ));
    }
    Ok(())
}

/// Whether a user may keep files in a folder of this owner.
fn may_use(user: u32, owner: u32) -> bool {
    user == 0 || owner == 0 || owner == user
}

fn refuse(sentence: String) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, sentence))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::PathBuf;

    use super::*;
    use crate::OwnFolder;

    fn folder(name: &str, mode: u32) -> PathBuf {
        let name = format!("heaptide-folders-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn private_folder_that_others_can_read_is_closed_to_them() {
        let path = folder("read", 0o755);
        private_folder(&path.join("new/inner")).unwrap();
        assert_eq!((mode(&path), mode(&path.join("new"))), (0o755, 0o700));
        private_folder(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn private_folder_that_others_can_write_is_refused_with_advice() {
        let path = folder("write", 0o777);
        let message = private_folder(&path).unwrap_err().to_string();
        assert!(message.contains("chmod go-rwx"), "{message}");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn private_folder_that_is_a_link_or_of_another_user_is_refused() {
        let path = folder("owner", 0o700);
        let link = path.join("link");
        symlink(&path, &link).unwrap();
        assert!(private_folder(&link).is_err());
        // Only root can give a folder away.
        if crate::user() == 0 {
            chown(&path, Some(12345), None).unwrap();
            assert!(private_folder(&path).is_err());
        }
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn folder_that_others_can_write_is_trusted_only_with_the_sticky_bit() {
        let path = folder("sticky", 0o775);
        let message = trusted_folder(&path).unwrap_err().to_string();
        assert!(message.contains("chmod go-w"), "{message}");
        for trusted in [0o755, 0o1777] {
            fs::set_permissions(&path, Permissions::from_mode(trusted)).unwrap();
            trusted_folder(&path).unwrap();
        }
        trusted_folder(&path.join("a/b")).unwrap();
        assert_eq!(mode(&path.join("a/b")), 0o700);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn users_trust_only_their_own_folders_and_those_of_root_and_root_trusts_all() {
        assert!(may_use(1000, 1000) && may_use(1000, 0) && may_use(0, 1000));
        assert!(!may_use(1000, 1001));
    }

    #[test]
    fn only_regular_files_of_this_user_are_read_from_a_folder() {
        let path = folder("own", 0o700);
        fs::write(path.join("good"), "content").unwrap();
        fs::write(path.join("foreign"), "planted").unwrap();
        symlink("good", path.join("link")).unwrap();
        fs::create_dir(path.join("inner")).unwrap();
        let own = OwnFolder::open(&path).unwrap();
        assert_eq!(own.read("good", 3).unwrap(), b"con");
        assert!(own.read("link", 9).is_err());
        assert!(own.read("inner", 9).is_err());
        assert_eq!(own.names().unwrap().len(), 4);
        if crate::user() == 0 {
            chown(path.join("foreign"), Some(12345), None).unwrap();
            assert!(own.read("foreign", 9).is_err());
        }
        fs::set_permissions(&path, Permissions::from_mode(0o770)).unwrap();
        assert!(OwnFolder::open(&path).is_err());
        fs::remove_dir_all(path).unwrap();
    }
}
