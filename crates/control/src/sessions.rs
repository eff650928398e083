//! Sessions on disk: one folder each, with a capture for each process.
//!
//! ```text
//! directory/20261115-233012-345-4711/session.json        options and start time
//!                                    4711.tide           one capture per process
//!                                    4712.tide.4713      capture of a forked child
//!                                    stats.json          numbers of a finished session
//! ```
//! A session ID in a request is only compared with existing names; it never becomes part of a path.
//!
//! Other users may have folders in the same directory. Only folders of this user are sessions, and only regular files
//! of this user are read in them. A link could lead to any file that this program can read.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use heaptide_capture::{Capture as TideFile, Header, Identity};
use heaptide_files::{Existing, NewFile, OwnFolder};
use heaptide_procfs as procfs;
use serde_json::{Map, Value, json};

use crate::address::Address;
use crate::calendar;
use crate::group;
use crate::routes::BASE;

const META: &str = "session.json";
const STATS: &str = "stats.json";
/// The key in `session.json` for the scope of the process IDs; see [`group::pid_space`].
const SPACE: &str = "pid_space";
/// The ID of a running recording that was not started by the control API.
pub(crate) const CURRENT: &str = "current";
/// The maximum length of a JSON file in a session folder. Real ones are much shorter.
const MAX_META_BYTES: u64 = 1 << 20;
/// How long a process may take to report its recording.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a program may take from creating the folder of a session to writing the first capture.
const BEGINNING_MS: u64 = 60_000;

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub id: String,
    /// `None` for a recording that was not started by the control API.
    pub folder: Option<PathBuf>,
    pub captures: Vec<Capture>,
    pub meta: Value,
}

#[derive(Clone, Debug)]
pub(crate) struct Capture {
    pub path: PathBuf,
    pub pid: u32,
    pub bytes: u64,
    /// Bytes on disk. The file of a running or killed process has holes.
    pub disk_bytes: u64,
    pub modified: SystemTime,
    /// The socket of its process, if the process has the control API.
    socket: Option<PathBuf>,
    /// Whether its process runs in another container or on another machine, where process IDs differ.
    is_elsewhere: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    directory: PathBuf,
    keep_sessions: usize,
    keep_bytes: u64,
    /// The folder that contains the folders of all groups.
    runtime: Option<PathBuf>,
}

