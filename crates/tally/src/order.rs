//! The events of all threads in the order in which they happened.
//!
//! The events of one thread are in order. Between threads, each *segment* (the operations between two switch records) has a
//! unique number, so the next events are always those of the segment with the smallest number:
//!
//! ```text
//! thread 1   |1: a a a|      |3: a a|4: a|
//! thread 2            |2: b b|           |5: b b b|
//! order       a a a    b b    a a    a    b b b
//! ```
//!
//! A segment may continue in the next chunk of its thread; the number at that chunk's head is then the same. Memory:
//! one decoded chunk for each thread that is in the middle of one, and a few decoded ahead. It does not depend on the
//! number of events. If these chunks take too much because there are very many threads, chunks are dropped and decoded
//! again, part by part.

mod decode_ahead;
mod parts;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{ControlFlow, Range, RangeInclusive};
use std::thread;

use heaptide_capture::{Capture, ChunkRef, Damage, DecodedChunk, Segment};

use decode_ahead::Ahead;
use parts::Parts;

/// More workers than this do not help: the sink runs on one core and is slower than this many decoders.
const MAX_WORKERS: usize = 4;
/// Limit for the partly replayed chunks of all threads. Above it, the chunks needed last are dropped and then decoded part
/// by part. Programs with a dozen busy threads stay below it: a full chunk of 128 KiB takes about 1.5 MB decoded.
const MAX_HELD_BYTES: usize = 20 << 20;

/// Passes every operation of the capture to `sink` in the order in which they happened: a chunk, and the range of its next
/// operations. Ranges of one chunk arrive in order and are never empty. Ranges of other threads may arrive between them.
/// `on_progress` receives the number of events done after each chunk. Returns the damage.
///
/// In a bounded capture it begins after the checkpoint.
///
/// Other threads decode chunks. `sink` and `on_progress` run on the calling thread, which also decodes.
pub fn replay(
    capture: &Capture,
    on_progress: &mut dyn FnMut(u64),
    sink: &mut impl FnMut(&DecodedChunk, Range<usize>),
) -> Vec<Damage> {
    replay_until(capture, on_progress, &mut |chunk, ops| {
        sink(chunk, ops);
        ControlFlow::Continue(())
    })
}

/// Does the same as [`replay`], until the sink returns `Break`.
pub fn replay_until(
    capture: &Capture,
    on_progress: &mut dyn FnMut(u64),
    sink: &mut impl FnMut(&DecodedChunk, Range<usize>) -> ControlFlow<()>,
) -> Vec<Damage> {
    if let Some(foreign) = capture.foreign_events() {
        return foreign.replay(on_progress, sink);
    }
    replay_numbers(
        capture,
        capture.first_sequence()..=u64::MAX,
        on_progress,
        sink,
    )
}

/// Does the same as [`replay_until`] for the segments with these numbers.
pub(crate) fn replay_numbers(
    capture: &Capture,
    wanted: RangeInclusive<u64>,
    on_progress: &mut dyn FnMut(u64),
    sink: &mut impl FnMut(&DecodedChunk, Range<usize>) -> ControlFlow<()>,
) -> Vec<Damage> {
    let n_cores = thread::available_parallelism().map_or(1, |n| n.get());
    // The calling thread also decodes when it has nothing to replay.
    let n_workers = (n_cores - 1)
        .min(MAX_WORKERS)
        .min(capture.chunks.len().saturating_sub(1));
    replay_with(
        capture,
        wanted,
        n_workers,
        MAX_HELD_BYTES,
        on_progress,
        sink,
    )
}

/// Does the same as [`replay`] for the segments whose numbers lie between `after` and `before`, both excluded, with
/// `n_workers` additional threads.
pub fn replay_between(
    capture: &Capture,
    after: u64,
    before: u64,
    n_workers: usize,
    sink: &mut impl FnMut(&DecodedChunk, Range<usize>),
) -> Vec<Damage> {
    let (Some(first), Some(last)) = (after.checked_add(1), before.checked_sub(1)) else {
        return Vec::new();
    };
    let wanted = first..=last;
    replay_with(
        capture,
        wanted,
        n_workers,
        MAX_HELD_BYTES,
        &mut |_| {},
        &mut |chunk, ops| {
            sink(chunk, ops);
            ControlFlow::Continue(())
        },
    )
}

fn replay_with(
    capture: &Capture,
    wanted: RangeInclusive<u64>,
    n_workers: usize,
    max_held_bytes: usize,
    on_progress: &mut dyn FnMut(u64),
    sink: &mut impl FnMut(&DecodedChunk, Range<usize>) -> ControlFlow<()>,
) -> Vec<Damage> {
    let ahead = Ahead::new(capture, &wanted, n_workers + 2);
    thread::scope(|scope| {
        let _stop = ahead.stop_guard();
        for _ in 0..n_workers {
            // If the thread cannot be created, the replay is slower but still correct.
            let _ = thread::Builder::new()
                .name("heaptide-decode".into())
                .spawn_scoped(scope, || ahead.work());
        }
        let mut merge = Merge::new(capture, wanted, &ahead, max_held_bytes);
        while let Some(stream) = merge.next_stream() {
            if merge.advance(stream, on_progress, sink).is_break() {
                break;
            }
        }
        merge.damage
    })
}

