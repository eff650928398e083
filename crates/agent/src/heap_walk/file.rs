//! A snapshot's way into a file, from this process or from a forked copy of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use heaptide_capture::heap::{HeapSnapshot, RecordingPosition, write_heap};

use super::{Proof, SnapshotOptions, walk};
use crate::host::sys::KeepErrno;

/// What can be said of a snapshot that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub objects: u64,
    pub references: u64,
    pub types: u64,
    pub bytes: u64,
    pub unreachable: u64,
    pub stood_still_ns: u64,
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
            stood_still_ns: snapshot.header.stood_still_ns,
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
            self.stood_still_ns,
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
            stood_still_ns,
            walk_ns,
            walker_bytes,
        ] = words;
        Summary {
            objects,
            references,
            types,
            bytes,
            unreachable,
            stood_still_ns,
            walk_ns,
            walker_bytes,
        }
    }
}

/// A file for a snapshot, which must be new unless it may be overwritten.
pub fn create(path: &Path, overwrite: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    if overwrite {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    options.open(path)
}

pub fn write(snapshot: &HeapSnapshot, file: File) -> io::Result<Summary> {
    write_heap(snapshot, file)?;
    Ok(Summary::of(snapshot))
}

/// A forked copy that is walking its heap and writing it.
pub struct Copy {
    pid: libc::pid_t,
    answer: File,
    stood_still_ns: u64,
}

/// Forks; the copy walks its heap, writes the file and is gone. This process stood still only while it was copied.
///
/// # Safety
/// As for [`walk`].
pub unsafe fn walk_in_copy(
    options: &SnapshotOptions,
    proof: Proof,
    recording: Option<RecordingPosition>,
    file: File,
) -> io::Result<Copy> {
    let mut ends = [-1; 2];
    // SAFETY: `ends` has room for the two descriptors the call writes.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both descriptors were just made and belong to nobody else.
    let (reader, writer) =
        unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    let parent = std::process::id();
    let begun = Instant::now();
    // SAFETY: libc's own fork leaves its allocator usable in the copy. What runs there is the walk, which needs the GIL
    // that this thread holds, the writing of a file, and `_exit`: no Python code and no other thread's lock.
    let pid = unsafe { libc::fork() };
    let stood_still_ns = begun.elapsed().as_nanos() as u64;
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid > 0 {
        return Ok(Copy {
            pid,
            answer: File::from(reader),
            stood_still_ns,
        });
    }
    // SAFETY: passed on from the caller; the copy has the same interpreter in the same state.
    let answer = match unsafe { walk(options, proof) } {
        Ok(mut walked) => {
            walked.forked_from(parent, stood_still_ns);
            walked.recorded_at(recording);
            write(&walked.into_snapshot(), file)
        }
        Err(error) => Err(io::Error::other(error.to_string())),
    };
    let mut bytes = Vec::new();
    match answer {
        Ok(summary) => {
            bytes.push(1);
            bytes.extend(summary.words().iter().flat_map(|word| word.to_le_bytes()));
        }
        Err(error) => {
            bytes.push(0);
            bytes.extend_from_slice(error.to_string().as_bytes());
        }
    }
    let mut writer = File::from(writer);
    let written = writer.write_all(&bytes);
    // SAFETY: ends the copy at once: nothing of the program's that runs at an exit may run here.
    unsafe { libc::_exit(i32::from(written.is_err())) }
}

impl Copy {
    /// Waits for the copy. Needs no GIL.
    pub fn finish(mut self) -> Result<Summary, String> {
        let mut bytes = Vec::new();
        let read = self.answer.read_to_end(&mut bytes);
        {
            let _errno = KeepErrno::now();
            let mut status = 0;
            // SAFETY: waits for a child of ours. The program may have waited for it already; then there is none.
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
                summary.stood_still_ns = self.stood_still_ns;
                Ok(summary)
            }
            (Ok(_), Some((0, sentence))) => Err(String::from_utf8_lossy(sentence).into_owned()),
            _ => Err(
                "the copy of the process that was to write the snapshot ended early: take it without a fork".to_owned(),
            ),
        }
    }
}
