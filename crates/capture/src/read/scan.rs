//! Finds the chunks of a capture by reading the heads of its areas.
//!
//! Where no intact area begins, the scan searches in steps of eight bytes for the next one. Skipped bytes are damage, with
//! one exception: a program that is killed, or still running, leaves an unfinished block whose chunk is still in its slot.
//! Such cases are kept as *doubts* until all chunks are known.
//!
//! A running program may fill one slot and continue in the next while the scan is between the two. The result would then
//! contain a chunk but lack the end of its predecessor, so the scan reads the slots a second time in this case.

use std::collections::HashMap;

use crate::area::{
    AREA_ALIGN, Area, BLOCK_MAGIC, BlockHead, CHECKPOINT_STREAM, ChunkHead, EXTENT_MAGIC,
    ExtentHead, PADDING_MAGIC, PaddingHead, REGISTRY_STREAM, SLOT_MAGIC, SlotHead, align_up,
};
use crate::damage::{Damage, DamageCategory};
use crate::decode::{DecodedChunk, OpAction};
use crate::stop_mark::StopMark;
use crate::wire::Reader;

use super::source::{Source, Window};
use super::{ChunkRef, Container, MAX_CHUNK_LEN};

/// Heads are read through windows of this size: small, because a block lies between two heads.
const HEADS_WINDOW: usize = 4096;
/// Window of the search, which reads every word.
const SEARCH_WINDOW: usize = 1 << 18;
/// After this many attempts to read a slot that a running program keeps refilling, only its blocks are used.
const MAX_SLOT_ATTEMPTS: usize = 8;

/// The result of a scan.
#[derive(Default)]
pub(super) struct Scan {
    /// In the order of the file; the same chunk may appear several times.
    pub(super) chunks: Vec<ChunkRef>,
    pub(super) damage: Vec<Damage>,
    pub(super) doubts: Vec<Doubt>,
    /// Everything before this offset is final; a running program appends after it.
    pub(super) settled_to: u64,
    /// Offsets and heads of the extents. Their slots change while the program runs.
    pub(super) extents: Vec<(u64, ExtentHead)>,
    /// Set if the recording stopped before the program ended.
    pub(super) stopped: Option<StopMark>,
}

/// Damage, unless the chunk is elsewhere in the file.
pub(super) struct Doubt {
    pub(super) damage: Damage,
    pub(super) unless: Unless,
}

/// The condition under which a doubt is not damage. Chunks are identified by stream and number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unless {
    /// This chunk is in the file.
    Found(u32, u32),
    /// A block holds this chunk.
    InBlock(u32, u32),
    /// Some chunk is only in a slot: its block was being written here.
    AnyInSlot,
}

impl Scan {
    /// Scans from `start`, the end of the header, to the end of the file.
    pub(super) fn run(source: &Source, start: u64) -> Scan {
        let mut scan = Scan::resume(source, start, &[]);
        // Even a recording without events has a registry. A file without areas, or one that ends in the head of its first
        // area, was therefore cut after its header.
        let has_nothing = scan.chunks.is_empty() && scan.extents.is_empty();
        let is_cut_head =
            |doubt: &Doubt| doubt.damage.category == (DamageCategory::Cut { stream: None });
        if has_nothing && scan.damage.is_empty() && scan.doubts.iter().all(is_cut_head) {
            scan.doubts.clear();
            scan.damage.push(Damage {
                offset: start,
                category: DamageCategory::OnlyHeader,
            });
        }
        scan
    }

    /// Scans the areas from `start` on, and the slots of `extents`, which precede it. Slots are read first: a chunk stays
    /// in its slot until its block is complete, so the scan sees at least one of the two.
    pub(super) fn resume(source: &Source, start: u64, extents: &[(u64, ExtentHead)]) -> Scan {
        let mut scanner = Scanner {
            source,
            heads: Window::new(source, HEADS_WINDOW),
            file_len: source.len().unwrap_or(0),
            result: Scan::default(),
            n_recovered: 0,
            scratch: DecodedChunk::new(),
        };
        let start = align_up(start, AREA_ALIGN);
        scanner.result.settled_to = start;
        for (offset, head) in extents {
            scanner.take_slots(*offset, head);
        }
        let end = scanner.run(start);
        if scanner.was_overtaken(extents.is_empty()) {
            scanner.rescan(end, extents);
        }
        scanner.result
    }
}