/// Returns whether a chunk may have segments with these numbers.
fn is_wanted(chunk: &ChunkRef, wanted: &RangeInclusive<u64>) -> bool {
    chunk.last_sequence >= *wanted.start() && chunk.head.sequence <= *wanted.end()
}

/// The position of the replay in one thread's stream.
struct Stream {
    /// The current chunk, and the end of the stream: indices into the capture's chunks.
    chunk: usize,
    end: usize,
    /// The current segment of that chunk.
    segment: usize,
    /// The number of the current segment.
    sequence: u64,
    /// The current chunk, once it is needed, or the part of it that contains the segment.
    decoded: Option<DecodedChunk>,
    /// The rest of the chunk, if it is decoded part by part.
    parts: Option<Box<Parts>>,
}

struct Merge<'a> {
    capture: &'a Capture,
    /// The numbers of the segments to replay.
    wanted: RangeInclusive<u64>,
    ahead: &'a Ahead<'a>,
    streams: Vec<Stream>,
    /// Sequence number and index of each stream that is not at its end, smallest first.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    /// Bytes in all `decoded`, and their limit.
    held_bytes: usize,
    max_held_bytes: usize,
    /// Operations in a part of a chunk.
    part_ops: usize,
    raw: Vec<u8>,
    n_done: u64,
    damage: Vec<Damage>,
}

impl<'a> Merge<'a> {
    fn new(
        capture: &'a Capture,
        wanted: RangeInclusive<u64>,
        ahead: &'a Ahead<'a>,
        max_held_bytes: usize,
    ) -> Self {
        let mut merge = Merge {
            capture,
            wanted,
            ahead,
            streams: Vec::new(),
            queue: BinaryHeap::new(),
            held_bytes: 0,
            max_held_bytes,
            part_ops: 0,
            raw: Vec::new(),
            n_done: 0,
            damage: Vec::new(),
        };
        let mut chunk = 0;
        for chunks in capture
            .chunks
            .chunk_by(|one, next| one.head.stream == next.head.stream)
        {
            merge.streams.push(Stream {
                chunk,
                end: chunk + chunks.len(),
                segment: 0,
                sequence: 0,
                decoded: None,
                parts: None,
            });
            let index = merge.streams.len() - 1;
            if merge.is_at_wanted_chunk(index) {
                let sequence = merge.streams[index].sequence;
                merge.queue.push(Reverse((sequence, index)));
            }
            chunk += chunks.len();
        }
        merge.part_ops = parts::n_ops(max_held_bytes, merge.streams.len());
        merge
    }

    /// Returns the stream with the next event.
    fn next_stream(&mut self) -> Option<usize> {
        self.queue.pop().map(|Reverse((_, stream))| stream)
    }

