//! `heaptide ctl collect`: copies captures, timelines and job records of running programs, also of other hosts, into a folder.
//!
//! ```text
//! FOLDER/collected.json                    where the files come from, and how far each host's clock was ahead
//! FOLDER/web-1/20261115-233012-345-4711/4711.tide
//! FOLDER/web-1/jobs-web-1-4711-83456.jsonl
//! ```
//! The command can be repeated: finished files are skipped, and an interrupted download continues where it ended. A file
//! has the suffix `.part` until it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use heaptide_control::client::Answer;
use heaptide_control::request::percent_encoded;
use serde_json::{Value, json};

use crate::control::control_client::ControlClient;
use crate::exit::Failure;
use crate::input::folders::COLLECTED;
use crate::messages::{answer, message};

const PART: &str = "part";
const TAG: &str = "tag";

/// Copies the files of all programs. If a program does not answer, the files of the others are still copied.
pub(crate) fn collect(clients: &[ControlClient], folder: &Path) -> Result<(), Failure> {
    private_folder(folder)?;
    let mut sources = Vec::new();
    let mut failed = Vec::new();
    for client in clients {
        match collect_from(client, folder) {
            Ok(source) => sources.push(source),
            Err(failure) => {
                let reason = failure.to_string();
                let address = client.address().to_string();
                // Failures of the connection already name the address.
                match reason.contains(&address) {
                    true => message!("{reason}"),
                    false => message!("{address}: {reason}"),
                }
                failed.push(reason);
            }
        }
    }
    write_sources(folder, sources)?;
    match failed.len() {
        0 => Ok(()),
        n => Err(Failure::failed(format!(
            "{n} of {} programs could not be collected from: repeat the command to continue",
            clients.len()
        ))),
    }
}

/// Copies the files of one program. Returns the description of the source.
fn collect_from(client: &ControlClient, folder: &Path) -> Result<Value, Failure> {
    let before = unix_ms();
    let status = client.json("status")?;
    let after = unix_ms();
    let remote_ms = status["time_unix_ms"].as_i64();
    let offset = remote_ms.map(|remote_ms| remote_ms - (before + after) / 2);
    let identity = &status["identity"];
    let host = identity["host"].as_str().unwrap_or("host");
    let into = folder.join(plain(host));
    private_folder(&into)?;
    let mut n_files = 0;
    let mut n_bytes = 0;
    let mut add_copied = |copied: Option<u64>| {
        n_files += u64::from(copied.is_some());
        n_bytes += copied.unwrap_or(0);
    };
    let sessions = client.json("sessions")?;
    for session in sessions["sessions"].as_array().into_iter().flatten() {
        let id = session["id"].as_str().unwrap_or("session");
        let is_running = session["state"] == "recording";
        for process in session["processes"].as_array().into_iter().flatten() {
            let name = process["process"].as_str().unwrap_or_default();
            let output = process["output"].as_str().unwrap_or_default();
            let file = Path::new(output).file_name().and_then(|name| name.to_str());
            let Some(file) = file else { continue };
            let target = into.join(plain(id)).join(plain(file));
            let path = format!("sessions/{}/report?process={}", encode(id), encode(name));
            let bytes = process["bytes"].as_u64().filter(|_| !is_running);
            add_copied(download(client, &path, &target, bytes)?);
        }
    }
    // Programs of earlier releases have no such route.
    if let Ok(files) = client.json("files") {
        for file in files["files"].as_array().into_iter().flatten() {
            let name = file["name"].as_str().unwrap_or_default();
            let path = format!("files?name={}", encode(name));
            let target = into.join(plain(name));
            add_copied(download(client, &path, &target, file["bytes"].as_u64())?);
        }
    }
    answer!(
        "{}: {n_files} {}, {n_bytes} bytes from {}",
        into.display(),
        if n_files == 1 { "file" } else { "files" },
        client.address()
    );
    Ok(json!({
        "url": client.address().to_string(),
        "host": host,
        "boot_id": identity["boot_id"],
        "pid_namespace": identity["pid_namespace"],
        "run": status["run"],
        "clock_offset_ms": offset,
        "collected_unix_ms": after,
    }))
}

