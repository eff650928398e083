//! Finding the chunks of a capture: from area to area, looking at heads only.
//!
//! Where no intact area begins, the search goes on in steps of eight bytes until one does. What the search passes over is
//! damage, with one reservation: a program that is killed, or still running, leaves a block unfinished whose chunk is
//! still in its slot. Such places are kept as *doubts* until all chunks are known.
//!
//! A running program may fill one slot and go on in the next while the search is between the two. What is found would then
//! lack the end of a chunk whose successor it has, so in such a case the slots are looked at a second time.

use std::collections::HashMap;

use crate::area::{
    AREA_ALIGN, BLOCK_MAGIC, BlockHead, CHECKPOINT_STREAM, ChunkHead, EXTENT_MAGIC, ExtentHead,
    PADDING_MAGIC, PaddingHead, REGISTRY_STREAM, SLOT_MAGIC, SlotHead, align_up,
};
use crate::damage::{Damage, DamageCategory};
use crate::decode::{DecodedChunk, OpAction};
use crate::wire::Reader;

use super::source::{Source, Window};
use super::{ChunkRef, Container, MAX_CHUNK_LEN};

/// Heads are read through windows of this size: small, because a block lies between two heads.
const HEADS_WINDOW: usize = 4096;
/// Where every word is looked at.
const SEARCH_WINDOW: usize = 1 << 18;
/// A slot that a running program refills during each of so many attempts to read it is left to its blocks.
const MAX_SLOT_ATTEMPTS: usize = 8;

/// What was found in the file.
#[derive(Default)]
pub(super) struct Scan {
    /// In the order of the file; the same chunk may be there several times.
    pub(super) chunks: Vec<ChunkRef>,
    pub(super) damage: Vec<Damage>,
    pub(super) doubts: Vec<Doubt>,
    /// All before this is settled; what a running program adds to the file later, it adds behind.
    pub(super) settled_to: u64,
    /// The slots of these change while a program runs.
    pub(super) extents: Vec<(u64, ExtentHead)>,
}

/// Damage, unless what stood there is elsewhere.
pub(super) struct Doubt {
    pub(super) damage: Damage,
    pub(super) unless: Unless,
}

/// What clears a doubt. Chunks are named by stream and number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unless {
    /// This chunk is in the file.
    Found(u32, u32),
    /// A block holds this chunk.
    InBlock(u32, u32),
    /// Some chunk is only in a slot: it is the one that was being written here.
    AnyInSlot,
}

/// An intact area's head.
pub(super) enum Area {
    Block(BlockHead),
    Extent(ExtentHead),
    Padding(PaddingHead),
}

impl Area {
    /// The longest head of an area.
    pub(super) const MAX_HEAD_LEN: usize = BlockHead::LEN;

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Area> {
        match u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?) {
            BLOCK_MAGIC => BlockHead::from_bytes(bytes).map(Area::Block),
            EXTENT_MAGIC => ExtentHead::from_bytes(bytes)
                .filter(|head| head.area_len >= ExtentHead::LEN as u64)
                .map(Area::Extent),
            PADDING_MAGIC => PaddingHead::from_bytes(bytes).map(Area::Padding),
            _ => None,
        }
    }

    /// Where the area behind this one begins.
    pub(super) fn end(&self, offset: u64) -> u64 {
        let len = match self {
            Area::Block(head) => head.area_len(),
            Area::Extent(head) => head.area_len,
            Area::Padding(head) => head.area_len,
        };
        let end = offset.saturating_add(len);
        // A length near the largest number cannot be rounded up; it leads behind the end of the file either way.
        align_up(end.min(u64::MAX - AREA_ALIGN), AREA_ALIGN)
    }
}

impl Scan {
    /// Scans from `start`, the end of the header, to the end of the file.
    pub(super) fn run(source: &Source, start: u64) -> Scan {
        Scan::resume(source, start, &[])
    }

    /// Scans what came behind `start`, and the slots of `extents`, which lie before it. Slots come first: a chunk is in
    /// its slot until it is whole in a block, so that one of the two is seen.
    pub(super) fn resume(source: &Source, start: u64, extents: &[(u64, ExtentHead)]) -> Scan {
        let mut scanner = Scanner {
            source,
            heads: Window::new(source, HEADS_WINDOW),
            file_len: source.len().unwrap_or(0),
            found: Scan::default(),
            n_recovered: 0,
            scratch: DecodedChunk::new(),
        };
        let start = align_up(start, AREA_ALIGN);
        scanner.found.settled_to = start;
        for (offset, head) in extents {
            scanner.take_slots(*offset, head);
        }
        let end = scanner.run(start);
        if scanner.was_overtaken(extents.is_empty()) {
            scanner.look_again(end, extents);
        }
        scanner.found
    }
}

struct Scanner<'a> {
    source: &'a Source,
    heads: Window<'a>,
    file_len: u64,
    found: Scan,
    /// Bytes of slots that were found without their extents.
    n_recovered: u64,
    /// For what is decoded only to be counted.
    scratch: DecodedChunk,
}