struct Scanner<'a> {
    source: &'a Source,
    heads: Window<'a>,
    file_len: u64,
    result: Scan,
    /// Bytes in slots that were found without their extents.
    n_recovered: u64,
    /// Reused for chunks that are decoded only to count their events.
    scratch: DecodedChunk,
}

impl Scanner<'_> {
    /// Scans the areas from `start` on. Returns the offset at which it stopped.
    fn run(&mut self, start: u64) -> u64 {
        let mut offset = start;
        while self.reaches(offset + 1) {
            match Area::from_bytes(self.heads.get(offset, Area::MAX_HEAD_LEN)) {
                Some(area) => {
                    match &area {
                        Area::Block(head) => self.take_block(offset, head),
                        Area::Extent(head) => self.take_extent(offset, head),
                        Area::Padding(_) => {}
                    }
                    offset = area.end(offset);
                    if self.result.doubts.is_empty() {
                        self.result.settled_to = offset;
                    }
                }
                None if self.is_cut_head(offset) => break,
                None => match self.search(offset) {
                    Some(next) => offset = next,
                    None => break,
                },
            }
        }
        offset
    }

    /// Returns whether a thread continued in another slot during the scan: the previous slot may have been read before it
    /// was full, or before it was begun.
    fn was_overtaken(&self, is_from_start: bool) -> bool {
        let chunks = self.result.chunks.iter();
        let mut numbers: Vec<_> = chunks
            .filter(|chunk| chunk.head.stream != CHECKPOINT_STREAM)
            .map(|chunk| (chunk.head.stream, chunk.head.number, chunk.container))
            .collect();
        numbers.sort_unstable();
        numbers.dedup_by_key(|(stream, number, _)| (*stream, *number));
        let mut streams = numbers.chunk_by(|one, next| one.0 == next.0);
        streams.any(|chunks| {
            let first = if is_from_start { 0 } else { chunks[0].1 };
            let is_gapless = (first..)
                .zip(chunks)
                .all(|(number, chunk)| chunk.1 == number);
            let before_last = &chunks[..chunks.len() - 1];
            !is_gapless || before_last.iter().any(|chunk| chunk.2 == Container::Slot)
        })
    }

    /// Reads the slots again, and the areas from `end` on. The predecessors of all chunks of the first scan are complete
    /// now, in their slots or in blocks. Chunks that began later are left out: their predecessors may be incomplete.
    fn rescan(&mut self, end: u64, extents: &[(u64, ExtentHead)]) {
        let mut last: HashMap<u32, u32> = HashMap::new();
        for ChunkHead { stream, number, .. } in self.result.chunks.iter().map(|chunk| chunk.head) {
            let last = last.entry(stream).or_default();
            *last = number.max(*last);
        }
        let n_before = self.result.chunks.len();
        let notes = (self.result.damage.len(), self.result.doubts.len());
        let known = self.result.extents.clone();
        for (offset, head) in extents.iter().chain(&known) {
            self.take_slots(*offset, head);
        }
        // The first scan already noted the damage of these slots.
        self.result.damage.truncate(notes.0);
        self.result.doubts.truncate(notes.1);
        self.result.damage.retain(|damage| damage.offset < end);
        self.result.doubts.retain(|doubt| doubt.damage.offset < end);
        self.run(end);
        let mut index = 0;
        self.result.chunks.retain(|chunk| {
            index += 1;
            let is_known = last.get(&chunk.head.stream) >= Some(&chunk.head.number);
            index <= n_before || chunk.container == Container::Block || is_known
        });
    }

    /// Returns whether the file has all bytes before `end`. It may have grown since the last check.
    fn reaches(&mut self, end: u64) -> bool {
        if end > self.file_len {
            self.file_len = self.source.len().unwrap_or(0).max(self.file_len);
        }
        end <= self.file_len
    }

    fn note(&mut self, offset: u64, category: DamageCategory) {
        self.result.damage.push(Damage { offset, category });
    }

    fn doubt(&mut self, offset: u64, category: DamageCategory, unless: Unless) {
        let damage = Damage { offset, category };
        self.result.doubts.push(Doubt { damage, unless });
    }

    fn take_block(&mut self, offset: u64, head: &BlockHead) {
        let stream = head.chunk.stream;
        let end = offset.saturating_add(BlockHead::LEN as u64 + u64::from(head.stored_len));
        if head.raw_len > MAX_CHUNK_LEN || head.stored_len > head.raw_len {
            self.note(offset, DamageCategory::ImplausibleLength { end, stream });
        } else if !self.reaches(end) {
            let category = DamageCategory::Cut {
                stream: Some(stream),
            };
            self.doubt(offset, category, Unless::Found(stream, head.chunk.number));
        } else {
            self.result.chunks.push(ChunkRef {
                head: head.chunk,
                last_sequence: head.last_sequence,
                n_events: head.n_events,
                container: Container::Block,
                spare: None,
                offset,
                raw_len: head.raw_len,
                stored_len: head.stored_len,
            });
        }
    }

    fn take_extent(&mut self, offset: u64, head: &ExtentHead) {
        self.result.extents.push((offset, *head));
        self.take_slots(offset, head);
    }

    /// Takes the slots of an extent, and its stop mark if it has one.
    fn take_slots(&mut self, offset: u64, head: &ExtentHead) {
        self.take_stop_mark(offset, head);
        let first = offset.saturating_add(u64::from(head.slots_offset));
        let slot_len = u64::from(head.slot_len);
        for index in 0..u64::from(head.n_slots) {
            let slot = first.saturating_add(slot_len * index);
            if !self.reaches(slot.saturating_add(SlotHead::LEN as u64)) {
                self.note(slot, DamageCategory::Cut { stream: None });
                return;
            }
            if !self.take_slot(slot, slot_len) {
                self.note(slot, DamageCategory::WrongSlot);
            }
        }
    }

    fn take_stop_mark(&mut self, offset: u64, head: &ExtentHead) {
        if let Some(mark) = self.source.stop_mark_at(offset, head) {
            self.result.stopped = Some(mark);
        }
    }

    /// Takes a slot of unknown length, because its extent is unknown. Slots with invalid heads may overlap. Their total
    /// length is limited to that of the file, so that a small crafted file cannot take forever.
    fn recover_slot(&mut self, offset: u64) {
        if self.n_recovered > self.file_len {
            return;
        }
        let n_before = self.result.chunks.len();
        self.take_slot(offset, u64::from(u32::MAX));
        let taken = self.result.chunks[n_before..].iter();
        self.n_recovered += taken.map(|chunk| u64::from(chunk.raw_len)).sum::<u64>();
    }

    /// Returns false if the bytes cannot be a slot.
    fn take_slot(&mut self, offset: u64, slot_len: u64) -> bool {
        for _ in 0..MAX_SLOT_ATTEMPTS {
            let mut bytes = [0; SlotHead::LEN];
            if !matches!(self.source.read_at(offset, &mut bytes), Ok(SlotHead::LEN)) {
                return false;
            }
            let Some(head) = SlotHead::from_bytes(&bytes) else {
                // Never used.
                return bytes[..8] == [0; 8];
            };
            if !head.in_use {
                return true;
            }
            if head.committed > slot_len - SlotHead::LEN as u64
                || head.committed > u64::from(MAX_CHUNK_LEN)
                || head.chunk.stream == CHECKPOINT_STREAM
            {
                return false;
            }
            let mut payload = vec![0; head.committed as usize];
            let payload_at = offset + SlotHead::LEN as u64;
            let Ok(n_read) = self.source.read_at(payload_at, &mut payload) else {
                return false;
            };
            if !holds_chunk(self.source, offset, &head) {
                // The program emptied the slot into a block meanwhile, and perhaps filled it again.
                continue;
            }
            let stream = head.chunk.stream;
            if n_read < payload.len() {
                let category = DamageCategory::Cut {
                    stream: Some(stream),
                };
                self.doubt(offset, category, Unless::InBlock(stream, head.chunk.number));
            }
            payload.truncate(n_read);
            let (n_events, last_sequence) = count_events(&head, &payload, &mut self.scratch);
            self.result.chunks.push(ChunkRef {
                head: head.chunk,
                last_sequence,
                n_events,
                container: Container::Slot,
                spare: None,
                offset,
                raw_len: payload.len() as u32,
                stored_len: payload.len() as u32,
            });
            return true;
        }
        true
    }

    /// Returns whether the file ends in the middle of the head at `offset`.
    fn is_cut_head(&mut self, offset: u64) -> bool {
        let bytes = self.heads.get(offset, Area::MAX_HEAD_LEN);
        if bytes.len() >= Area::MAX_HEAD_LEN {
            return false;
        }
        let n_magic = bytes.len().min(8);
        let begins = |magic: u64| magic.to_le_bytes()[..n_magic] == bytes[..n_magic];
        if begins(BLOCK_MAGIC) {
            let mut fields = Reader::new(bytes.get(8..).unwrap_or_default());
            let chunk = fields.u32().zip(fields.u32());
            let unless = match chunk {
                Some((stream, number)) => Unless::Found(stream, number),
                None => Unless::AnyInSlot,
            };
            let stream = chunk.map(|(stream, _)| stream);
            self.doubt(offset, DamageCategory::Cut { stream }, unless);
            return true;
        }
        if bytes.len() < ExtentHead::LEN && (begins(EXTENT_MAGIC) || begins(PADDING_MAGIC)) {
            self.doubt(
                offset,
                DamageCategory::Cut { stream: None },
                Unless::AnyInSlot,
            );
            return true;
        }
        false
    }

    /// Searches for the next intact area after the broken one at `broken`, and notes the bytes between them. Takes slots in
    /// between, because the broken area may be their extent.
    fn search(&mut self, broken: u64) -> Option<u64> {
        let mut window = Window::new(self.source, SEARCH_WINDOW);
        let mut offset = broken;
        let mut only_zeros = true;
        let next_area = loop {
            let bytes = window.get(offset, SEARCH_WINDOW);
            if bytes.is_empty() {
                break None;
            }
            match next_magic(bytes, &mut only_zeros) {
                // Rounded up, because the file may have grown since its end was read.
                None => offset += align_up(bytes.len() as u64, AREA_ALIGN),
                Some((skipped, magic)) => {
                    offset += skipped as u64;
                    if magic == SLOT_MAGIC {
                        self.recover_slot(offset);
                    } else if offset > broken {
                        let head = self.heads.get(offset, Area::MAX_HEAD_LEN);
                        if Area::from_bytes(head).is_some() {
                            break Some(offset);
                        }
                    }
                    only_zeros = false;
                    offset += AREA_ALIGN;
                }
            }
        };
        let end = next_area.unwrap_or(offset).min(self.file_len);
        match (only_zeros, next_area) {
            // Bytes that were never written.
            (true, None) => {}
            // Too short for an area: a gap that exists for a moment while the file is compacted.
            (_, Some(next)) if next - broken < PaddingHead::LEN as u64 => {}
            // Reserved for a block that was never written, if its chunk is still in a slot.
            (true, Some(_)) => self.doubt(
                broken,
                DamageCategory::Unreadable { end },
                Unless::AnyInSlot,
            ),
            (false, _) => self.note(broken, DamageCategory::Unreadable { end }),
        }
        next_area
    }
}

