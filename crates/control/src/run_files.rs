//! Files of a run beside its captures: timelines, job records and reports, for `heaptide ctl collect`.
//!
//! They lie in the run's folder, in the folder of job records (`HEAPTIDE_JOBS`), and, for timelines, in the folder for
//! sessions. A name in a request is only compared with existing names; it never becomes part of a path.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use heaptide_files::OwnFolder;
use serde_json::{Value, json};

use crate::calendar::unix_ms;
use crate::config::Config;
use crate::ranges;
use crate::request::Request;
use crate::response::{Body, Response};

/// The extensions of the files that are served.
const TIMELINES: [&str; 2] = ["timeline", "dat"];
const JOB_RECORDS: &str = "jsonl";
const REPORTS: [&str; 4] = ["json", "txt", "md", "html"];
/// Files that are not served.
const PRIVATE: [&str; 1] = ["wanted.json"];

struct RunFile {
    name: String,
    file: File,
    metadata: Metadata,
}

/// Lists the files, or sends the one that `name` chooses.
pub(crate) fn answer(config: &Config, request: &Request) -> Response {
    let mut files = all(config);
    let Some(name) = request.parameter("name") else {
        let files: Vec<Value> = files.iter().map(describe).collect();
        return Response::json(200, &json!({ "files": files }));
    };
    let Some(at) = files.iter().position(|file| file.name == name) else {
        let sentence = format!("there is no file {name:?}: omit the name to list the files");
        return Response::error(404, "NotFound", sentence);
    };
    let chosen = files.swap_remove(at);
    let bytes = chosen.metadata.len();
    let version = Version::of(&chosen);
    let tag = version.tag();
    let response = Response {
        status: 200,
        headers: vec![
            ("Content-Type", "application/octet-stream".to_owned()),
            ("Accept-Ranges", "bytes".to_owned()),
            ("ETag", tag.clone()),
        ],
        body: Body::file_range(chosen.file, 0, bytes),
    };
    ranges::apply(request, response, &tag, |earlier| {
        version.has_prefix(earlier)
    })
}

/// The version of a file, from which its `ETag` is made.
struct Version {
    /// Distinguishes files that had the same name one after the other.
    file: String,
    bytes: u64,
    /// Nanoseconds; `None` for timelines and job records, which only grow at their end: their length is enough.
    modified: Option<i128>,
}

impl Version {
    fn of(file: &RunFile) -> Version {
        let metadata = &file.metadata;
        let created = metadata.created().ok();
        let created = created.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let created = created.map_or(0, |since| since.as_nanos());
        let seconds = i128::from(metadata.mtime());
        let modified = seconds * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        let is_report = extension(&file.name).is_some_and(|it| REPORTS.contains(&it));
        Version {
            file: format!("{:x}-{created:x}", metadata.ino()),
            bytes: metadata.len(),
            modified: is_report.then_some(modified),
        }
    }

    fn tag(&self) -> String {
        let Version { file, bytes, .. } = self;
        match self.modified {
            Some(modified) => format!("\"{file}-{bytes}-{modified}\""),
            None => format!("\"{file}-{bytes}\""),
        }
    }

    /// Returns whether `tag` is that of an earlier version with which this one begins.
    fn has_prefix(&self, tag: &str) -> bool {
        let bytes = tag
            .strip_prefix('"')
            .and_then(|rest| rest.strip_prefix(self.file.as_str()))
            .and_then(|rest| rest.strip_prefix('-')?.strip_suffix('"'))
            .and_then(|bytes| bytes.parse::<u64>().ok());
        self.modified.is_none() && bytes.is_some_and(|bytes| bytes <= self.bytes)
    }
}

fn describe(file: &RunFile) -> Value {
    json!({
        "name": file.name,
        "bytes": file.metadata.len(),
        "modified_unix_ms": file.metadata.modified().map_or(0, unix_ms),
    })
}

fn all(config: &Config) -> Vec<RunFile> {
    let is_timeline = |extension: &str| TIMELINES.contains(&extension);
    let is_any = |extension: &str| {
        is_timeline(extension) || extension == JOB_RECORDS || REPORTS.contains(&extension)
    };
    let mut files = Vec::new();
    add(&mut files, &config.run_folder, &is_any);
    if let Some(jobs) = &config.jobs_folder {
        add(&mut files, jobs, &|extension| extension == JOB_RECORDS);
    }
    add(&mut files, &config.directory, &is_timeline);
    files.sort_by(|one, other| one.name.cmp(&other.name));
    files
}

/// Adds the files of this user in a folder. If two folders have a file with the same name, the file of the first folder
/// is used.
fn add(files: &mut Vec<RunFile>, folder: &Path, is_wanted: &dyn Fn(&str) -> bool) {
    let Ok(own) = OwnFolder::open(folder) else {
        return;
    };
    for name in own.names().unwrap_or_default() {
        let Some(text) = wanted_name(&name, is_wanted) else {
            continue;
        };
        let is_known = files.iter().any(|file| file.name == text);
        let Ok(file) = own.file(&name) else { continue };
        let Ok(metadata) = file.metadata() else {
            continue;
        };
        if !is_known {
            files.push(RunFile {
                name: text,
                file,
                metadata,
            });
        }
    }
}

fn wanted_name(name: &OsString, is_wanted: &dyn Fn(&str) -> bool) -> Option<String> {
    let text = name.to_str()?;
    let is_private = PRIVATE.contains(&text) || text.starts_with('.');
    (is_wanted(extension(text)?) && !is_private).then(|| text.to_owned())
}

fn extension(name: &str) -> Option<&str> {
    Path::new(name).extension()?.to_str()
}
