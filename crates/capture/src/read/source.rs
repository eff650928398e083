//! The source of a capture's bytes: a file, or memory for tests and fuzzing. Many threads can read a file at once, because
//! each read has its own offset.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::area::ExtentHead;
use crate::stop_mark::StopMark;

#[derive(Debug)]
pub(super) enum Source {
    File(File),
    Bytes(Vec<u8>),
    /// Changes while it is read.
    #[cfg(test)]
    Changing(changing::Changing),
}

impl Source {
    /// The current length; a file may grow while it is read.
    pub(super) fn len(&self) -> io::Result<u64> {
        match self {
            Source::File(file) => Ok(file.metadata()?.len()),
            Source::Bytes(bytes) => Ok(bytes.len() as u64),
            #[cfg(test)]
            Source::Changing(changing) => Ok(changing.len()),
        }
    }

    /// Fills `into` with the bytes from `offset` on; returns their number.
    pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::File(file) => {
                let mut filled = 0;
                while filled < into.len() {
                    match file.read_at(&mut into[filled..], offset + filled as u64) {
                        Ok(0) => break,
                        Ok(n) => filled += n,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(filled)
            }
            Source::Bytes(bytes) => Ok(copy_from(bytes, offset, into)),
            #[cfg(test)]
            Source::Changing(changing) => Ok(changing.read_at(offset, into)),
        }
    }

    /// Returns the stop mark of the extent at `offset`, if it has one.
    pub(super) fn stop_mark_at(&self, offset: u64, head: &ExtentHead) -> Option<StopMark> {
        let mut bytes = [0; StopMark::LEN];
        let at = offset.saturating_add(StopMark::AT as u64);
        let is_read =
            StopMark::fits(head) && matches!(self.read_at(at, &mut bytes), Ok(StopMark::LEN));
        is_read.then(|| StopMark::from_bytes(&bytes)).flatten()
    }
}

fn copy_from(bytes: &[u8], offset: u64, into: &mut [u8]) -> usize {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let available = bytes.get(start..).unwrap_or_default();
    let n = available.len().min(into.len());
    into[..n].copy_from_slice(&available[..n]);
    n
}

/// A moving view of a source, for reading many small pieces that lie near each other.
pub(super) struct Window<'a> {
    source: &'a Source,
    bytes: Vec<u8>,
    start: u64,
    n_filled: usize,
}

impl<'a> Window<'a> {
    pub(super) fn new(source: &'a Source, len: usize) -> Self {
        Window {
            source,
            bytes: vec![0; len],
            start: 0,
            n_filled: 0,
        }
    }

    /// Returns `len` bytes from `offset` on; fewer at the end of the file, or where it cannot be read.
    pub(super) fn get(&mut self, offset: u64, len: usize) -> &[u8] {
        let len = len.min(self.bytes.len());
        let inside = |start: u64, n_filled: usize| {
            let skipped = usize::try_from(offset.checked_sub(start)?).ok()?;
            (skipped + len <= n_filled).then_some(skipped)
        };
        let skipped = match inside(self.start, self.n_filled) {
            Some(skipped) => skipped,
            None => {
                self.start = offset;
                self.n_filled = self.source.read_at(offset, &mut self.bytes).unwrap_or(0);
                0
            }
        };
        &self.bytes[skipped..(skipped + len).min(self.n_filled)]
    }
}

/// A file that changes between reads, at moments that a test chooses.
#[cfg(test)]
pub(super) mod changing {
    use std::fmt;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    type Change = Box<dyn FnMut(u64, &mut Vec<u8>) + Send>;

    /// The bytes, and a function that changes them before each read; it receives the offset of the read.
    pub struct Changing(Mutex<(Vec<u8>, Change)>);

    impl Changing {
        pub fn new(
            bytes: Vec<u8>,
            change: impl FnMut(u64, &mut Vec<u8>) + Send + 'static,
        ) -> Changing {
            Changing(Mutex::new((bytes, Box::new(change))))
        }

        pub fn len(&self) -> u64 {
            self.lock().0.len() as u64
        }

        pub fn read_at(&self, offset: u64, into: &mut [u8]) -> usize {
            let mut state = self.lock();
            let (bytes, change) = &mut *state;
            change(offset, bytes);
            super::copy_from(bytes, offset, into)
        }

        fn lock(&self) -> MutexGuard<'_, (Vec<u8>, Change)> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl fmt::Debug for Changing {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(out, "Changing({} bytes)", self.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_returns_fewer_bytes_at_the_end() {
        let source = Source::Bytes((0..100).collect());
        let mut window = Window::new(&source, 16);
        assert_eq!(window.get(0, 3), [0, 1, 2]);
        assert_eq!(window.get(10, 3), [10, 11, 12]);
        assert_eq!(window.get(15, 3), [15, 16, 17]);
        assert_eq!(window.get(2, 1), [2]);
        assert_eq!(window.get(98, 8), [98, 99]);
        assert!(window.get(100, 1).is_empty());
        assert!(window.get(u64::MAX, 1).is_empty());
    }
}
