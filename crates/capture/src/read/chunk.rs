//! Chunks: choosing between copies of a chunk in the file, and unpacking one.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::{io, mem};

use zstd::bulk::Decompressor;

use crate::area::{BlockHead, CHECKPOINT_STREAM, ChunkHead, REGISTRY_STREAM, SlotHead};
use crate::damage::{Damage, DamageCategory};
use crate::wire::checksum;

use super::Capture;
use super::checkpoint::Checkpoint;
use super::scan::{Doubt, Scan, Unless, holds_chunk};

/// The location of a chunk in the file, and the fields of its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    pub head: ChunkHead,
    /// The thread's sequence number after the last record.
    pub last_sequence: u64,
    /// Allocations and frees in it.
    pub n_events: u32,
    /// Index in the capture's spares of another copy of the chunk, in case this one is damaged.
    pub(super) spare: Option<u32>,
    pub(super) offset: u64,
    pub(super) raw_len: u32,
    pub(super) stored_len: u32,
    pub(super) container: Container,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Container {
    Block,
    Slot,
}

/// The chunks of a file, sorted, and the damage that was found with them.
#[derive(Default)]
pub(super) struct Sorted {
    pub(super) registry: Vec<ChunkRef>,
    pub(super) events: Vec<ChunkRef>,
    /// Pieces of checkpoints, complete or not.
    pub(super) pieces: Vec<ChunkRef>,
    pub(super) spares: Vec<ChunkRef>,
    pub(super) damage: Vec<Damage>,
    doubts: Vec<Doubt>,
}

impl Sorted {
    pub(super) fn new(scan: Scan) -> Sorted {
        let mut sorted = Sorted {
            damage: scan.damage,
            doubts: scan.doubts,
            ..Sorted::default()
        };
        let (mut registry, mut events) = (Vec::new(), Vec::new());
        for chunk in scan.chunks {
            match chunk.head.stream {
                REGISTRY_STREAM => &mut registry,
                CHECKPOINT_STREAM => &mut sorted.pieces,
                _ => &mut events,
            }
            .push(chunk);
        }
        sorted.registry = sorted.each_once(registry);
        sorted.events = sorted.each_once(events);
        sorted
    }

    /// Removes chunks whose events are in the checkpoint, and decides which doubts of the scan are damage. `failed` is the
    /// damage of checkpoints newer than the chosen one.
    pub(super) fn settle(&mut self, checkpoint: Option<&Checkpoint>, failed: Vec<Damage>) {
        let any_in_slot = self.all().any(|chunk| chunk.container == Container::Slot);
        let lost_checkpoint = checkpoint.is_none() && !self.begins_with_the_first_events();
        let mut confirmed: Vec<Damage> = mem::take(&mut self.doubts)
            .into_iter()
            .filter(|doubt| match doubt.unless {
                Unless::AnyInSlot => !any_in_slot,
                // If the program was killed while it wrote a checkpoint, the file still has the events before its cut.
                Unless::Found(CHECKPOINT_STREAM, _) => lost_checkpoint,
                Unless::Found(stream, number) => self.find(stream, number).is_none(),
                Unless::InBlock(stream, number) => self
                    .find(stream, number)
                    .is_none_or(|chunk| chunk.container != Container::Block),
            })
            .map(|doubt| doubt.damage)
            .collect();
        self.damage.append(&mut confirmed);
        if lost_checkpoint {
            self.damage.extend(failed);
        }
        if let Some(checkpoint) = checkpoint {
            self.events
                .retain(|chunk| chunk.last_sequence > checkpoint.cut);
        }
        self.note_missing(checkpoint.is_some());
        self.damage.sort_by_key(|damage| damage.offset);
    }

    /// Returns whether the file seems to contain all events from the first on.
    fn begins_with_the_first_events(&self) -> bool {
        let mut streams = self
            .events
            .chunk_by(|one, next| one.head.stream == next.head.stream);
        !self.events.is_empty() && streams.all(|chunks| chunks[0].head.number == 0)
    }

    fn all(&self) -> impl Iterator<Item = &ChunkRef> {
        self.registry.iter().chain(&self.events)
    }

    fn find(&self, stream: u32, number: u32) -> Option<&ChunkRef> {
        let chunks = match stream {
            REGISTRY_STREAM => &self.registry,
            _ => &self.events,
        };
        let index = chunks
            .binary_search_by_key(&(stream, number), |chunk| {
                (chunk.head.stream, chunk.head.number)
            })
            .ok()?;
        chunks.get(index)
    }

    /// Sorts by (stream, number). Of two copies of a chunk, keeps the block. Of two slots, keeps the longer one: it was read
    /// later. The other copy becomes its spare.
    pub(super) fn each_once(&mut self, mut chunks: Vec<ChunkRef>) -> Vec<ChunkRef> {
        chunks.sort_by_key(|chunk| {
            (
                chunk.head.stream,
                chunk.head.number,
                chunk.container,
                Reverse(chunk.raw_len),
                chunk.offset,
            )
        });
        let spares = &mut self.spares;
        chunks.dedup_by(|later, kept| {
            let same =
                (later.head.stream, later.head.number) == (kept.head.stream, kept.head.number);
            if same && kept.spare.is_none() {
                kept.spare = u32::try_from(spares.len()).ok();
                spares.push(later.clone());
            }
            same
        });
        chunks.shrink_to_fit();
        chunks
    }