/// Downloads a file, unless it is here already. `bytes` is its final size; `None` while it changes. Returns the bytes that
/// were copied, or `None` if there was nothing to do.
fn download(
    client: &ControlClient,
    path: &str,
    target: &Path,
    bytes: Option<u64>,
) -> Result<Option<u64>, Failure> {
    if bytes.is_some_and(|bytes| fs::metadata(target).is_ok_and(|found| found.len() == bytes)) {
        return Ok(None);
    }
    let writing_failed = |error: io::Error| Failure::writing(target.display(), &error);
    if let Some(folder) = target.parent() {
        private_folder(folder)?;
    }
    let (part, tag_path) = (with_suffix(target, PART), with_suffix(target, TAG));
    let tag = fs::read_to_string(&tag_path).unwrap_or_default();
    let n_here = match tag.is_empty() {
        true => 0,
        false => fs::metadata(&part).map_or(0, |found| found.len()),
    };
    let range = format!("bytes={n_here}-");
    let headers = [("Range", range.as_str()), ("If-Range", tag.as_str())];
    let is_resumed = n_here > 0 && bytes.is_some_and(|bytes| n_here < bytes);
    let answer = client.request("GET", path, "", if is_resumed { &headers } else { &[] })?;
    if answer.status == 404 {
        // The process has ended before its first event, or retention removed the session meanwhile.
        return Ok(None);
    }
    if answer.status >= 400 {
        return Err(Failure::failed(client.reason(answer)));
    }
    let is_part = answer.status == 206 && is_resumed;
    let new_tag = answer.header("ETag").unwrap_or_default().to_owned();
    let mut options = OpenOptions::new();
    options.create(true).write(true).mode(0o600);
    options.append(is_part).truncate(!is_part);
    let mut file = options.open(&part).map_err(writing_failed)?;
    // A weak tag marks a file that changes: its download cannot be continued.
    if bytes.is_some() && !new_tag.starts_with("W/") {
        write_private(&tag_path, new_tag.as_bytes()).map_err(writing_failed)?;
    }
    let copied = copy(client, answer, &mut file)?;
    file.sync_data().map_err(writing_failed)?;
    fs::rename(&part, target).map_err(writing_failed)?;
    let _ = fs::remove_file(&tag_path);
    Ok(Some(copied))
}

fn copy(client: &ControlClient, mut answer: Answer, file: &mut File) -> Result<u64, Failure> {
    let expected: Option<u64> = answer
        .header("Content-Length")
        .and_then(|length| length.parse().ok());
    let incomplete = |reason: String| {
        let address = client.address();
        Failure::failed(format!(
            "the answer of {address} is incomplete ({reason}): repeat the command to continue"
        ))
    };
    let mut buffer = vec![0; 64 * 1024];
    let mut copied = 0;
    loop {
        let n_read = answer.body.read(&mut buffer);
        let n_read = n_read.map_err(|error| incomplete(error.to_string()))?;
        if n_read == 0 {
            break;
        }
        let written = file.write_all(&buffer[..n_read]);
        written.map_err(|error| Failure::writing("the collected file", &error))?;
        copied += n_read as u64;
    }
    match expected {
        Some(expected) if copied < expected => {
            Err(incomplete(format!("{copied} of {expected} bytes")))
        }
        _ => Ok(copied),
    }
}

/// Writes the sources of the files. Keeps the sources of earlier collections, except those with the same address.
fn write_sources(folder: &Path, new: Vec<Value>) -> Result<(), Failure> {
    let path = folder.join(COLLECTED);
    let known: Value =
        serde_json::from_slice(&fs::read(&path).unwrap_or_default()).unwrap_or_default();
    let known = known["sources"].as_array().cloned().unwrap_or_default();
    let is_replaced = |old: &Value| new.iter().any(|source| source["url"] == old["url"]);
    let mut sources: Vec<Value> = known.into_iter().filter(|old| !is_replaced(old)).collect();
    sources.extend(new);
    let text = format!("{:#}\n", json!({ "sources": sources }));
    write_private(&path, text.as_bytes()).map_err(|error| Failure::writing(path.display(), &error))
}

fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(content)
}

/// Captures contain the names and command lines of a program: only this user may read them.
fn private_folder(path: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|error| Failure::writing(path.display(), &error))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Converts a name that another host sent into a single component of a path.
fn plain(name: &str) -> String {
    let letter = |letter: char| match letter {
        letter if letter.is_alphanumeric() || "-_.~@+".contains(letter) => letter,
        _ => '_',
    };
    let name: String = name.chars().take(200).map(letter).collect();
    match name.trim_start_matches('.') {
        "" => "_".to_owned(),
        name => name.to_owned(),
    }
}

/// Percent-encodes a text for one component of a URL.
pub(crate) fn encode(text: &str) -> String {
    percent_encoded(text, |byte| {
        byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
    })
}

fn unix_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_hosts_stay_within_the_folder() {
        for (name, expected) in [
            ("web-1", "web-1"),
            ("../../etc/passwd", "_.._etc_passwd"),
            ("..", "_"),
            ("", "_"),
            ("a/b\0c", "a_b_c"),
            ("4711.tide.4712", "4711.tide.4712"),
        ] {
            assert_eq!(plain(name), expected, "{name}");
        }
    }
}
