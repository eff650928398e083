//! Following a capture while its program writes it: each look reads what is new, and nothing twice.
//!
//! The program does nothing for it and does not notice: its chunks lie in memory shared with the file. What a look finds
//! may have gaps, because the program goes on while we read from slot to slot, so three rules keep the sums right:
//!
//! - Of a thread's chunks only those without a gap before them are taken; the missing one is there at the next look.
//! - Segments are taken only up to the largest number that had been given out at the look *before*. Whatever made
//!   another thread's event possible was then in the file before this look began.
//! - A bounded capture whose events were replaced by a checkpoint is taken up again from that checkpoint.
//!
//! A block that cannot be read is perhaps only half written: all is read again, and only then called damage.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use crate::area::{AREA_ALIGN, CHECKPOINT_STREAM, ExtentHead, REGISTRY_STREAM, align_up};
use crate::damage::Damage;
use crate::order::replay_numbers;
use crate::tally::Tally;

use super::chunk::{Place, Sorted};
use super::registry::RegistryBuilder;
use super::scan::Scan;
use super::{Capture, ChunkRef, OpenError};

/// Looks after which a chunk that does not come is given up, and a block that cannot be read is damage.
const MAX_WAITING: u32 = 8;

/// A capture that grows.
pub struct Follower {
    /// Its registry is up to date; its chunks are those of the last look.
    capture: Capture,
    tally: Tally,
    registry: RegistryBuilder,
    /// Chunk of the registry that is next, and bytes of it that are taken.
    registry_at: (u32, usize),
    /// By stream.
    cursors: HashMap<u32, Cursor>,
    /// Blocks that were found and not taken yet.
    pending: Vec<ChunkRef>,
    /// Where the areas begin.
    first_area: u64,
    extents: Vec<(u64, ExtentHead)>,
    /// Largest number of a segment at the last look.
    horizon: u64,
    n_waited: u32,
    n_failed: u32,
    damage: Vec<Damage>,
    is_complete: bool,
}

/// How far a thread's stream is taken.
#[derive(Clone, Copy, Default)]
struct Cursor {
    number: u32,
    /// Operations of that chunk that are taken.
    n_ops: usize,
    /// Its length when all its operations were taken.
    done_len: Option<u32>,
    /// It was a block then, which does not change any more.
    is_final: bool,
}

impl Follower {
    pub fn open(path: &Path) -> Result<Follower, OpenError> {
        Ok(Follower::new(Capture::open(path)?))
    }

    /// Follows from the beginning a capture that was opened a moment ago.
    pub fn new(mut capture: Capture) -> Follower {
        capture.chunks = Vec::new();
        capture.spares = Vec::new();
        capture.damage = Vec::new();
        capture.checkpoint = None;
        let header_len = super::read_header(&capture.source).map_or(0, |(_, len)| len);
        let first_area = align_up(header_len, AREA_ALIGN);
        capture.settled_to = first_area;
        let mut follower = Follower {
            tally: Tally::new(capture.header.mode.sample_bytes),
            registry: RegistryBuilder::new(capture.header.tick_shift),
            registry_at: (0, 0),
            cursors: HashMap::new(),
            pending: Vec::new(),
            first_area,
            extents: Vec::new(),
            horizon: 0,
            n_waited: 0,
            n_failed: 0,
            damage: Vec::new(),
            is_complete: false,
            capture,
        };
        // The first look finds out how far the second one may go.
        follower.look(false);
        follower.look(false);
        follower
    }

    /// The capture as far as it is known: header and registry.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }

    /// The sums so far.
    pub fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// Both, for who needs them at once.
    pub fn parts(&self) -> (&Tally, &Capture) {
        (&self.tally, &self.capture)
    }

    /// What could not be read.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Recording was ended in order, and all of it is taken.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Takes what is new. `is_over`: the program is gone, so that nothing needs to be waited for.
    pub fn look(&mut self, is_over: bool) {
        // A program that ends its recording moves the blocks together: all places are new then.
        let had_ended = self.capture.registry.end.is_some();
        let is_final = is_over || had_ended;
        let mut sorted = self.scan(is_final);
        self.take_registry(&sorted.registry);
        self.take_up_checkpoint(&mut sorted);
        let events = std::mem::take(&mut sorted.events);
        let highest = events.iter().map(|chunk| chunk.last_sequence).max();
        let limit = if is_final { u64::MAX } else { self.horizon };
        self.horizon = self.horizon.max(highest.unwrap_or(0));
        self.capture.spares = sorted.spares;
        self.capture.chunks = self.without_gaps(events, is_over);
        let is_whole = self.replay(limit, is_over);
        self.is_complete = had_ended && is_whole && self.n_waited == 0;
        self.forget_what_is_taken();
    }

    fn is_bounded(&self) -> bool {
        self.capture.header.mode.aggregate
    }

