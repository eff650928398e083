//! A capture that its program is still writing: each refresh finds the chunks that are new, and no event is replayed twice.
//!
//! The program does not have to cooperate: its chunks lie in memory shared with the file. A refresh may find gaps, because
//! the program continues while the reader goes from slot to slot. A chunk is *taken* when its events have been replayed.
//! Three rules keep sums over the chunks right:
//!
//! - Only chunks without a gap before them in their stream are taken; the next refresh finds the missing one.
//! - Segments are taken only up to the largest number that was assigned at the *previous* refresh. All earlier events of
//!   other threads were then in the file before this refresh began.
//! - If events of a bounded capture were replaced by a checkpoint, reading continues from that checkpoint.

use std::collections::HashMap;
use std::mem;
use std::ops::{Range, RangeInclusive};

use crate::area::{AREA_ALIGN, CHECKPOINT_STREAM, ExtentHead, REGISTRY_STREAM, align_up};
use crate::decode::DecodedChunk;
use crate::stop_mark::StopMark;

use super::chunk::{Container, Sorted};
use super::registry::RegistryBuilder;
use super::scan::Scan;
use super::{Capture, ChunkRef};

/// A missing chunk is skipped after this many refreshes.
const MAX_WAITING: u32 = 8;

/// A capture that grows.
pub struct GrowingCapture {
    /// Its registry is up to date; its chunks are those of the last refresh.
    capture: Capture,
    registry: RegistryBuilder,
    /// Number of the next chunk of the registry, and the number of its bytes that are taken.
    registry_at: (u32, usize),
    /// By stream.
    cursors: HashMap<u32, Cursor>,
    /// Blocks that were found and are not taken yet.
    pending: Vec<ChunkRef>,
    /// Offset of the first area.
    first_area: u64,
    extents: Vec<(u64, ExtentHead)>,
    /// Largest number of a segment at the last refresh.
    horizon: u64,
    /// Consecutive refreshes that found a gap.
    n_waited: u32,
    /// Whether the registry contained the end of the recording when the last refresh began.
    had_ended: bool,
}

/// The position up to which a thread's stream is taken.
#[derive(Clone, Copy, Default)]
struct Cursor {
    number: u32,
    /// Operations of that chunk that are taken.
    n_ops: usize,
    /// Length of the chunk when all its operations were taken; `None` if some are not.
    done_len: Option<u32>,
    /// The chunk was a block at that time. Blocks do not change.
    is_final: bool,
}

/// The cursors of all streams during a replay.
pub struct Cursors<'a> {
    chunks: &'a [ChunkRef],
    cursors: &'a mut HashMap<u32, Cursor>,
}

impl Cursors<'_> {
    /// Moves the cursor of the chunk's stream to the end of `ops`. Returns the operations that were not taken before.
    pub fn advance(&mut self, chunk: &DecodedChunk, ops: Range<usize>) -> Range<usize> {
        let head = &chunk.head;
        let at_start = Cursor {
            number: head.number,
            ..Cursor::default()
        };
        let cursor = self.cursors.entry(head.stream).or_insert(at_start);
        if cursor.number != head.number {
            *cursor = at_start;
        }
        // With very many threads, `chunk` may be only a part of the chunk in the file.
        let n_taken = cursor.n_ops.saturating_sub(chunk.first_op);
        cursor.n_ops = cursor.n_ops.max(chunk.first_op + ops.end);
        if chunk.is_last && cursor.n_ops == chunk.first_op + chunk.ops.len() {
            let key = |chunk: &ChunkRef| (chunk.head.stream, chunk.head.number);
            let wanted = (head.stream, head.number);
            if let Ok(at) = self.chunks.binary_search_by_key(&wanted, key) {
                cursor.done_len = Some(self.chunks[at].raw_len);
                cursor.is_final = self.chunks[at].container == Container::Block;
            }
        }
        ops.start.max(n_taken)..ops.end
    }
}

