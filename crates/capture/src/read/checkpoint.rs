//! Checkpoints of a bounded capture: choosing the valid one, and reading its bytes.
//!
//! A file may hold several, because a program can be killed between writing one and removing the previous one. The reader
//! uses the newest one whose pieces are all present and intact. If only an older one is intact, no event is missing: the
//! agent removes the old checkpoint before it removes any event that only the new one contains.

use std::cmp::Reverse;
use std::mem;

use crate::area::CHECKPOINT_STREAM;
use crate::damage::{Damage, DamageCategory};

use super::chunk::Sorted;
use super::{Capture, ChunkRef};

/// Longer checkpoints count as damage: this is enough for more than a hundred million live blocks.
pub const MAX_CHECKPOINT_LEN: u64 = 1 << 30;

/// The sums of all events before a cut. They replace these events in the file.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Segments with smaller numbers are in the sums, those with greater numbers are not; no segment has this number.
    pub cut: u64,
    /// Clock units at the cut.
    pub time: u64,
    /// Checkpoints of a capture are counted from 1.
    pub generation: u32,
    pieces: Vec<ChunkRef>,
}

impl Checkpoint {
    /// Takes the pieces of one generation, sorted by number. Fails if one is missing.
    fn new(pieces: Vec<ChunkRef>) -> Result<Checkpoint, Damage> {
        let Some(ChunkRef { head, offset, .. }) = pieces.first().cloned() else {
            return Err(missing(0, 0));
        };
        let n_pieces = pieces[0].n_events;
        let belongs = |(number, piece): &(u32, &ChunkRef)| {
            piece.head.number == *number
                && piece.head.sequence == head.sequence
                && piece.n_events == n_pieces
        };
        let n_present = (0..).zip(&pieces).take_while(belongs).count();
        if n_present < pieces.len() || n_present != n_pieces as usize {
            return Err(missing(offset, n_present as u32));
        }
        Ok(Checkpoint {
            cut: head.sequence,
            time: head.time,
            generation: head.generation,
            pieces,
        })
    }

    /// Returns the damage to report if the checkpoint's bytes are not a tally.
    pub fn wrong_record(&self) -> Damage {
        self.pieces[0].wrong_record()
    }
}

fn missing(offset: u64, first: u32) -> Damage {
    Damage {
        offset,
        category: DamageCategory::Missing {
            stream: CHECKPOINT_STREAM,
            first,
            n_chunks: 1,
        },
    }
}

impl Sorted {
    /// Returns the checkpoints, newest first; for an incomplete one, its damage.
    pub(super) fn checkpoints(&mut self) -> Vec<Result<Checkpoint, Damage>> {
        let mut pieces = mem::take(&mut self.pieces);
        pieces.sort_by_key(|piece| Reverse(piece.head.generation));
        pieces
            .chunk_by(|one, next| one.head.generation == next.head.generation)
            .map(|pieces| Checkpoint::new(self.each_once(pieces.to_vec())))
            .collect()
    }
}

impl Capture {
    /// Chooses the checkpoint to use. Returns the damage of newer ones.
    pub(super) fn choose_checkpoint(
        &mut self,
        newest_first: Vec<Result<Checkpoint, Damage>>,
    ) -> Vec<Damage> {
        let mut failed = Vec::new();
        let mut raw = Vec::new();
        for checkpoint in newest_first {
            let intact = checkpoint.and_then(|checkpoint| {
                self.each_piece(&checkpoint, &mut raw, |_| {})?;
                Ok(checkpoint)
            });
            match intact {
                Ok(checkpoint) => {
                    self.checkpoint = Some(checkpoint);
                    break;
                }
                Err(damage) => failed.push(damage),
            }
        }
        failed
    }

    /// Returns the bytes of the checkpoint, which are a tally; none if the capture has no checkpoint.
    pub fn read_checkpoint(&self) -> Result<Vec<u8>, Damage> {
        let mut bytes = Vec::new();
        if let Some(checkpoint) = &self.checkpoint {
            let mut raw = Vec::new();
            self.each_piece(checkpoint, &mut raw, |piece| bytes.extend_from_slice(piece))?;
        }
        Ok(bytes)
    }

    fn each_piece(
        &self,
        checkpoint: &Checkpoint,
        raw: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Damage> {
        let mut len = 0;
        for piece in &checkpoint.pieces {
            len += u64::from(piece.raw_len);
            if len > MAX_CHECKPOINT_LEN {
                let category = DamageCategory::ImplausibleLength {
                    end: piece.offset + u64::from(piece.stored_len),
                    stream: CHECKPOINT_STREAM,
                };
                let offset = piece.offset;
                return Err(Damage { offset, category });
            }
        }
        for piece in &checkpoint.pieces {
            self.read_chunk(piece, raw)?;
            each(raw);
        }
        Ok(())
    }
}