    /// Adds damage for missing chunks. If there is a checkpoint, the agent may have removed the first chunks of each
    /// thread.
    fn note_missing(&mut self, has_checkpoint: bool) {
        let mut notes = Vec::new();
        let mut expected = (REGISTRY_STREAM, 0);
        for chunk in self.all() {
            let ChunkHead { stream, number, .. } = chunk.head;
            if expected.0 != stream {
                expected = (stream, if has_checkpoint { number } else { 0 });
            }
            if number > expected.1 {
                notes.push(Damage {
                    offset: chunk.offset,
                    category: DamageCategory::Missing {
                        stream,
                        first: expected.1,
                        n_chunks: number - expected.1,
                    },
                });
            }
            expected.1 = number.saturating_add(1);
        }
        self.damage.append(&mut notes);
    }
}

impl Capture {
    /// Reads and unpacks one chunk into `raw`, whose memory is reused. Several threads may call this at once.
    pub fn read_chunk(&self, chunk: &ChunkRef, raw: &mut Vec<u8>) -> Result<(), Damage> {
        let Err(damage) = self.read_copy(chunk, raw) else {
            return Ok(());
        };
        let spare = chunk
            .spare
            .and_then(|spare| self.spares.get(spare as usize));
        let Some(mut spare) = spare.cloned() else {
            return Err(damage);
        };
        if (chunk.container, spare.container) == (Container::Block, Container::Slot) {
            // The scan read the slot before the block. In between, a running program may have added records to it.
            spare.raw_len = chunk.raw_len;
        }
        self.read_copy(&spare, raw)
            // If the slot now holds another chunk, the block is complete.
            .or_else(|_| self.read_copy(chunk, raw))
            .map_err(|_| damage)
    }

    fn read_copy(&self, chunk: &ChunkRef, raw: &mut Vec<u8>) -> Result<(), Damage> {
        match chunk.container {
            Container::Block => self.read_block(chunk, raw),
            Container::Slot => self.read_slot(chunk, raw),
        }
        .map_err(|category| Damage {
            offset: chunk.offset,
            category,
        })
    }

    fn read_block(&self, chunk: &ChunkRef, raw: &mut Vec<u8>) -> Result<(), DamageCategory> {
        let stream = chunk.head.stream;
        let (raw_len, stored_len) = (chunk.raw_len as usize, chunk.stored_len as usize);
        // One buffer holds both: the unpacked bytes first, then the stored ones.
        raw.resize(raw_len + BlockHead::LEN + stored_len, 0);
        let (unpacked, area) = raw.split_at_mut(raw_len);
        let end = chunk.offset + area.len() as u64;
        let n_read = self
            .source
            .read_at(chunk.offset, area)
            .map_err(|error| read_failed(stream, &error))?;
        if n_read < area.len() {
            return Err(DamageCategory::Cut {
                stream: Some(stream),
            });
        }
        let stored = &area[BlockHead::LEN..];
        let is_intact = BlockHead::from_bytes(area).is_some_and(|head| {
            head.chunk == chunk.head
                && (head.raw_len, head.stored_len) == (chunk.raw_len, chunk.stored_len)
                && head.checksum == checksum(stored)
        });
        if !is_intact {
            return Err(DamageCategory::WrongChecksum { end, stream });
        }
        if stored_len == raw_len {
            unpacked.copy_from_slice(stored);
        } else {
            match unpack(stored, unpacked) {
                Some(len) if len == raw_len => {}
                _ => return Err(DamageCategory::NotUnpackable { end, stream }),
            }
        }
        raw.truncate(raw_len);
        Ok(())
    }

    /// Reads the bytes that a slot had when the capture was opened. It may have more by now.
    fn read_slot(&self, chunk: &ChunkRef, raw: &mut Vec<u8>) -> Result<(), DamageCategory> {
        let stream = chunk.head.stream;
        raw.resize(chunk.raw_len as usize, 0);
        let payload_at = chunk.offset + SlotHead::LEN as u64;
        let n_read = self
            .source
            .read_at(payload_at, raw)
            .map_err(|error| read_failed(stream, &error))?;
        let head = SlotHead {
            chunk: chunk.head,
            committed: chunk.raw_len.into(),
            in_use: true,
        };
        if n_read == raw.len() && holds_chunk(&self.source, chunk.offset, &head) {
            return Ok(());
        }
        // The running program has emptied the slot into a block, which it appended to the file.
        match self.find_appended_block(&chunk.head) {
            Some(block) => {
                self.read_block(&block, raw)?;
                raw.truncate(chunk.raw_len as usize);
                Ok(())
            }
            None => Err(DamageCategory::Missing {
                stream,
                first: chunk.head.number,
                n_chunks: 1,
            }),
        }
    }

    fn find_appended_block(&self, wanted: &ChunkHead) -> Option<ChunkRef> {
        let appended = Scan::run(&self.source, self.settled_to);
        appended
            .chunks
            .into_iter()
            .find(|chunk| chunk.container == Container::Block && chunk.head == *wanted)
    }
}

fn read_failed(stream: u32, error: &io::Error) -> DamageCategory {
    DamageCategory::ReadFailed {
        stream,
        reason: error.kind(),
    }
}

/// Unpacks a block's bytes. Returns the unpacked length, or `None` if the bytes are invalid.
fn unpack(stored: &[u8], unpacked: &mut [u8]) -> Option<usize> {
    thread_local! {
        // Kept per thread, because a reader unpacks thousands of blocks on each of its threads.
        static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    UNPACKER.with_borrow_mut(|unpacker| {
        if unpacker.is_none() {
            *unpacker = Decompressor::new().ok();
        }
        unpacker
            .as_mut()?
            .decompress_to_buffer(stored, unpacked)
            .ok()
    })
}