impl GrowingCapture {
    /// Starts at the beginning of a capture that was just opened.
    pub fn new(mut capture: Capture) -> GrowingCapture {
        capture.chunks = Vec::new();
        capture.spares = Vec::new();
        capture.damage = Vec::new();
        capture.checkpoint = None;
        let header_len = super::read_header(&capture.source).map_or(0, |(_, len)| len);
        let first_area = align_up(header_len, AREA_ALIGN);
        capture.settled_to = first_area;
        GrowingCapture {
            registry: RegistryBuilder::new(capture.header.tick_shift),
            registry_at: (0, 0),
            cursors: HashMap::new(),
            pending: Vec::new(),
            first_area,
            extents: Vec::new(),
            horizon: 0,
            n_waited: 0,
            had_ended: false,
            capture,
        }
    }

    /// Returns the capture as far as it is known: header and registry, and during a replay the new chunks.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }

    /// Returns the capture with its new chunks, and the cursors that a replay of them must advance.
    pub fn replay_parts(&mut self) -> (&Capture, Cursors<'_>) {
        let cursors = Cursors {
            chunks: &self.capture.chunks,
            cursors: &mut self.cursors,
        };
        (&self.capture, cursors)
    }

    /// Returns whether the recording ended normally and the last refresh found all chunks.
    pub fn is_whole(&self) -> bool {
        self.had_ended && self.n_waited == 0
    }

    /// Finds the chunks that are new; returns the numbers of the segments in them that may be replayed.
    ///
    /// `adopt` is called if there is a newer checkpoint, and returns whether its bytes are valid; if so, the replay
    /// begins with them. `is_over` means that the program has exited and writes nothing more.
    pub fn refresh(
        &mut self,
        is_over: bool,
        adopt: impl FnOnce(&Capture) -> bool,
    ) -> RangeInclusive<u64> {
        // A program that ends its recording compacts the file: all blocks have new offsets then.
        self.had_ended = self.capture.registry.end.is_some();
        let is_final = is_over || self.had_ended;
        let (mut sorted, stopped) = self.scan(is_final);
        self.take_registry(&sorted.registry);
        self.capture.registry.stopped = stopped;
        self.take_checkpoint(&mut sorted, adopt);
        let events = mem::take(&mut sorted.events);
        let highest = events.iter().map(|chunk| chunk.last_sequence).max();
        let limit = if is_final { u64::MAX } else { self.horizon };
        self.horizon = self.horizon.max(highest.unwrap_or(0));
        self.capture.spares = sorted.spares;
        self.capture.chunks = self.without_gaps(events, is_over);
        self.capture.first_sequence()..=limit
    }

    /// Scans for chunks that are new or not taken yet. In a bounded capture blocks may be anywhere, but they are few.
    fn scan(&mut self, is_final: bool) -> (Sorted, Option<StopMark>) {
        let source = &self.capture.source;
        let is_bounded = self.capture.header.mode.aggregate;
        let is_shorter = source.len().unwrap_or(0) < self.capture.settled_to;
        let mut scan = if is_bounded || is_final || is_shorter {
            Scan::run(source, self.first_area)
        } else {
            let mut scan = Scan::resume(source, self.capture.settled_to, &self.extents);
            scan.chunks.append(&mut self.pending);
            let settled = scan.extents.iter();
            let settled = settled.filter(|(offset, _)| *offset < scan.settled_to);
            self.extents.extend(settled);
            self.capture.settled_to = scan.settled_to;
            scan
        };
        let blocks = scan.chunks.iter().filter(|chunk| {
            chunk.container == Container::Block && chunk.head.stream != CHECKPOINT_STREAM
        });
        self.pending = blocks.cloned().collect();
        // An area that seems damaged now may be complete at the next refresh. The replay reports areas that still cannot be
        // read at the end.
        scan.damage.clear();
        scan.doubts.clear();
        let stopped = scan.stopped.take();
        (Sorted::new(scan), stopped)
    }

