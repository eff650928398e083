//! Makes the file of a [`Store`] shorter: after a checkpoint, and when the recording stops.
//!
//! Blocks move into the space of removed ones. [`compaction`] keeps the file readable at any instant.
//!
//! Runs on: keeper, and the thread that stops the recording. Locks: those of the store.

use std::io;

use heaptide_capture::area::{CHECKPOINT_STREAM, REGISTRY_STREAM};

use super::{Extent, Store, is_event_stream};
use crate::file::compaction;
use crate::host::locks::lock;
use crate::host::sys;

/// If all blocks together are longer than this, they are not moved at the end.
const MAX_MOVED: u64 = 64 << 20;

impl Store {
    /// Removes the blocks that a checkpoint replaces: event blocks that end before `cut`, and checkpoints of other
    /// generations.
    pub fn drop_before(&self, cut: u64, generation: u32) {
        if let Err(error) = self.try_drop_before(cut, generation) {
            self.fail(&error);
        }
    }

    fn try_drop_before(&self, cut: u64, generation: u32) -> io::Result<()> {
        let mut tail = lock(&self.tail);
        let fd = self.fd(&tail)?;
        let pool = lock(&self.pool);
        let mut obstacles: Vec<_> = pool.extents.iter().map(Extent::bounds).collect();
        obstacles.sort_unstable();
        let (mut kept, dropped): (Vec<_>, Vec<_>) =
            tail.blocks
                .iter()
                .copied()
                .partition(|block| match block.stream {
                    REGISTRY_STREAM => true,
                    CHECKPOINT_STREAM => block.generation == generation,
                    _ => block.last_sequence >= cut,
                });
        // Old checkpoints are removed first: readers need all events that follow a checkpoint.
        let (checkpoints, events): (Vec<_>, Vec<_>) = dropped
            .into_iter()
            .partition(|block| block.stream == CHECKPOINT_STREAM);
        for block in checkpoints.iter().chain(&events) {
            compaction::pad(fd, block.offset, block.offset + block.len, &[])?;
        }
        let end = compaction::slide(fd, &mut kept, &obstacles, self.first_area, tail.offset)?;
        let last_obstacle = obstacles.last().map_or(0, |&(_, end)| end);
        if end < last_obstacle {
            compaction::pad(fd, end, last_obstacle, &obstacles)?;
        }
        tail.offset = end.max(last_obstacle);
        sys::set_len(fd, tail.offset)?;
        tail.event_bytes = kept
            .iter()
            .filter(|block| is_event_stream(block.stream))
            .map(|block| block.len)
            .sum();
        tail.blocks = kept;
        Ok(())
    }

    /// Completes the file: packs every waiting slot into a block, moves blocks into the space of the slots and
    /// truncates the file. Called once, when no thread writes any more.
    pub fn finish(&self) {
        self.pack_waiting();
        if self.has_failed() {
            return;
        }
        if let Err(error) = self.compact() {
            // On a full disk the blocks stay where they are: the file is complete and only keeps its gaps.
            if error.kind() != io::ErrorKind::StorageFull {
                self.fail(&error);
            }
        }
    }

    /// Moves the blocks together, also into the space of the extents, and truncates the file after them. A large file keeps
    /// its gaps: moving its blocks would cost more time than the gaps are worth.
    fn compact(&self) -> io::Result<()> {
        let mut tail = lock(&self.tail);
        let fd = self.fd(&tail)?;
        let pool = lock(&self.pool);
        for extent in &pool.extents {
            let (start, end) = extent.bounds();
            compaction::pad(fd, start, end, &[])?;
        }
        let n_bytes: u64 = tail.blocks.iter().map(|block| block.len).sum();
        let file_end = tail.offset;
        let end = if n_bytes <= MAX_MOVED {
            compaction::slide(fd, &mut tail.blocks, &[], self.first_area, file_end)?
        } else {
            tail.blocks
                .last()
                .map_or(self.first_area, |block| block.offset + block.len)
        };
        sys::set_len(fd, end)?;
        tail.offset = end;
        Ok(())
    }
}