impl Scanner<'_> {
    /// Returns where it came to an end.
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
                    if self.found.doubts.is_empty() {
                        self.found.settled_to = offset;
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

    /// Whether a thread has gone on to another slot, so that the one before was perhaps not full yet when it was looked
    /// at, or not even begun.
    fn was_overtaken(&self, is_from_start: bool) -> bool {
        let chunks = self.found.chunks.iter();
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

    /// Looks at the slots once more, and at what came behind `end`. All chunks before one that was found are complete now,
    /// in their slots or in blocks. Chunks in slots that were begun later are left out: the same could be true of them.
    fn look_again(&mut self, end: u64, extents: &[(u64, ExtentHead)]) {
        let mut last: HashMap<u32, u32> = HashMap::new();
        for ChunkHead { stream, number, .. } in self.found.chunks.iter().map(|chunk| chunk.head) {
            let last = last.entry(stream).or_default();
            *last = number.max(*last);
        }
        let n_before = self.found.chunks.len();
        let notes = (self.found.damage.len(), self.found.doubts.len());
        let known = self.found.extents.clone();
        for (offset, head) in extents.iter().chain(&known) {
            self.take_slots(*offset, head);
        }
        // What is wrong with them was noted the first time.
        self.found.damage.truncate(notes.0);
        self.found.doubts.truncate(notes.1);
        self.found.damage.retain(|damage| damage.offset < end);
        self.found.doubts.retain(|doubt| doubt.damage.offset < end);
        self.run(end);
        let mut index = 0;
        self.found.chunks.retain(|chunk| {
            index += 1;
            let is_known = last.get(&chunk.head.stream) >= Some(&chunk.head.number);
            index <= n_before || chunk.container == Container::Block || is_known
        });
    }

    /// Whether the file has all bytes before `end`. It may have grown since the last look.
    fn reaches(&mut self, end: u64) -> bool {
        if end > self.file_len {
            self.file_len = self.source.len().unwrap_or(0).max(self.file_len);
        }
        end <= self.file_len
    }

    fn note(&mut self, offset: u64, category: DamageCategory) {
        self.found.damage.push(Damage { offset, category });
    }

    fn doubt(&mut self, offset: u64, category: DamageCategory, unless: Unless) {
        let damage = Damage { offset, category };
        self.found.doubts.push(Doubt { damage, unless });
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
            self.found.chunks.push(ChunkRef {
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
        self.found.extents.push((offset, *head));
        self.take_slots(offset, head);
    }

    fn take_slots(&mut self, offset: u64, head: &ExtentHead) {
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

    /// Takes a slot whose extent is unknown, and with it the slot's length. Slots that overlap, because what they say
    /// is wrong, are taken only until they have as many bytes together as the file, lest a small file take forever.
    fn recover_slot(&mut self, offset: u64) {
        if self.n_recovered > self.file_len {
            return;
        }
        let n_before = self.found.chunks.len();
        self.take_slot(offset, u64::from(u32::MAX));
        let taken = self.found.chunks[n_before..].iter();
        self.n_recovered += taken.map(|chunk| u64::from(chunk.raw_len)).sum::<u64>();
    }

    /// False if what is there cannot be a slot.
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
                // Emptied into a block meanwhile, and perhaps filled anew.
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
            self.found.chunks.push(ChunkRef {
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

    /// Whether the file ends in the middle of the head that begins here.
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

    /// Searches for the next intact area behind the broken one at `broken`, and notes what lies between. Slots in
    /// between are taken: their extent's head is what is broken.
    fn search(&mut self, broken: u64) -> Option<u64> {
        let mut window = Window::new(self.source, SEARCH_WINDOW);
        let mut offset = broken;
        let mut only_zeros = true;
        let found = loop {
            let bytes = window.get(offset, SEARCH_WINDOW);
            if bytes.is_empty() {
                break None;
            }
            match next_magic(bytes, &mut only_zeros) {
                // Rounded, because the file may go on where it ended a moment ago.
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
        let end = found.unwrap_or(offset).min(self.file_len);
        match (only_zeros, found) {
            // Room that was never written to.
            (true, None) => {}
            // Too little room for anything but the gap that is left for a moment while blocks are moved together.
            (_, Some(next)) if next - broken < PaddingHead::LEN as u64 => {}
            // Room for a block that was not written any more, if its chunk is still in a slot.
            (true, Some(_)) => self.doubt(
                broken,
                DamageCategory::Unreadable { end },
                Unless::AnyInSlot,
            ),
            (false, _) => self.note(broken, DamageCategory::Unreadable { end }),
        }
        found
    }
}

/// The first word that is the magic of an area or a slot, and how many bytes stand before it.
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

/// Whether the slot still holds, now, the chunk that it held when `head` was read, and no less of it.
pub(super) fn holds_chunk(source: &Source, slot: u64, head: &SlotHead) -> bool {
    let mut bytes = [0; SlotHead::LEN];
    matches!(source.read_at(slot, &mut bytes), Ok(SlotHead::LEN))
        && SlotHead::from_bytes(&bytes).is_some_and(|now| {
            now.in_use && now.chunk == head.chunk && now.committed >= head.committed
        })
}

/// Allocations and releases in a slot, and the sequence number behind its last record. A block's head has both.
fn count_events(head: &SlotHead, payload: &[u8], scratch: &mut DecodedChunk) -> (u32, u64) {
    if head.chunk.stream == REGISTRY_STREAM {
        return (0, head.chunk.sequence);
    }
    scratch.decode(&head.chunk, payload);
    let events = scratch
        .ops
        .iter()
        .filter(|op| op.action != OpAction::Unfree);
    let last_sequence = scratch.segments.last().map(|segment| segment.sequence);
    (
        events.count() as u32,
        last_sequence.unwrap_or(head.chunk.sequence),
    )
}