    fn take_registry(&mut self, chunks: &[ChunkRef]) {
        let mut raw = Vec::new();
        let mut is_changed = false;
        for chunk in chunks {
            let (next, n_taken) = self.registry_at;
            if chunk.head.number < next {
                continue;
            }
            if chunk.head.number > next || self.capture.read_chunk(chunk, &mut raw).is_err() {
                break;
            }
            if let Some(new) = raw.get(n_taken..).filter(|new| !new.is_empty()) {
                self.registry.add_chunk(new);
                is_changed = true;
            }
            self.registry_at = match chunk.container {
                Container::Block => (next + 1, 0),
                Container::Slot => (next, raw.len().max(n_taken)),
            };
        }
        if is_changed {
            self.capture.registry = self.registry.clone().finish();
            let capture = &mut self.capture;
            capture.header.add_labels(&capture.registry.labels);
        }
    }

    /// Switches to a checkpoint that is newer than the known one.
    fn take_checkpoint(&mut self, sorted: &mut Sorted, adopt: impl FnOnce(&Capture) -> bool) {
        let pieces = sorted.pieces.iter();
        let newest = pieces.map(|piece| piece.head.generation).max();
        let generation = |capture: &Capture| Some(capture.checkpoint.as_ref()?.generation);
        let known = generation(&self.capture);
        if newest > known {
            let before = self.capture.checkpoint.take();
            let checkpoints = sorted.checkpoints();
            self.capture.spares = sorted.spares.clone();
            self.capture.choose_checkpoint(checkpoints);
            if generation(&self.capture) > known && adopt(&self.capture) {
                self.cursors.clear();
            } else {
                // The checkpoint is not complete yet, or already removed.
                self.capture.checkpoint = before;
            }
        }
        if let Some(checkpoint) = &self.capture.checkpoint {
            let cut = checkpoint.cut;
            sorted.events.retain(|chunk| chunk.last_sequence > cut);
        }
    }

    /// Chooses the chunks that can be taken now: of each stream the next ones without a gap.
    fn without_gaps(&mut self, events: Vec<ChunkRef>, is_over: bool) -> Vec<ChunkRef> {
        let may_skip = is_over || self.n_waited >= MAX_WAITING;
        let mut has_gap = false;
        let mut chosen = Vec::new();
        for chunks in events.chunk_by(|one, next| one.head.stream == next.head.stream) {
            let cursor = self.cursors.get(&chunks[0].head.stream);
            let mut next = match cursor {
                Some(cursor) => cursor.number + u32::from(cursor.is_final),
                None if self.capture.checkpoint.is_some() => chunks[0].head.number,
                None => 0,
            };
            for chunk in chunks {
                let number = chunk.head.number;
                if number < next {
                    continue;
                }
                if number > next && !may_skip {
                    has_gap = true;
                    break;
                }
                next = number.saturating_add(1);
                let is_done = cursor.is_some_and(|cursor| {
                    cursor.number == number && cursor.done_len == Some(chunk.raw_len)
                });
                if !is_done || chunk.container == Container::Block {
                    chosen.push(chunk.clone());
                }
            }
        }
        self.n_waited = if has_gap { self.n_waited + 1 } else { 0 };
        chosen
    }

    /// Restarts at the first event. Keeps the registry, because its entries are complete.
    pub fn restart(&mut self) {
        self.capture.checkpoint = None;
        self.cursors.clear();
        self.pending.clear();
        self.extents.clear();
        self.capture.settled_to = self.first_area;
    }

    /// Drops the chunks of the last refresh, after their replay. Blocks that were not taken completely stay pending.
    pub fn forget_taken(&mut self) {
        let (cursors, next_of_registry) = (&self.cursors, self.registry_at.0);
        self.pending.retain(|chunk| {
            let number = chunk.head.number;
            match chunk.head.stream {
                REGISTRY_STREAM => number >= next_of_registry,
                stream => cursors.get(&stream).is_none_or(|cursor| {
                    number > cursor.number || number == cursor.number && !cursor.is_final
                }),
            }
        });
        self.capture.chunks = Vec::new();
        self.capture.spares = Vec::new();
    }
}
