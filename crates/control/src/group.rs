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
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::address::Address;
use crate::client;
use crate::json::Json;

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

/// Asks a member. `None` if it has gone; its socket is then removed.
pub fn ask(
    address: &Address,
    method: &str,
    target: &str,
    body: &Json,
    timeout: Duration,
) -> Option<Result<(u16, Json), String>> {
    let body = match body {
        Json::Null => String::new(),
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
pub fn lock(group: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(group.join("lock"))?;
    loop {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