    /// Replays a stream until another one has the next event.
    fn advance(
        &mut self,
        index: usize,
        on_progress: &mut dyn FnMut(u64),
        sink: &mut impl FnMut(&DecodedChunk, Range<usize>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let next_of_others = self.queue.peek().map(|Reverse(next)| *next);
        let has_turn =
            |sequence: u64| next_of_others.is_none_or(|others| (sequence, index) < others);
        loop {
            let is_part_done = match self.chunk_of(index) {
                None => true,
                Some(chunk) => {
                    let stream = &mut self.streams[index];
                    let segments = &chunk.segments[stream.segment..];
                    let first_op = |segment: &Segment| segment.first_op as usize;
                    let n_unwanted = segments
                        .iter()
                        .take_while(|segment| segment.sequence < *self.wanted.start())
                        .count();
                    let n_next = segments[n_unwanted..]
                        .iter()
                        .take_while(|segment| {
                            has_turn(segment.sequence) && segment.sequence <= *self.wanted.end()
                        })
                        .count();
                    let start = segments.get(n_unwanted).map_or(chunk.ops.len(), first_op);
                    let next = segments.get(n_unwanted + n_next);
                    let end = next.map_or(chunk.ops.len(), first_op);
                    if start < end {
                        sink(&chunk, start..end)?;
                    }
                    stream.segment += n_unwanted + n_next;
                    if let Some(next) = next {
                        stream.sequence = next.sequence;
                    }
                    let is_done = next.is_none_or(|next| next.sequence > *self.wanted.end());
                    self.held_bytes += chunk.heap_bytes();
                    stream.decoded = Some(chunk);
                    is_done
                }
            };
            if is_part_done
                && !self.step_to_next_part(index)
                && !self.step_to_next_chunk(index, on_progress)
            {
                return ControlFlow::Continue(());
            }
            let sequence = self.streams[index].sequence;
            if !has_turn(sequence) {
                self.queue.push(Reverse((sequence, index)));
                self.drop_chunks_needed_last();
                return ControlFlow::Continue(());
            }
        }
    }

    /// Takes the current chunk out of a stream. Returns `None` and reports damage if it cannot be read.
    fn chunk_of(&mut self, index: usize) -> Option<DecodedChunk> {
        let stream = &mut self.streams[index];
        if let Some(chunk) = stream.decoded.take() {
            self.held_bytes = self.held_bytes.saturating_sub(chunk.heap_bytes());
            return Some(chunk);
        }
        let decoded = match &mut stream.parts {
            Some(parts) => {
                let reference = &self.capture.chunks[stream.chunk];
                let before = parts.heap_bytes();
                let decoded = parts.resume(self.capture, reference, stream.sequence, self.part_ops);
                self.held_bytes += parts.heap_bytes();
                self.held_bytes = self.held_bytes.saturating_sub(before);
                decoded.map(|decoded| {
                    stream.segment = decoded.segment;
                    decoded.chunk
                })
            }
            None => self.ahead.take(stream.chunk, &mut self.raw),
        };
        match decoded {
            // Decoded again, it has the same number of segments, unless the file has changed.
            Ok(chunk) if stream.segment < chunk.segments.len() => Some(chunk),
            Ok(_) => None,
            Err(damage) => {
                self.damage.push(damage);
                None
            }
        }
    }

    /// Moves a stream to the next part of its chunk. Returns false if there is no wanted part.
    fn step_to_next_part(&mut self, index: usize) -> bool {
        let stream = &mut self.streams[index];
        let (Some(parts), Some(part)) = (&mut stream.parts, &mut stream.decoded) else {
            return false;
        };
        if part.is_last || stream.segment < part.segments.len() {
            return false;
        }
        let before = parts.heap_bytes() + part.heap_bytes();
        let reference = &self.capture.chunks[stream.chunk];
        let decoded = parts.next(self.capture, reference, part, self.part_ops);
        self.held_bytes += parts.heap_bytes() + part.heap_bytes();
        self.held_bytes = self.held_bytes.saturating_sub(before);
        match decoded {
            Ok(()) => {
                stream.segment = 0;
                stream.sequence = part.segments.first().map_or(0, |first| first.sequence);
                true
            }
            Err(damage) => {
                self.damage.push(damage);
                false
            }
        }
    }

    /// Moves a stream to its next wanted chunk. Returns false at the end of the stream.
    fn step_to_next_chunk(&mut self, index: usize, on_progress: &mut dyn FnMut(u64)) -> bool {
        let stream = &mut self.streams[index];
        let reference = &self.capture.chunks[stream.chunk];
        if let Some(chunk) = stream.decoded.take() {
            if !chunk.complete {
                self.damage.push(reference.wrong_record());
            }
            self.held_bytes = self.held_bytes.saturating_sub(chunk.heap_bytes());
            self.ahead.recycle(chunk);
        }
        if let Some(parts) = stream.parts.take() {
            self.held_bytes = self.held_bytes.saturating_sub(parts.heap_bytes());
        }
        self.n_done += u64::from(reference.n_events);
        on_progress(self.n_done);
        stream.chunk += 1;
        stream.segment = 0;
        self.is_at_wanted_chunk(index)
    }

    /// Skips chunks that are not wanted. Returns false at the end of the stream.
    fn is_at_wanted_chunk(&mut self, index: usize) -> bool {
        let stream = &mut self.streams[index];
        let chunks = &self.capture.chunks[stream.chunk..stream.end];
        let Some(n_unwanted) = chunks
            .iter()
            .position(|chunk| is_wanted(chunk, &self.wanted))
        else {
            stream.chunk = stream.end;
            return false;
        };
        stream.sequence = chunks[n_unwanted].head.sequence;
        stream.chunk += n_unwanted;
        true
    }

    /// Frees memory: whole chunks become parts, and if that is not enough, parts are read from the file each time.
    fn drop_chunks_needed_last(&mut self) {
        while self.held_bytes > self.max_held_bytes {
            let whole =
                self.last_needed(|stream| stream.decoded.is_some() && stream.parts.is_none());
            let has_payload =
                |stream: &Stream| stream.parts.as_ref().is_some_and(|it| it.has_payload());
            if let Some(stream) = whole {
                let Some(chunk) = stream.decoded.take() else {
                    return;
                };
                let segment = chunk.segments.get(stream.segment);
                let n_done = segment.map_or(chunk.ops.len(), |segment| segment.first_op as usize);
                let parts = Box::new(Parts::new(&chunk.head, n_done));
                let added = parts.heap_bytes();
                stream.parts = Some(parts);
                self.held_bytes = (self.held_bytes + added).saturating_sub(chunk.heap_bytes());
            } else if let Some(parts) = self
                .last_needed(has_payload)
                .and_then(|it| it.parts.as_mut())
            {
                let before = parts.heap_bytes();
                parts.forget_payload();
                let after = parts.heap_bytes();
                self.held_bytes = (self.held_bytes + after).saturating_sub(before);
            } else {
                // The rest cannot be dropped: do not search again before more is held.
                self.max_held_bytes = self.held_bytes * 2;
            }
        }
    }

    fn last_needed(&mut self, is_candidate: impl Fn(&Stream) -> bool) -> Option<&mut Stream> {
        let streams = self.streams.iter_mut();
        streams
            .filter(|stream| is_candidate(stream))
            .max_by_key(|stream| stream.sequence)
    }
}
