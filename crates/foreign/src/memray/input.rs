//! The bytes of a file, unpacked if it is an LZ4 frame, through a moving window.

use std::fmt;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::sync::Arc;

use lz4_flex::frame::FrameDecoder;

/// The first bytes of an LZ4 frame.
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const WINDOW: usize = 256 << 10;
/// Longer records count as damage. The longest valid ones hold a code object's line table.
const MAX_RECORD: usize = 16 << 20;
/// If fewer bytes than this are left, the window moves before the next record is read.
const MIN_UNREAD_BYTES: usize = 4 << 10;

trait ReadSeek: Read + Seek {}
impl<T: Read + Seek> ReadSeek for T {}

pub struct Input {
    source: Box<dyn Read>,
    window: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of the unread bytes in the unpacked file.
    offset: u64,
    is_at_end: bool,
    /// The error that stopped reading before the end of the file.
    pub error: Option<io::ErrorKind>,
}

impl fmt::Debug for Input {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.debug_struct("Input")
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl Input {
    pub fn from_file(file: File) -> io::Result<Input> {
        Input::new(file)
    }

    pub fn from_bytes(bytes: Arc<[u8]>) -> io::Result<Input> {
        Input::new(Cursor::new(bytes))
    }

    fn new(mut source: impl ReadSeek + 'static) -> io::Result<Input> {
        let mut magic = [0; LZ4_MAGIC.len()];
        let is_packed = source.read_exact(&mut magic).is_ok() && magic == LZ4_MAGIC;
        source.rewind()?;
        let source: Box<dyn Read> = if is_packed {
            Box::new(FrameDecoder::new(source))
        } else {
            let len = len_without_zeros(&mut source)?;
            source.rewind()?;
            Box::new(source.take(len))
        };
        let mut input = Input {
            source,
            window: vec![0; WINDOW],
            start: 0,
            end: 0,
            offset: 0,
            is_at_end: false,
            error: None,
        };
        input.fill();
        Ok(input)
    }

    pub fn begins_with(&self, bytes: &[u8]) -> bool {
        self.rest().starts_with(bytes)
    }

    /// Returns the unread bytes of the window: enough for any short record, unless the file ends.
    #[inline(always)]
    pub fn rest(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    /// Skips bytes that were read.
    #[inline(always)]
    pub fn advance(&mut self, n_bytes: usize) {
        self.start = (self.start + n_bytes).min(self.end);
        self.offset += n_bytes as u64;
        if self.end - self.start < MIN_UNREAD_BYTES && !self.is_at_end {
            self.fill();
        }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Enlarges the window for a record that does not fit. Returns false if there are no more bytes.
    pub fn widen(&mut self) -> bool {
        if self.is_at_end || self.window.len() >= MAX_RECORD {
            return false;
        }
        let before = self.end - self.start;
        if before * 2 > self.window.len() {
            self.window.resize(self.window.len() * 2, 0);
        }
        self.fill();
        self.end - self.start > before
    }

    fn fill(&mut self) {
        self.window.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < self.window.len() && !self.is_at_end {
            match self.source.read(&mut self.window[self.end..]) {
                Ok(0) => self.is_at_end = true,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error.kind());
                    self.is_at_end = true;
                }
            }
        }
    }
}

/// Returns the length without trailing zeros. A file that grows in steps ends in zeros if its program was killed.
fn len_without_zeros(source: &mut impl ReadSeek) -> io::Result<u64> {
    let mut end = source.seek(SeekFrom::End(0))?;
    let mut bytes = vec![0; WINDOW];
    while end > 0 {
        let len = end.min(WINDOW as u64);
        source.seek(SeekFrom::Start(end - len))?;
        let piece = &mut bytes[..len as usize];
        source.read_exact(piece)?;
        if let Some(last) = piece.iter().rposition(|&byte| byte != 0) {
            return Ok(end - len + last as u64 + 1);
        }
        end -= len;
    }
    Ok(0)
}
