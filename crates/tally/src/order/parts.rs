//! A chunk decoded part by part: used when very many threads are in the middle of a chunk.
//!
//! Between two parts only the payload, a tenth of the decoded size, and the state of decoding are kept. If even that is too
//! much, the payload is dropped and read again from the file.

use heaptide_capture::area::ChunkHead;
use heaptide_capture::decode::DecodeState;
use heaptide_capture::{Capture, ChunkRef, Damage, DecodedChunk, Op};

/// Returns the number of operations in a part, so that the parts of all streams take half of `max_held_bytes`.
pub(super) fn n_ops(max_held_bytes: usize, n_streams: usize) -> usize {
    let share = max_held_bytes / 2 / n_streams.max(1);
    (share / size_of::<Op>()).clamp(64, 4096)
}

/// The part of a chunk that is not decoded yet.
pub(super) struct Parts {
    state: DecodeState,
    payload: Vec<u8>,
    /// Operations that were replayed before the chunk was dropped.
    n_done: usize,
}

/// A part, and the index of its next segment. If the file has changed, the index is past the last segment.
pub(super) struct Resumed {
    pub chunk: DecodedChunk,
    pub segment: usize,
}

impl Parts {
    /// Prepares to continue a chunk that is dropped after `n_done` of its operations.
    pub(super) fn new(head: &ChunkHead, n_done: usize) -> Parts {
        Parts {
            state: DecodeState::new(head),
            payload: Vec::new(),
            n_done,
        }
    }

    /// Returns the part that contains the segment with this `sequence` number, at which the replay continues.
    pub(super) fn resume(
        &mut self,
        capture: &Capture,
        chunk: &ChunkRef,
        sequence: u64,
        max_ops: usize,
    ) -> Result<Resumed, Damage> {
        let mut part = DecodedChunk::new();
        let mut n_before = 0;
        loop {
            self.next(capture, chunk, &mut part, max_ops)?;
            if n_before + part.ops.len() > self.n_done || part.is_last {
                break;
            }
            n_before += part.ops.len();
        }
        let first_op = self.n_done.saturating_sub(n_before);
        let mut segments = part.segments.iter();
        let segment = segments
            .position(|it| it.first_op as usize == first_op && it.sequence == sequence)
            .unwrap_or(part.segments.len());
        Ok(Resumed {
            chunk: part,
            segment,
        })
    }

    /// Replaces a part by the next one.
    pub(super) fn next(
        &mut self,
        capture: &Capture,
        chunk: &ChunkRef,
        part: &mut DecodedChunk,
        max_ops: usize,
    ) -> Result<(), Damage> {
        if self.payload.is_empty() {
            capture.read_chunk(chunk, &mut self.payload)?;
            self.payload.shrink_to_fit();
        }
        part.decode_part(&chunk.head, &mut self.state, &self.payload, max_ops);
        Ok(())
    }

    pub(super) fn has_payload(&self) -> bool {
        !self.payload.is_empty()
    }

    pub(super) fn forget_payload(&mut self) {
        self.payload = Vec::new();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Parts>() + self.payload.capacity()
    }
}