/// Returns the first word that is the magic number of an area or a slot, with its offset.
fn next_magic(bytes: &[u8], only_zeros: &mut bool) -> Option<(usize, u64)> {
    for (index, word) in bytes.chunks(8).enumerate() {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        let word = u64::from_le_bytes(padded);
        if word == 0 {
            continue;
        }
        if matches!(
            word,
            BLOCK_MAGIC | EXTENT_MAGIC | PADDING_MAGIC | SLOT_MAGIC
        ) {
            return Some((index * 8, word));
        }
        *only_zeros = false;
    }
    None
}

/// Returns whether the slot still holds the chunk that it held when `head` was read.
pub(super) fn holds_chunk(source: &Source, slot: u64, head: &SlotHead) -> bool {
    let mut bytes = [0; SlotHead::LEN];
    matches!(source.read_at(slot, &mut bytes), Ok(SlotHead::LEN))
        && SlotHead::from_bytes(&bytes).is_some_and(|now| {
            now.in_use && now.chunk == head.chunk && now.committed >= head.committed
        })
}

/// Counts the events in a slot; returns the count and the last sequence number. A block's head has both.
fn count_events(head: &SlotHead, payload: &[u8], scratch: &mut DecodedChunk) -> (u32, u64) {
    if head.chunk.stream == REGISTRY_STREAM {
        return (0, head.chunk.sequence);
    }
    scratch.decode(&head.chunk, payload);
    let events = scratch
        .ops
        .iter()
        .filter(|op| op.action != OpAction::Unfree && op.action != OpAction::JobEnd);
    let last_sequence = scratch.segments.last().map(|segment| segment.sequence);
    (
        events.count() as u32,
        last_sequence.unwrap_or(head.chunk.sequence),
    )
}
