//! A column of a snapshot as blocks in the file. Each block has about a megabyte of encoded numbers, compressed, and a
//! checksum.
//!
//! ```text
//! 0 tag (u32)   4 raw length (u32)   8 stored length (u32)   12 zero (u32)   16 checksum of the stored bytes (u64)   24 bytes
//! ```
//! Stored bytes are one zstd frame, or the raw bytes if the two lengths are equal. No number or text is split between two
//! blocks. The blocks of a column follow each other. No checksum covers the tag, so readers check that the columns are
//! complete.

use std::io::{self, Read, Write};

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::compress_bound;

use crate::wire::{MAX_VARINT_BYTES, Reader, Writer, checksum};

pub const HEAD_LEN: usize = 24;
/// A block ends when it has this many bytes. The last block of a column may have fewer.
pub const BLOCK_LEN: usize = 1 << 20;
/// Room for the texts of one entry, so that no block is longer than [`MAX_RAW_LEN`]. Texts are cut to a quarter of it.
pub const MAX_TEXT_LEN: usize = 64 << 10;
/// Longer blocks count as damage.
pub const MAX_RAW_LEN: usize = BLOCK_LEN + MAX_TEXT_LEN + 64;
const LEVEL: i32 = 1;

/// The content of a block.
pub mod tag {
    pub const TYPES: u32 = 1;
    pub const NAMES: u32 = 2;
    pub const ADDRESSES: u32 = 3;
    pub const TYPE_NUMBERS: u32 = 4;
    pub const SIZES: u32 = 5;
    pub const EXTRAS: u32 = 6;
    pub const FLAGS: u32 = 7;
    pub const DEGREES: u32 = 8;
    pub const TARGETS: u32 = 9;
    pub const LABELS: u32 = 10;
    pub const ROOTS: u32 = 11;
    pub const VALUES: u32 = 12;
    pub const FRAMES: u32 = 13;
    pub const STACKS: u32 = 14;
    pub const STACK_NUMBERS: u32 = 15;
    /// The last block, which is empty. A file without it was cut.
    pub const END: u32 = 0x444e_4548;
}

/// Writes columns one after another and reuses its buffers.
pub struct ColumnWriter<W> {
    out: W,
    tag: u32,
    raw: Vec<u8>,
    packed: Vec<u8>,
    compressor: Option<Compressor<'static>>,
}

impl<W: Write> ColumnWriter<W> {
    pub fn new(out: W) -> ColumnWriter<W> {
        ColumnWriter {
            out,
            tag: 0,
            raw: Vec::with_capacity(MAX_RAW_LEN),
            packed: vec![0; compress_bound(MAX_RAW_LEN)],
            compressor: Compressor::new(LEVEL).ok(),
        }
    }

    /// Ends the previous column and begins another.
    pub fn begin(&mut self, tag: u32) -> io::Result<()> {
        self.close_block()?;
        self.tag = tag;
        Ok(())
    }

    /// Must be called between two entries, so that no entry is split between two blocks.
    #[inline]
    pub fn entry(&mut self) -> io::Result<()> {
        if self.raw.len() >= BLOCK_LEN {
            self.close_block()?;
        }
        Ok(())
    }

    #[inline]
    pub fn varint(&mut self, value: u64) {
        let mut bytes = [0; MAX_VARINT_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.varint(value);
        let len = writer.len();
        self.raw.extend_from_slice(&bytes[..len]);
    }

    #[inline]
    pub fn signed(&mut self, value: i64) {
        self.varint(crate::wire::zigzag(value));
    }

    /// Writes a text, cut at a character boundary if it is too long.
    pub fn text(&mut self, text: &str) {
        let mut len = text.len().min(MAX_TEXT_LEN / 4);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        self.varint(len as u64);
        self.raw.extend_from_slice(&text.as_bytes()[..len]);
    }

    fn close_block(&mut self) -> io::Result<()> {
        if !self.raw.is_empty() {
            self.write_block()?;
        }
        Ok(())
    }

    fn write_block(&mut self) -> io::Result<()> {
        let compressed = self
            .compressor
            .as_mut()
            .map(|compressor| compressor.compress_to_buffer(&self.raw, &mut self.packed[..]));
        let stored = match compressed {
            Some(Ok(len)) if len < self.raw.len() => &self.packed[..len],
            _ => &self.raw[..],
        };
        let mut head = [0; HEAD_LEN];
        let mut writer = Writer::new(&mut head);
        writer.u32(self.tag);
        writer.u32(self.raw.len() as u32);
        writer.u32(stored.len() as u32);
        writer.u32(0);
        writer.u64(checksum(stored));
        self.out.write_all(&head)?;
        self.out.write_all(stored)?;
        self.raw.clear();
        Ok(())
    }

    /// Ends the last column and the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.begin(tag::END)?;
        self.write_block()?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// The reason why no further block can be read.
#[derive(Debug)]
pub enum BlockError {
    Cut,
    Damaged,
    Unreadable(io::Error),
}

/// Reads and unpacks blocks one after another.
pub struct BlockReader<R> {
    from: R,
    stored: Vec<u8>,
    raw: Vec<u8>,
    decompressor: Option<Decompressor<'static>>,
}

impl<R: Read> BlockReader<R> {
    pub fn new(from: R) -> BlockReader<R> {
        BlockReader {
            from,
            stored: Vec::new(),
            raw: Vec::new(),
            decompressor: Decompressor::new().ok(),
        }
    }

    /// Returns tag and bytes of the next block.
    pub fn next_block(&mut self) -> Result<(u32, &[u8]), BlockError> {
        let mut head = [0; HEAD_LEN];
        self.fill(&mut head)?;
        let mut reader = Reader::new(&head);
        let mut word = || reader.u32().unwrap_or(0);
        let (tag, raw_len, stored_len, zero) = (word(), word() as usize, word() as usize, word());
        let sum = reader.u64().unwrap_or(0);
        if zero != 0 || raw_len > MAX_RAW_LEN || stored_len > raw_len {
            return Err(BlockError::Damaged);
        }
        let mut stored = std::mem::take(&mut self.stored);
        stored.resize(stored_len, 0);
        let filled = self.fill(&mut stored);
        self.stored = stored;
        filled?;
        if checksum(&self.stored) != sum {
            return Err(BlockError::Damaged);
        }
        if stored_len == raw_len {
            return Ok((tag, &self.stored));
        }
        self.raw.resize(raw_len, 0);
        let unpacked = self
            .decompressor
            .as_mut()
            .map(|decompressor| decompressor.decompress_to_buffer(&self.stored, &mut self.raw[..]));
        match unpacked {
            Some(Ok(len)) if len == raw_len => Ok((tag, &self.raw)),
            _ => Err(BlockError::Damaged),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BlockError> {
        self.from
            .read_exact(bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => BlockError::Cut,
                _ => BlockError::Unreadable(error),
            })
    }
}
