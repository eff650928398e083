//! Finds and reads files of job records, and decides which processes are still alive.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use heaptide_analysis::Filter;
use heaptide_analysis::job_runs::{JobRuns, RecordNotes, RecordReader};
use heaptide_capture::{Capture, Identity, Outcome, glob};
use heaptide_procfs as procfs;
use heaptide_report::json::jobs::CaptureLink;
use heaptide_report::shell;

use crate::control::collect::encode;
use crate::exit::Failure;
use crate::input;
use crate::messages::message;
use crate::output::destination::beside;
use crate::output::progress::Progress;

/// A process that cannot be checked counts as alive for this many seconds after its latest record.
const GRACE_SECONDS: f64 = 3600.0;
/// The pid namespace of the machine itself (PROC_PID_INIT_INO), where all processes are visible.
const FIRST_NAMESPACE: &str = "4026531836";
/// Folders are searched to this depth, for files collected from several hosts.
const MAX_DEPTH: usize = 4;

/// Reads all job records in the given files and folders. `label` is the key of the label by which the report groups.
pub(crate) fn read(paths: &[&PathBuf], label: Option<String>) -> Result<JobRuns, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            find(path, MAX_DEPTH, &mut files)?;
        } else {
            files.push(path.to_path_buf());
        }
    }
    if files.is_empty() {
        let folders: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(Failure::failed(format!(
            "no job records in {}: run the program with HEAPTIDE_JOBS=FOLDER, and name that folder",
            folders.join(", ")
        )));
    }
    let (captures, files): (Vec<PathBuf>, Vec<PathBuf>) =
        files.into_iter().partition(|path| may_be_capture(path));
    let mut reader = RecordReader::with_label(label);
    for path in &files {
        let read = File::open(path).and_then(|file| reader.read(BufReader::new(file)));
        read.map_err(|error| {
            Failure::failed(format!(
                "cannot read {} ({error}): name files of job records",
                path.display()
            ))
        })?;
    }
    let here = ThisMachine::new();
    let (mut runs, notes) = reader.finish(|process, last_seen| here.is_alive(process, last_seen));
    report(notes);
    add_captures(&mut runs, &captures, &here)?;
    if runs.runs.is_empty() {
        let first = files.iter().chain(&captures).next();
        return Err(Failure::failed(format!(
            "{} has no jobs: name files that HEAPTIDE_JOBS made, or captures of programs that mark jobs",
            first.map_or_else(String::new, |path| path.display().to_string())
        )));
    }
    Ok(runs)
}

/// Whether a file may be a capture, of any profiler: job records are JSON.
fn may_be_capture(path: &Path) -> bool {
    let mut first = [0];
    let read = File::open(path).and_then(|mut file| file.read(&mut first));
    matches!(read, Ok(1))
        && !matches!(first[0], b'{' | b' ' | b'\n' | b'\r' | b'\t')
        && !path.to_string_lossy().ends_with(".jsonl")
}

/// Adds the jobs of captures: runs that no record has, and numbers that records lack.
fn add_captures(runs: &mut JobRuns, paths: &[PathBuf], here: &ThisMachine) -> Result<(), Failure> {
    if paths.is_empty() {
        return Ok(());
    }
    let captures = input::open_all(paths.iter())?;
    let mut progress = Progress::new("reading jobs", captures.iter().map(Capture::n_events).sum());
    let known = runs.index();
    let read = heaptide_analysis::jobs(
        captures,
        &Filter::default(),
        &mut |n_done| progress.advance(n_done),
        &mut |job| {
            let run = runs.run_of_capture(job);
            runs.join(&known, run);
        },
    );
    progress.finish();
    read.map_err(Failure::no_match)?;
    for run in &mut runs.runs {
        let process = &runs.processes[run.process as usize];
        // After a recording that failed, the end of the process is unknown.
        let may_be_killed = run.outcome == Outcome::Running && process.stopped.is_none();
        if may_be_killed && !here.is_alive(&process.identity, process.last_seen) {
            run.outcome = Outcome::Killed;
        }
    }
    Ok(())
}

/// Drops runs of jobs that no pattern matches.
pub(crate) fn keep_matching(runs: &mut JobRuns, patterns: &[&String]) -> Result<(), Failure> {
    let known = runs.names.values.clone();
    runs.retain_names(|name| patterns.iter().any(|pattern| glob::matches(pattern, name)));
    if runs.runs.is_empty() {
        let shown: Vec<&str> = known.iter().take(10).map(String::as_str).collect();
        return Err(Failure::no_match(format!(
            "no job matches: recorded are {}",
            shown.join(", ")
        )));
    }
    Ok(())
}

fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::failed(format!(
            "cannot read the folder {} ({error}): name the files individually",
            folder.display()
        ))
    };
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        entries.push(entry.map_err(unreadable)?);
    }
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        // Links are not followed: they could lead in circles.
        let Ok(file_type) = entry.file_type() else {
            continue;
        };
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if file_type.is_dir() && depth > 0 {
            find(&entry.path(), depth - 1, files)?;
        } else if file_type.is_file() {
            let is_records = name.starts_with("jobs-") && name.ends_with(".jsonl");
            // Captures of forked children have their process ID after the extension.
            if is_records || name.ends_with(".tide") || name.contains(".tide.") {
                files.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Returns a link for each capture that recorded a job: the address of its flame graph page, if one lies next to it, and
/// the command that makes one. The page with the links will be in `folder`; see [`address`].
pub(crate) fn capture_links(runs: &JobRuns, folder: Option<&Path>) -> Vec<CaptureLink> {
    let folder = folder.and_then(|folder| {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        folder.canonicalize().ok()
    });
    let captures = runs.captures.values.iter();
    captures
        .map(|path| {
            let page = beside(Path::new(path), "flamegraph", "html").canonicalize();
            let page = page.ok().map(|page| address(&page, folder.as_deref()));
            CaptureLink {
                path: path.clone(),
                page,
                command: format!("heaptide flamegraph --job JOB {}", shell::quote(path)),
            }
        })
        .collect()
}

/// Returns the address of a file: relative to `folder` if the file lies in it, so that both can be moved together.
fn address(file: &Path, folder: Option<&Path>) -> String {
    let relative = folder.and_then(|folder| file.strip_prefix(folder).ok());
    let text = relative.unwrap_or(file).display().to_string();
    let names: Vec<String> = text.split('/').map(encode).collect();
    let path = names.join("/");
    if relative.is_some() {
        path
    } else {
        format!("file://{path}")
    }
}

fn report(notes: RecordNotes) {
    if notes.n_invalid > 0 {
        message!(
            "skipped {} of {} lines that are no job records: cut by a kill or a full disk, or written by another program",
            notes.n_invalid,
            notes.n_lines
        );
    }
    if notes.n_newer > 0 {
        message!(
            "{} of {} lines are of a later release and were skipped: update Heaptide",
            notes.n_newer,
            notes.n_lines
        );
    }
}

/// The identity of this machine, and the current time.
struct ThisMachine {
    boot_id: String,
    host: String,
    pid_namespace: String,
    now: f64,
}

impl ThisMachine {
    fn new() -> ThisMachine {
        let facts = procfs::pid_space_facts();
        let own = Identity::new(0, &procfs::host_name(), &facts);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        ThisMachine {
            boot_id: own.boot_id,
            host: own.host,
            pid_namespace: own.pid_namespace,
            now: now.map_or(0.0, |now| now.as_secs_f64()),
        }
    }

    /// Whether a process still runs. One that cannot be seen from here, on another host or in another container, counts as
    /// alive for an hour after its latest record.
    fn is_alive(&self, process: &Identity, last_seen: f64) -> bool {
        if !self.boot_id.is_empty() && process.boot_id == self.boot_id {
            if process.pid_namespace == self.pid_namespace {
                return is_running(process.pid, &process.start);
            }
            if let Some(is_alive) = is_visible(process, &self.pid_namespace) {
                return is_alive;
            }
        } else if process.host == self.host
            && !process.boot_id.is_empty()
            && self.boot_id != process.boot_id
        {
            // This machine was restarted after the record.
            return false;
        }
        self.now - last_seen < GRACE_SECONDS
    }
}

/// Whether a process with this ID and start time runs on this machine.
fn is_running(pid: u32, start: &str) -> bool {
    procfs::Stat::of(pid).is_some_and(|stat| {
        !stat.has_ended() && (start.is_empty() || procfs::start_text(stat.start) == start)
    })
}

/// Whether a process of another pid namespace of this machine runs; `None` if it may run but be invisible from here.
fn is_visible(process: &Identity, own_namespace: &str) -> Option<bool> {
    let mut sees_all = own_namespace == FIRST_NAMESPACE;
    for pid in procfs::pids() {
        let own_pid = procfs::Status::of(pid).map_or(pid, |status| status.own_pid);
        match procfs::pid_namespace_of(pid) {
            // The process belongs to another user and to another namespace, where it has another ID.
            None if own_pid != pid => sees_all &= !procfs::is_running(pid),
            Some(namespace) if namespace == process.pid_namespace => {
                // If one process of a namespace is visible, all of them are.
                sees_all = true;
                if own_pid == process.pid {
                    return Some(is_running(pid, &process.start));
                }
            }
            _ => {}
        }
    }
    sees_all.then_some(false)
}
