//! Reading a capture: opening it, finding its chunks, and unpacking them one by one.
//!
//! [`Capture::open`] reads the heads of all areas and the registry. Events are read later, chunk by chunk, from any number
//! of threads. The file may grow meanwhile, and may be cut or overwritten anywhere.

mod checkpoint;
mod chunk;
#[cfg(test)]
mod concurrent_write_tests;
mod error;
mod growing;
mod jobs;
mod registry;
mod scan;
mod source;

use std::fs::{self, File};
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};

use crate::area::{AREA_ALIGN, Area, BlockHead, ChunkHead, REGISTRY_STREAM, align_up};
use crate::damage::{Damage, DamageCategory};
use crate::foreign::ForeignEvents;
use crate::header::{Header, MAGIC, PREFIX_LEN};
use crate::pack::Packer;
use crate::registry::Entry;
use crate::stop_mark::StopMark;

pub use checkpoint::{Checkpoint, MAX_CHECKPOINT_LEN};
pub use chunk::ChunkRef;
pub use error::{OpenError, OpenFailure};
pub use growing::{Cursors, GrowingCapture};
pub use jobs::{JobInfo, Jobs};
pub use registry::{
    ClockPoint, CodeText, ModuleMapping, ModuleText, Registry, RegistryBuilder, Resident,
    SymbolText, ThreadInfo,
};

use chunk::{Container, Sorted};
use scan::Scan;
use source::Source;

/// Longer chunks count as damage.
pub const MAX_CHUNK_LEN: u32 = 1 << 20;

/// An opened capture.
#[derive(Debug)]
pub struct Capture {
    pub path: PathBuf,
    pub header: Header,
    pub registry: Registry,
    /// The sums that replace the removed events of a bounded capture.
    pub checkpoint: Option<Checkpoint>,
    /// The chunks that hold events, by (stream, number), without duplicates and without chunks before the checkpoint.
    /// A chunk may begin before the checkpoint and end after it.
    pub chunks: Vec<ChunkRef>,
    /// Damage found while opening, by offset.
    pub damage: Vec<Damage>,
    /// Second copies of chunks; [`ChunkRef`]s refer to them by index.
    spares: Vec<ChunkRef>,
    /// Areas added after the file was opened begin at this offset or later.
    settled_to: u64,
    /// The number of the next chunk of the registry.
    next_registry_chunk: u32,
    source: Source,
    /// The events of another profiler's capture, which has no chunks.
    foreign: Option<Box<dyn ForeignEvents>>,
}

impl Capture {
    pub fn open(path: &Path) -> Result<Capture, OpenError> {
        let failed = |reason: OpenFailure| OpenError {
            path: path.into(),
            reason,
        };
        // Checked before the file is opened, because opening a pipe would block until another process writes to it.
        let metadata = fs::metadata(path).map_err(|error| failed(error.into()))?;
        if metadata.is_dir() {
            return Err(failed(OpenFailure::Directory));
        }
        if !metadata.is_file() {
            return Err(failed(OpenFailure::Foreign));
        }
        let file = File::open(path).map_err(|error| failed(error.into()))?;
        Capture::from_file(file, path)
    }

    /// Reads a capture from an open file. `path` is for messages.
    pub fn from_file(file: File, path: &Path) -> Result<Capture, OpenError> {
        Capture::from_source(path, Source::File(file), true)
    }

    /// Reads only the events, without registry and checkpoint. For the profiled program, which has both in memory and
    /// must use little of it.
    pub fn events_from_file(file: File, path: &Path) -> Result<Capture, OpenError> {
        Capture::from_source(path, Source::File(file), false)
    }

    /// Reads only the header.
    pub fn header_from_file(file: File, path: &Path) -> Result<Header, OpenError> {
        let header = read_header(&Source::File(file));
        header
            .map(|(header, _)| header)
            .map_err(|reason| OpenError {
                path: path.into(),
                reason,
            })
    }

    /// Reads only the stop mark. `None` if the recording has not failed, or if the file has no valid header.
    pub fn stop_mark_from_file(file: File) -> Option<StopMark> {
        let source = Source::File(file);
        let (_, header_len) = read_header(&source).ok()?;
        let mut offset = align_up(header_len, AREA_ALIGN);
        // The first extent begins on a page, after padding.
        for _ in 0..2 {
            let mut head = [0; Area::MAX_HEAD_LEN];
            source.read_at(offset, &mut head).ok()?;
            let area = Area::from_bytes(&head)?;
            match &area {
                Area::Extent(head) => return source.stop_mark_at(offset, head),
                Area::Padding(_) => offset = area.end(offset),
                Area::Block(_) => return None,
            }
        }
        None
    }

