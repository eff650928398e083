//! Writes a snapshot to a file, from this process or from a forked child.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use heaptide_capture::heap::{HeapSnapshot, RecordingPosition, write_heap};
use heaptide_files::{Existing, NewFile};

use super::{Proof, SnapshotOptions, WalkError, walk};
use crate::host::sys::KeepErrno;

/// Numbers of a snapshot that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub objects: u64,
    pub references: u64,
    pub types: u64,
    pub bytes: u64,
    pub unreachable: u64,
    pub paused_ns: u64,
    pub walk_ns: u64,
    pub walker_bytes: u64,
}

impl Summary {
    const WORDS: usize = 8;

    pub fn of(snapshot: &HeapSnapshot) -> Summary {
        use heaptide_capture::heap::Objects;
        let unreachable = snapshot.objects.flags.iter();
        Summary {
            objects: snapshot.objects.len() as u64,
            references: snapshot.edges.len() as u64,
            types: snapshot.types.len() as u64,
            bytes: snapshot.total_bytes(),
            unreachable: unreachable
                .filter(|flags| *flags & Objects::UNREACHABLE != 0)
                .count() as u64,
            paused_ns: snapshot.header.paused_ns,
            walk_ns: snapshot.header.walk_ns,
            walker_bytes: snapshot.header.walker_bytes,
        }
    }

    fn words(&self) -> [u64; Summary::WORDS] {
        [
            self.objects,
            self.references,
            self.types,
            self.bytes,
            self.unreachable,
            self.paused_ns,
            self.walk_ns,
            self.walker_bytes,
        ]
    }

    fn from_words(words: [u64; Summary::WORDS]) -> Summary {
        let [
            objects,
            references,
            types,
            bytes,
            unreachable,
            paused_ns,
            walk_ns,
            walker_bytes,
        ] = words;
        Summary {
            objects,
            references,
            types,
            bytes,
            unreachable,
            paused_ns,
            walk_ns,
            walker_bytes,
        }
    }
}

/// The reason why a snapshot was not written.
#[derive(Debug)]
pub enum FileError {
    Exists(PathBuf, io::Error),
    Create(PathBuf, io::Error),
    Write(PathBuf, io::Error),
    Walk(WalkError),
    Fork(io::Error),
    /// The message of the forked child.
    InChild(String),
}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Exists(path, _) => write!(
                out,
                "{} exists already; choose another file, or overwrite it with overwrite=True",
                path.display()
            ),
            FileError::Create(path, error) => {
                write!(out, "could not create {}: {error}", path.display())
            }
            FileError::Write(path, error) => {
                write!(out, "could not write to {}: {error}", path.display())
            }
            FileError::Walk(error) => error.fmt(out),
            FileError::Fork(error) => write!(
                out,
                "cannot fork the process ({error}): take the snapshot without a fork"
            ),
            FileError::InChild(message) => out.write_str(message),
        }
    }
}

/// Creates the file of a snapshot, which must not exist unless `overwrite` is set. It appears once it is published.
pub fn create(path: &Path, overwrite: bool) -> Result<NewFile, FileError> {
    let existing = if overwrite {
        Existing::Replace
    } else {
        Existing::Refuse
    };
    NewFile::create(path, existing).map_err(|error| creation_error(path, error))
}

/// Gives the complete snapshot its name.
pub fn publish(file: NewFile, path: &Path) -> Result<(), FileError> {
    let published = file.publish();
    published
        .map(drop)
        .map_err(|error| creation_error(path, error))
}

fn creation_error(path: &Path, error: io::Error) -> FileError {
    match error.kind() {
        io::ErrorKind::AlreadyExists => FileError::Exists(path.to_owned(), error),
        _ => FileError::Create(path.to_owned(), error),
    }
}

pub fn write(snapshot: &HeapSnapshot, file: &File, path: &Path) -> Result<Summary, FileError> {
    write_heap(snapshot, file).map_err(|error| FileError::Write(path.to_owned(), error))?;
    Ok(Summary::of(snapshot))
}

/// A forked child that walks its copy of the heap and writes the snapshot.
pub struct ForkedChild {
    pid: libc::pid_t,
    answer: File,
    paused_ns: u64,
}

/// Forks. The child walks its copy of the heap, writes the file and exits. This process is paused only for the time of the
/// fork.
///
/// # Safety
/// As for [`walk`].
pub unsafe fn walk_in_child(
    options: &SnapshotOptions,
    proof: Proof,
    recording: Option<RecordingPosition>,
    file: &File,
) -> Result<ForkedChild, FileError> {
    let mut ends = [-1; 2];
    // SAFETY: `ends` has room for the two descriptors the call writes.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(FileError::Fork(io::Error::last_os_error()));
    }
    // SAFETY: `pipe2` has just made both descriptors, and nothing else owns them.
    let (reader, writer) =
        unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    let parent = std::process::id();
    let begun = Instant::now();
    // SAFETY: libc's fork leaves its allocator usable in the child. The child runs only the walk, for which this thread
    // holds the GIL, the writing of a file, and `_exit`. It runs no Python code and takes no lock that another thread may
    // hold.
    let pid = unsafe { libc::fork() };
    let paused_ns = begun.elapsed().as_nanos() as u64;
    if pid < 0 {
        return Err(FileError::Fork(io::Error::last_os_error()));
    }
    if pid > 0 {
        return Ok(ForkedChild {
            pid,
            answer: File::from(reader),
            paused_ns,
        });
    }
    // SAFETY: passed on from the caller; the child has the same interpreter in the same state.
    let answer = match unsafe { walk(options, proof) } {
        Ok(mut walked) => {
            walked.forked_from(parent, paused_ns);
            walked.recorded_at(recording);
            let snapshot = walked.into_snapshot();
            let written = write_heap(&snapshot, file).map(|_| Summary::of(&snapshot));
            written.map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    let mut bytes = Vec::new();
    match answer {
        Ok(summary) => {
            bytes.push(1);
            bytes.extend(summary.words().iter().flat_map(|word| word.to_le_bytes()));
        }
        Err(error) => {
            bytes.push(0);
            bytes.extend_from_slice(error.as_bytes());
        }
    }
    let mut writer = File::from(writer);
    let written = writer.write_all(&bytes);
    // SAFETY: ends the child at once. The program's exit handlers must not run in it.
    unsafe { libc::_exit(i32::from(written.is_err())) }
}

impl ForkedChild {
    /// Waits for the child. Needs no GIL.
    pub fn finish(mut self) -> Result<Summary, FileError> {
        let mut bytes = Vec::new();
        let read = self.answer.read_to_end(&mut bytes);
        {
            let _errno = KeepErrno::now();
            let mut status = 0;
            // SAFETY: the status has room for the result. The program may have already reaped this child; then the
            // call fails, and nothing is lost.
            while unsafe { libc::waitpid(self.pid, &mut status, 0) } < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
        match (read, bytes.split_first()) {
            (Ok(_), Some((1, words))) if words.len() == 8 * Summary::WORDS => {
                let mut all = [0; Summary::WORDS];
                for (word_out, word) in all.iter_mut().zip(words.chunks_exact(8)) {
                    *word_out = u64::from_le_bytes(word.try_into().unwrap_or([0; 8]));
                }
                let mut summary = Summary::from_words(all);
                summary.paused_ns = self.paused_ns;
                Ok(summary)
            }
            (Ok(_), Some((0, message))) => Err(FileError::InChild(
                String::from_utf8_lossy(message).into_owned(),
            )),
            _ => Err(FileError::InChild(
                "the forked process ended before it wrote the snapshot: take it without a fork"
                    .to_owned(),
            )),
        }
    }
}
