//! Tokens: secrets that give full access to the control API. Without a chosen token, Heaptide creates one in a private folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::OFlags;

/// The name of the file with the created token.
pub const FILE: &str = "token";
const RANDOM_BYTES: usize = 32;
/// The maximum number of bytes read from the file. A token is shorter.
const MAX_BYTES: u64 = 4096;

#[derive(Clone, PartialEq)]
pub struct Token {
    secret: String,
    /// The file of a token that Heaptide created; `None` if the user chose the token.
    file: Option<PathBuf>,
}

/// Shows no secret.
impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Token")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Token {
    /// Returns the token that the user chose.
    pub fn chosen(secret: impl Into<String>) -> Token {
        let secret = secret.into();
        Token { secret, file: None }
    }

    /// Returns the token in a private folder, which all processes of the program share. Creates it if it does not exist.
    pub fn in_folder(folder: &Path) -> io::Result<Token> {
        let path = folder.join(FILE);
        match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(&path)?,
            _ => {}
        }
        Ok(Token {
            secret: read(&path)?,
            file: Some(path),
        })
    }

    /// Returns whether the user chose the token.
    pub fn is_chosen(&self) -> bool {
        self.file.is_none()
    }

    /// Returns the file of a token that Heaptide created.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Compares in a time that does not depend on the position of the first difference.
    pub fn matches(&self, given: &[u8]) -> bool {
        let secret = self.secret.as_bytes();
        let mut difference = secret.len() ^ given.len();
        for at in 0..secret.len().max(given.len()) {
            let (left, right) = (secret.get(at), given.get(at));
            difference |= usize::from(left.copied().unwrap_or(0) ^ right.copied().unwrap_or(0));
        }
        std::hint::black_box(difference) == 0
    }
}

/// Reads a token that Heaptide created. Refuses a file that another user could have written or read. Root also accepts
/// private files of other users.
pub fn read(path: &Path) -> io::Result<String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(path)?;
    let metadata = file.metadata()?;
    let owner = metadata.uid();
    let is_private = metadata.is_file() && metadata.mode() & 0o077 == 0;
    if !is_private || (owner != heaptide_files::user() && heaptide_files::user() != 0) {
        let reason = format!("{} is not a private file of this user", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    let text = text.trim();
    if text.is_empty() {
        let reason = format!("{} holds no token", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(text.to_owned())
}

/// Creates the file with a random token. Keeps the token of a process that was faster.
fn create(path: &Path) -> io::Result<()> {
    let mut random = [0; RANDOM_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    // The file gets its final name once it is complete, so that no process reads a part of a token.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let unfinished = path.with_file_name(format!(".token-{}-{number}", std::process::id()));
    // A killed process with the same ID may have left this file.
    let _ = fs::remove_file(&unfinished);
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .and_then(|mut file| file.write_all(format!("{secret}\n").as_bytes()))
        .and_then(|()| fs::hard_link(&unfinished, path));
    let _ = fs::remove_file(&unfinished);
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("heaptide-token-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        heaptide_files::private_folder(&folder).unwrap();
        folder
    }

    #[test]
    fn processes_of_a_program_share_one_random_private_token() {
        let folder = folder("shared");
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let folder = folder.clone();
                std::thread::spawn(move || Token::in_folder(&folder).unwrap())
            })
            .collect();
        let tokens: Vec<Token> = threads.into_iter().map(|one| one.join().unwrap()).collect();
        assert!(tokens.iter().all(|token| *token == tokens[0]));
        assert!(!tokens[0].is_chosen());
        let path = folder.join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap().len(), 2 * RANDOM_BYTES);
        assert!(!format!("{:?}", tokens[0]).contains(&read(&path).unwrap()));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn token_that_others_could_read_or_that_is_a_link_is_refused() {
        let folder = folder("refused");
        Token::in_folder(&folder).unwrap();
        let path = folder.join(FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = Token::in_folder(&folder).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/proc/self/environ", &path).unwrap();
        assert!(Token::in_folder(&folder).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_the_whole_secret_is_accepted() {
        let token = Token::chosen("s3cret");
        assert!(token.matches(b"s3cret") && token.is_chosen());
        for wrong in ["", "s3cre", "s3cret ", "S3cret", "s3cretx"] {
            assert!(!token.matches(wrong.as_bytes()), "{wrong:?}");
        }
    }
}
