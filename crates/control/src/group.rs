//! The group: all processes of one program. Each has a socket in the group's folder, so that a request to one acts on all.
//!
//! ```text
//! /tmp/heaptide-1000/run/4711-883/4712.sock
//!                        │        └ the process
//!                        └ the run: its name, or by default PID and start time of its first process
//! ```
//! Only the user can access the folder, which also holds the created token. Any process that finds the socket of an
//! ended process removes it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heaptide_procfs as procfs;
use serde_json::Value;

use crate::address::Address;
use crate::client;
use crate::token;

/// The lock file, held while the recordings of a group start or stop.
const LOCK: &str = "lock";
/// The age at which a folder without running processes is removed.
const LEFT_OVER_AGE: Duration = Duration::from_secs(60);

/// Returns the owner of a folder, or of its nearest ancestor that can be read.
pub(crate) fn owner(folder: &Path) -> Option<u32> {
    let found = folder.ancestors().find_map(|path| fs::metadata(path).ok());
    found.map(|metadata| metadata.uid())
}

/// Returns the scope in which process IDs are unique: the boot ID and the PID namespace. `None` if either is unknown.
pub(crate) fn pid_space() -> Option<String> {
    let (boot, namespace) = (procfs::boot_id()?, procfs::pid_namespace()?);
    Some(format!("{boot} {}", namespace.display()))
}

pub(crate) fn may_write(folder: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, folder, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

pub fn socket_of(group: &Path, pid: u32) -> PathBuf {
    group.join(format!("{pid}.sock"))
}

/// Returns the process IDs and addresses of the sockets in the folder.
pub fn members(group: &Path) -> Vec<(u32, Address)> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let mut members: Vec<(u32, Address)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let pid = name.to_str()?.strip_suffix(".sock")?.parse().ok()?;
            Some((pid, Address::Unix(entry.path())))
        })
        .collect();
    members.sort_by_key(|member| member.0);
    members
}

/// Removes the folders of groups whose processes have all ended. The folders are siblings of `own`, which is kept.
///
/// A new folder may not have its first socket yet, and this process's `/proc` does not show the processes of other
/// containers. So only old folders are removed, and only if all their sockets refuse connections.
pub fn remove_left_overs(own: &Path) {
    let entries = own.parent().and_then(|runtime| fs::read_dir(runtime).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        let is_old = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > LEFT_OVER_AGE));
        if path == own || !is_old || !is_named_after_a_process(&path) {
            continue;
        }
        let members = members(&path);
        if members.iter().all(|member| has_ended(member.0, &path)) {
            for (pid, _) in members {
                let _ = fs::remove_file(socket_of(&path, pid));
            }
            for name in [LOCK, token::FILE] {
                let _ = fs::remove_file(path.join(name));
            }
            remove_marks(&path);
            // Fails if the folder is not empty.
            let _ = fs::remove_dir(&path);
        }
    }
}

/// Removes the marks of wanted recordings, which `heaptide.recording.from_settings` makes.
fn remove_marks(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "wanted") {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns whether Heaptide, not the user, chose the name of the run (`PID-START`).
fn is_named_after_a_process(group: &Path) -> bool {
    let name = group.file_name().and_then(|name| name.to_str());
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    name.and_then(|name| name.split_once('-'))
        .is_some_and(|(pid, began)| is_number(pid) && is_number(began))
}

fn has_ended(pid: u32, group: &Path) -> bool {
    !procfs::exists(pid)
        && UnixStream::connect(socket_of(group, pid))
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Sends a request to a member. Returns `None` and removes the socket if the process has ended.
pub fn ask(
    address: &Address,
    method: &str,
    target: &str,
    body: &Value,
    timeout: Duration,
) -> Option<Result<(u16, Value), String>> {
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let answer = client::call(address, method, target, &[], body.as_bytes(), timeout);
    match answer.and_then(|answer| Ok((answer.status, answer.json()?))) {
        Ok(answer) => Some(Ok(answer)),
        Err(error) => {
            let has_ended = matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            );
            if let (true, Address::Unix(path)) = (has_ended, address) {
                let _ = fs::remove_file(path);
                return None;
            }
            Some(Err(error.to_string()))
        }
    }
}

/// Locks the group, so that only one process at a time starts or stops its recordings. Dropping the file releases the
/// lock.
pub(crate) fn lock(group: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(group.join(LOCK))?;
    loop {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