impl Sessions {
    pub(crate) fn new(
        directory: PathBuf,
        keep_sessions: usize,
        keep_bytes: u64,
        runtime: Option<&Path>,
    ) -> Sessions {
        Sessions {
            directory,
            keep_sessions,
            keep_bytes,
            runtime: runtime.map(Path::to_owned),
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns all sessions, newest first.
    pub(crate) fn list(&self) -> Vec<Session> {
        let entries = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        let mut sessions: Vec<Session> = entries
            .filter_map(|entry| self.read(entry.file_name().to_str()?, &entry.path()))
            .collect();
        sessions.sort_by(|one, other| other.id.cmp(&one.id));
        sessions
    }

    pub(crate) fn find(&self, id: &str) -> Option<Session> {
        self.list().into_iter().find(|session| session.id == id)
    }

    fn read(&self, id: &str, folder: &Path) -> Option<Session> {
        let own = OwnFolder::open(folder).ok()?;
        let meta: Value = serde_json::from_slice(&own.read(META, MAX_META_BYTES).ok()?).ok()?;
        let group = meta.get("group").and_then(Value::as_str);
        let group = group.and_then(|group| Some(self.runtime.as_ref()?.join(group)));
        let space = meta.get(SPACE).and_then(Value::as_str);
        let is_elsewhere = space.is_some_and(|space| group::pid_space().as_deref() != Some(space));
        let names = own.names().ok()?.into_iter();
        let mut captures: Vec<Capture> = names
            .filter_map(|name| {
                let pid = pid_of(name.to_str()?)?;
                let metadata = own.file(&name).and_then(|file| file.metadata()).ok()?;
                Some(Capture {
                    path: folder.join(&name),
                    pid,
                    bytes: metadata.len(),
                    disk_bytes: metadata.blocks() * 512,
                    modified: metadata.modified().ok()?,
                    socket: group.as_ref().map(|group| group::socket_of(group, pid)),
                    is_elsewhere,
                })
            })
            .collect();
        captures.sort_by(|one, other| one.path.cmp(&other.path));
        Some(Session {
            id: id.to_owned(),
            folder: Some(folder.to_owned()),
            captures,
            meta,
        })
    }

    /// Creates an empty session.
    pub(crate) fn create(&self, mut meta: Map<String, Value>) -> io::Result<Session> {
        let mut now = calendar::unix_ms(SystemTime::now());
        loop {
            let id = format!("{}-{}", calendar::stamp(now), std::process::id());
            let folder = self.directory.join(&id);
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => {
                    meta.insert("id".into(), id.as_str().into());
                    meta.insert("started_unix_ms".into(), now.into());
                    meta.insert(SPACE.into(), group::pid_space().into());
                    let meta = Value::Object(meta);
                    write(&folder, META, &meta).inspect_err(|_| {
                        // A folder without a description would stay in every list of sessions.
                        let _ = fs::remove_dir_all(&folder);
                    })?;
                    return Ok(Session {
                        id,
                        folder: Some(folder),
                        captures: Vec::new(),
                        meta,
                    });
                }
                // Another session was created in the same millisecond: take the next one.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => now += 1,
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn delete(&self, session: &Session) -> io::Result<()> {
        match &session.folder {
            Some(folder) => fs::remove_dir_all(folder),
            None => Ok(()),
        }
    }

    /// Deletes the oldest finished sessions beyond the limits.
    pub(crate) fn prune(&self, except: &str) {
        let mut n_kept = 0;
        let mut bytes_kept = 0;
        for session in self.list() {
            n_kept += 1;
            bytes_kept += session.disk_bytes();
            let is_beyond = n_kept > self.keep_sessions || bytes_kept > self.keep_bytes;
            let is_finished = !session.is_running() && !session.is_beginning();
            if is_beyond && session.id != except && is_finished {
                // If this fails, the next start tries again.
                let _ = self.delete(&session);
            }
        }
    }
}

impl Session {
    /// Returns a session for a running recording that was not started by the control API.
    pub(crate) fn current(path: &Path) -> Option<Session> {
        let metadata = heaptide_files::open_own(path).and_then(|file| file.metadata());
        let metadata = metadata.ok()?;
        Some(Session {
            id: CURRENT.to_owned(),
            folder: None,
            captures: vec![Capture {
                path: path.to_owned(),
                pid: std::process::id(),
                bytes: metadata.len(),
                disk_bytes: metadata.blocks() * 512,
                modified: metadata.modified().ok()?,
                socket: None,
                is_elsewhere: false,
            }],
            meta: json!({}),
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.captures.iter().map(|capture| capture.bytes).sum()
    }

    fn disk_bytes(&self) -> u64 {
        let captures = self.captures.iter();
        captures.map(|capture| capture.disk_bytes).sum()
    }

    /// Whether the folder of the session was removed since it was read.
    pub(crate) fn is_deleted(&self) -> bool {
        let folder = self.folder.as_ref();
        folder.is_some_and(|folder| {
            folder
                .symlink_metadata()
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        self.category() == "session" && self.captures.iter().any(Capture::is_being_written)
    }

    /// Returns whether the session is new and empty. Its program, which may be another one with the same folder, writes
    /// to it as soon as its interpreter is free.
    fn is_beginning(&self) -> bool {
        let now = calendar::unix_ms(SystemTime::now());
        let started = self.started_unix_ms();
        self.bytes() == 0 && started.is_some_and(|started| now.abs_diff(started) < BEGINNING_MS)
    }

    /// `session` or `snapshot`.
    pub(crate) fn category(&self) -> &str {
        let category = self.meta.get("kind").and_then(Value::as_str);
        category.unwrap_or("session")
    }

    pub(crate) fn started_unix_ms(&self) -> Option<u64> {
        self.meta.get("started_unix_ms").and_then(Value::as_u64)
    }

    /// Returns how long the recording had run when the snapshot was taken.
    pub(crate) fn recorded_ms(&self) -> Option<u64> {
        self.meta.get("recorded_ms").and_then(Value::as_u64)
    }

    /// Returns whether the processes of this group made the session.
    pub(crate) fn is_of(&self, group: &str) -> bool {
        self.meta.get("group").and_then(Value::as_str) == Some(group)
    }

    /// Returns the time of the last write to any of its captures.
    pub(crate) fn modified_unix_ms(&self) -> Option<u64> {
        let moments = self.captures.iter().map(|capture| capture.modified);
        moments.max().map(calendar::unix_ms)
    }

    /// Returns the stored numbers of a finished session.
    pub(crate) fn known_stats(&self) -> Option<Value> {
        let own = OwnFolder::open(self.folder.as_ref()?).ok()?;
        let newest = self.captures.iter().map(|capture| capture.modified).max()?;
        let file = own.file(OsStr::new(STATS)).ok()?;
        if file.metadata().ok()?.modified().ok()? < newest {
            return None;
        }
        serde_json::from_slice(&own.read(STATS, MAX_META_BYTES).ok()?).ok()
    }

    /// Stores the numbers of a finished session.
    pub(crate) fn store_stats(&self, stats: &Value) -> io::Result<()> {
        match &self.folder {
            Some(folder) => write(folder, STATS, stats),
            None => Ok(()),
        }
    }
}

impl Capture {
    /// Returns whether its process still records, that is, has the file open for writing. A recording that failed keeps the
    /// file open until it is stopped, and its capture has a mark.
    pub(crate) fn is_being_written(&self) -> bool {
        self.is_held() && !self.has_stop_mark()
    }

    fn has_stop_mark(&self) -> bool {
        let file = self.open().ok();
        file.and_then(TideFile::stop_mark_from_file).is_some()
    }

    fn is_held(&self) -> bool {
        if self.is_elsewhere {
            return self.is_locked();
        }
        match self.is_open_for_writing() {
            Ok(is_open) => is_open,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            // A process that dropped its privileges hides its open files, but answers requests.
            Err(_) => self.is_reported_as_open(),
        }
    }

    /// Whether the file is locked. A recording process holds a lock, which is visible across containers. If the file
    /// cannot be opened, assume that it is being written.
    fn is_locked(&self) -> bool {
        use rustix::fs::{FlockOperation, flock};
        let Ok(file) = self.open() else {
            return true;
        };
        let is_locked = flock(&file, FlockOperation::NonBlockingLockShared).is_err();
        // Unlock explicitly: a child forked at this moment would otherwise keep the lock and block a new recording.
        let _ = flock(&file, FlockOperation::Unlock);
        is_locked
    }

    fn is_open_for_writing(&self) -> io::Result<bool> {
        let wanted = fs::metadata(&self.path)?;
        for open in procfs::open_files(self.pid)? {
            let is_this_file =
                |found: fs::Metadata| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino());
            if fs::metadata(&open.link).is_ok_and(is_this_file) && open.is_for_writing()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Asks the process whether it records into this file. If it does not answer, assume that it does.
    fn is_reported_as_open(&self) -> bool {
        let Some(socket) = &self.socket else {
            return true;
        };
        let address = Address::Unix(socket.clone());
        let target = format!("{BASE}/status?scope=process");
        match group::ask(&address, "GET", &target, &Value::Null, STATUS_TIMEOUT) {
            Some(Ok((200, state))) => {
                let output = state.get("output").and_then(Value::as_str);
                output.is_some_and(|output| Path::new(output) == self.path)
            }
            _ => true,
        }
    }

    /// The header of the capture; until it is written, only the process ID is known.
    pub(crate) fn header(&self) -> Header {
        let header = self.open().ok();
        let header = header.and_then(|file| TideFile::header_from_file(file, &self.path).ok());
        header.unwrap_or_else(|| Header {
            pid: self.pid,
            ..Header::default()
        })
    }

    pub(crate) fn identity(&self) -> Identity {
        self.header().identity()
    }

    pub(crate) fn open(&self) -> io::Result<File> {
        heaptide_files::open_own(&self.path)
    }
}

/// Writes a JSON file into a session folder.
fn write(folder: &Path, name: &str, content: &Value) -> io::Result<()> {
    let new = NewFile::create(&folder.join(name), Existing::Replace)?;
    new.file().write_all(content.to_string().as_bytes())?;
    new.publish().map(drop)
}

/// Returns the process ID in the name of a capture: `4711.tide` → 4711, `4711-2.tide` (its second capture) → 4711,
/// `4711.tide.4712` (a forked child) → 4712.
fn pid_of(name: &str) -> Option<u32> {
    let (parent, rest) = name.split_once(".tide")?;
    let (parent, number) = parent.split_once('-').unwrap_or((parent, "1"));
    let _: u32 = number.parse().ok()?;
    let parent: u32 = parent.parse().ok()?;
    if rest.is_empty() {
        return Some(parent);
    }
    rest.strip_prefix('.')?
        .split('.')
        .try_fold(parent, |_, pid| pid.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_empty_session_of_another_program_is_not_deleted() {
        let name = format!("heaptide-sessions-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        let sessions = Sessions::new(directory.clone(), 1, u64::MAX, None);
        let new = || sessions.create(Map::new()).unwrap();
        let (of_another, own) = (new(), new());
        sessions.prune(&own.id);
        assert_eq!(sessions.list().len(), 2);
        let long_ago = of_another.started_unix_ms().unwrap() - BEGINNING_MS;
        let mut meta = of_another.meta.clone();
        meta["started_unix_ms"] = long_ago.into();
        fs::write(of_another.folder.unwrap().join(META), meta.to_string()).unwrap();
        sessions.prune(&own.id);
        let left: Vec<String> = sessions.list().into_iter().map(|it| it.id).collect();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(left, [own.id]);
    }

    #[test]
    fn process_id_is_parsed_from_the_name_of_a_capture() {
        assert_eq!(pid_of("4711.tide"), Some(4711));
        assert_eq!(pid_of("4711.tide.4712"), Some(4712));
        assert_eq!(pid_of("4711.tide.4712.4713"), Some(4713));
        assert_eq!(pid_of("4711-2.tide.4713"), Some(4713));
        assert_eq!(pid_of("x.tide"), None);
        assert_eq!(pid_of("4711-x.tide"), None);
        assert_eq!(pid_of("4711.tide.html"), None);
        assert_eq!(pid_of("session.json"), None);
    }
}