    /// Chunks that are new, or not taken yet. In a bounded capture blocks may be anywhere, but they are few.
    fn scan(&mut self, is_final: bool) -> Sorted {
        let source = &self.capture.source;
        let is_shorter = source.len().unwrap_or(0) < self.capture.settled_to;
        let mut scan = if self.is_bounded() || is_final || is_shorter {
            Scan::run(source, self.first_area)
        } else {
            let mut scan = Scan::go_on(source, self.capture.settled_to, &self.extents);
            scan.chunks.append(&mut self.pending);
            let settled = scan.extents.iter();
            let settled = settled.filter(|(offset, _)| *offset < scan.settled_to);
            self.extents.extend(settled);
            self.capture.settled_to = scan.settled_to;
            scan
        };
        let blocks = scan
            .chunks
            .iter()
            .filter(|chunk| chunk.place == Place::Block && chunk.head.stream != CHECKPOINT_STREAM);
        self.pending = blocks.cloned().collect();
        // What looks damaged now may be whole in a moment; what is missing in the end is noted when it is not read.
        scan.damage.clear();
        scan.doubts.clear();
        Sorted::new(scan)
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
            self.registry_at = match chunk.place {
                Place::Block => (next + 1, 0),
                Place::Slot => (next, raw.len().max(n_taken)),
            };
        }
        if is_changed {
            self.capture.registry = self.registry.clone().finish();
        }
    }

    /// If there is a newer checkpoint than the one the sums began with, begins with that.
    fn take_up_checkpoint(&mut self, sorted: &mut Sorted) {
        let newest = sorted
            .pieces
            .iter()
            .map(|piece| piece.head.generation)
            .max();
        let known = self
            .capture
            .checkpoint
            .as_ref()
            .map(|known| known.generation);
        if newest > known {
            let before = self.capture.checkpoint.take();
            let checkpoints = sorted.checkpoints();
            self.capture.spares = sorted.spares.clone();
            self.capture.choose_checkpoint(checkpoints);
            let chosen = self
                .capture
                .checkpoint
                .as_ref()
                .map(|found| found.generation);
            match self.capture.first_tally() {
                Ok(tally) if chosen > known => {
                    self.tally = tally;
                    self.cursors.clear();
                }
                // Not written to its end yet, or gone again.
                _ => self.capture.checkpoint = before,
            }
        }
        if let Some(checkpoint) = &self.capture.checkpoint {
            let cut = checkpoint.cut;
            sorted.events.retain(|chunk| chunk.last_sequence > cut);
        }
    }

    /// The chunks that can be taken now: of each stream those that are next, one behind the other.
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
                if !is_done || chunk.place == Place::Block {
                    chosen.push(chunk.clone());
                }
            }
        }
        self.n_waited = if has_gap { self.n_waited + 1 } else { 0 };
        chosen
    }

    /// False if something could not be read.
    fn replay(&mut self, limit: u64, is_over: bool) -> bool {
        let first = match &self.capture.checkpoint {
            Some(checkpoint) => checkpoint.cut.saturating_add(1),
            None => 0,
        };
        let (tally, cursors) = (&mut self.tally, &mut self.cursors);
        let chunks = &self.capture.chunks;
        let reference = |stream: u32, number: u32| {
            let key = |chunk: &ChunkRef| (chunk.head.stream, chunk.head.number);
            let found = chunks.binary_search_by_key(&(stream, number), key).ok();
            found.map(|at| &chunks[at])
        };
        let damage = replay_numbers(
            &self.capture,
            first..=limit,
            &mut |_| {},
            &mut |chunk, ops| {
                let head = &chunk.head;
                let cursor = cursors.entry(head.stream).or_insert(Cursor {
                    number: head.number,
                    ..Cursor::default()
                });
                if cursor.number != head.number {
                    *cursor = Cursor {
                        number: head.number,
                        ..Cursor::default()
                    };
                }
                // With very many threads this is a part of the chunk.
                let n_taken = cursor.n_ops.saturating_sub(chunk.first_op);
                let new = ops.start.max(n_taken)..ops.end;
                if !new.is_empty() {
                    tally.apply(chunk, new);
                }
                cursor.n_ops = cursor.n_ops.max(chunk.first_op + ops.end);
                if chunk.is_last && cursor.n_ops == chunk.first_op + chunk.ops.len() {
                    if let Some(chunk) = reference(head.stream, head.number) {
                        cursor.done_len = Some(chunk.raw_len);
                        cursor.is_final = chunk.place == Place::Block;
                    }
                }
                ControlFlow::Continue(())
            },
        );
        if damage.is_empty() {
            self.n_failed = 0;
        } else if is_over || self.n_failed >= MAX_WAITING {
            self.damage.extend(damage);
        } else {
            self.n_failed += 1;
            self.begin_again();
            return false;
        }
        true
    }

    /// Forgets all sums. The registry stays: what it has was read whole.
    fn begin_again(&mut self) {
        self.tally = Tally::new(self.capture.header.mode.sample_bytes);
        self.capture.checkpoint = None;
        self.cursors.clear();
        self.pending.clear();
        self.extents.clear();
        self.capture.settled_to = self.first_area;
    }

    fn forget_what_is_taken(&mut self) {
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
