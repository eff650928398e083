//! The processes of one job: each has a socket in a folder of the group, so that a request to one acts on all.
//!
//! ```text
//! /tmp/heaptide-1000/run/4711-883/4712.sock
//!                        │        └ the process
//!                        └ the group: the process that the workers come from, and when it began
//! ```
//! The folder belongs to the user alone. A socket whose process has gone is removed by whoever finds it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heaptide_procfs as procfs;

use crate::address::Address;
use crate::client;
use serde_json::Value;

/// Held by whoever starts or stops the processes of a group.
const LOCK: &str = "lock";
const LEFT_OVER_AFTER: Duration = Duration::from_secs(60);

/// Makes a folder that only this user can use; refuses one that somebody else made under its name.
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
    let metadata = fs::symlink_metadata(path)?;
    let is_ours = metadata.is_dir() && metadata.uid() == user();
    if is_ours {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} belongs to somebody else", path.display()),
        ))
    }
}

/// The user whose jobs these are.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whose folder it is; for one that cannot be looked at, whose the folder is that it lies in.
pub(crate) fn owner(folder: &Path) -> Option<u32> {
    let found = folder.ancestors().find_map(|path| fs::metadata(path).ok());
    found.map(|metadata| metadata.uid())
}

/// Within which the numbers of processes are told apart: this boot of this machine, and its container. `None` where that
/// cannot be found out.
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

/// The processes with a socket in the folder, and their addresses.
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

/// Removes what groups have left whose processes have all gone; `own` is one of their neighbours.
///
/// A folder that has just been made may not have its first socket yet, and the processes of another container are not in
/// our `/proc`: only what is old and refuses is removed. What cannot be removed is left.
pub fn remove_left_overs(own: &Path) {
    let entries = own.parent().and_then(|runtime| fs::read_dir(runtime).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        let is_old = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > LEFT_OVER_AFTER));
        if path == own || !is_old || !is_named_after_a_process(&path) {
            continue;
        }
        let members = members(&path);
        if members.iter().all(|member| has_gone(member.0, &path)) {
            for (pid, _) in members {
                let _ = fs::remove_file(socket_of(&path, pid));
            }
            let _ = fs::remove_file(path.join(LOCK));
            // Refuses if there is anything in it.
            let _ = fs::remove_dir(&path);
        }
    }
}

/// Not by somebody who chose a name.
fn is_named_after_a_process(group: &Path) -> bool {
    let name = group.file_name().and_then(|name| name.to_str());
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    name.and_then(|name| name.split_once('-'))
        .is_some_and(|(pid, began)| is_number(pid) && is_number(began))
}

fn has_gone(pid: u32, group: &Path) -> bool {
    !procfs::exists(pid)
        && UnixStream::connect(socket_of(group, pid))
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Asks a member. `None` if it has gone; its socket is then removed.
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
            let is_gone = matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            );
            if let (true, Address::Unix(path)) = (is_gone, address) {
                let _ = fs::remove_file(path);
                return None;
            }
            Some(Err(error.to_string()))
        }
    }
}

/// One start or stop at a time in the whole group; given back when the file is dropped.
pub(crate) fn lock(group: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(group.join(LOCK))?;
    loop {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