    /// Reads a capture that is already in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Capture, OpenError> {
        Capture::from_source(Path::new("(memory)"), Source::Bytes(bytes), true)
    }

    fn from_source(path: &Path, source: Source, whole: bool) -> Result<Capture, OpenError> {
        let (header, header_len) = read_header(&source).map_err(|reason| OpenError {
            path: path.into(),
            reason,
        })?;
        let mut scan = Scan::run(&source, header_len);
        let settled_to = scan.settled_to;
        let stopped = scan.stopped.take();
        let mut sorted = Sorted::new(scan);
        let checkpoints = sorted.checkpoints();
        let mut capture = Capture {
            path: path.into(),
            registry: Registry::new(header.tick_shift),
            header,
            checkpoint: None,
            chunks: Vec::new(),
            damage: Vec::new(),
            spares: mem::take(&mut sorted.spares),
            settled_to,
            next_registry_chunk: 0,
            source,
            foreign: None,
        };
        if whole {
            let failed = capture.choose_checkpoint(checkpoints);
            sorted.settle(capture.checkpoint.as_ref(), failed);
            capture.damage = sorted.damage;
            let last = sorted.registry.last();
            capture.next_registry_chunk =
                last.map_or(0, |chunk| chunk.head.number.saturating_add(1));
            capture.read_registry(&sorted.registry);
            capture.registry.stopped = stopped;
        }
        capture.chunks = sorted.events;
        Ok(capture)
    }

    /// Returns the capture of another profiler, before its events are read.
    pub fn foreign(
        path: &Path,
        header: Header,
        registry: Registry,
        events: Box<dyn ForeignEvents>,
    ) -> Capture {
        Capture {
            path: path.into(),
            header,
            registry,
            checkpoint: None,
            chunks: Vec::new(),
            damage: Vec::new(),
            spares: Vec::new(),
            settled_to: 0,
            next_registry_chunk: 0,
            source: Source::Bytes(Vec::new()),
            foreign: Some(events),
        }
    }

    fn read_registry(&mut self, chunks: &[ChunkRef]) {
        let mut builder = RegistryBuilder::new(self.header.tick_shift);
        let mut raw = Vec::new();
        for chunk in chunks {
            match self.read_chunk(chunk, &mut raw) {
                Err(damage) => self.damage.push(damage),
                Ok(()) if builder.add_chunk(&raw) => {}
                Ok(()) => self.damage.push(chunk.wrong_record()),
            }
        }
        self.registry = builder.finish();
        self.header.add_labels(&self.registry.labels);
        self.damage.sort_by_key(|damage| damage.offset);
    }

    /// Appends entries to the registry in the capture's file. No other process may be writing to it.
    pub fn append_registry(&self, entries: &[Entry]) -> io::Result<()> {
        let mut file = File::options().append(true).open(&self.path)?;
        let len = file.metadata()?.len();
        let mut out = vec![0; (align_up(len, AREA_ALIGN) - len) as usize];
        let mut packer = Packer::new();
        let mut number = self.next_registry_chunk;
        let mut payload = Vec::new();
        let mut pack = |payload: &mut Vec<u8>| {
            let head = BlockHead {
                chunk: ChunkHead {
                    stream: REGISTRY_STREAM,
                    number,
                    ..ChunkHead::default()
                },
                ..BlockHead::default()
            };
            out.extend_from_slice(packer.block(head, payload));
            number += 1;
            payload.clear();
        };
        for entry in entries {
            let start = payload.len();
            payload.resize(start + entry.max_bytes(), 0);
            let n_bytes = entry.write(&mut payload[start..]);
            payload.truncate(start + n_bytes);
            if payload.len() > MAX_CHUNK_LEN as usize / 2 {
                pack(&mut payload);
            }
        }
        if !payload.is_empty() {
            pack(&mut payload);
        }
        file.write_all(&out)
    }

    /// Returns the events of another profiler's capture.
    pub fn foreign_events(&self) -> Option<&dyn ForeignEvents> {
        self.foreign.as_deref()
    }

    /// Returns the smallest sequence number that is not in the checkpoint.
    pub fn first_sequence(&self) -> u64 {
        match &self.checkpoint {
            Some(checkpoint) => checkpoint.cut.saturating_add(1),
            None => 0,
        }
    }

    /// Returns the number of allocations and frees in all chunks, without those in a checkpoint.
    pub fn n_events(&self) -> u64 {
        if let Some(foreign) = &self.foreign {
            return foreign.n_events();
        }
        self.chunks
            .iter()
            .map(|chunk| u64::from(chunk.n_events))
            .fold(0, u64::saturating_add)
    }
}

impl ChunkRef {
    /// Returns the damage to report if the chunk has an invalid record.
    pub fn wrong_record(&self) -> Damage {
        Damage {
            offset: self.offset,
            category: DamageCategory::WrongRecord {
                stream: self.head.stream,
                number: self.head.number,
            },
        }
    }
}

/// Reads the header; returns it with its length.
fn read_header(source: &Source) -> Result<(Header, u64), OpenFailure> {
    let mut bytes = vec![0; PREFIX_LEN];
    let n_read = source.read_at(0, &mut bytes)?;
    if n_read == 0 {
        return Err(OpenFailure::Empty);
    }
    if n_read < MAGIC.len() && MAGIC.starts_with(&bytes[..n_read]) {
        return Err(OpenFailure::DamagedHeader);
    }
    let total_len = Header::total_len(&bytes[..n_read])?;
    bytes.resize(total_len, 0);
    let n_read = source.read_at(0, &mut bytes)?;
    let header = Header::from_bytes(&bytes[..n_read])?;
    Ok((header, total_len as u64))
}
