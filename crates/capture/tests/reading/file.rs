//! Capture files built area by area.

use std::ops::Range;

use heaptide_capture::area::{
    BlockHead, ChunkHead, ExtentHead, PaddingHead, REGISTRY_STREAM, SlotHead,
};
use heaptide_capture::{Entry, Header, Packer};

use crate::program::Chunk;

pub const SLOT_LEN: usize = 2048;
const SLOTS_OFFSET: usize = 128;

/// A capture file under construction.
pub struct FileBuilder {
    pub bytes: Vec<u8>,
    /// The range of each block, and the stream and number of its chunk.
    pub blocks: Vec<(Range<usize>, u32, u32)>,
    packer: Packer,
}

pub fn header() -> Header {
    Header {
        pid: 4711,
        command: vec!["job.py".into()],
        ..Header::default()
    }
}

impl FileBuilder {
    pub fn new() -> FileBuilder {
        FileBuilder::with_header(&header())
    }

    pub fn with_header(header: &Header) -> FileBuilder {
        let mut bytes = header.to_bytes();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        FileBuilder {
            bytes,
            blocks: Vec::new(),
            packer: Packer::new(),
        }
    }

    pub fn block(&mut self, chunk: &Chunk) {
        let head = BlockHead {
            chunk: chunk.head,
            n_events: chunk.n_events,
            last_sequence: chunk.last_sequence,
            ..BlockHead::default()
        };
        let start = self.bytes.len();
        self.bytes
            .extend_from_slice(self.packer.block(head, &chunk.payload));
        self.blocks.push((
            start..self.bytes.len(),
            chunk.head.stream,
            chunk.head.number,
        ));
    }

    /// Appends an extent with one slot for each of `slots`; `None` is a slot that was never used.
    pub fn extent(&mut self, slots: &[Option<&Chunk>]) {
        let head = ExtentHead {
            area_len: (SLOTS_OFFSET + slots.len() * SLOT_LEN) as u64,
            slots_offset: SLOTS_OFFSET as u32,
            slot_len: SLOT_LEN as u32,
            n_slots: slots.len() as u32,
        };
        let start = self.bytes.len();
        self.bytes.resize(start + head.area_len as usize, 0);
        self.bytes[start..start + ExtentHead::LEN].copy_from_slice(&head.to_bytes());
        for (index, chunk) in slots.iter().enumerate() {
            let at = start + SLOTS_OFFSET + index * SLOT_LEN;
            if let Some(chunk) = chunk {
                fill_slot(&mut self.bytes[at..at + SLOT_LEN], chunk);
            }
        }
    }

    /// Returns the offset of a slot of the extent at `extent`.
    pub fn slot_offset(extent: usize, index: usize) -> usize {
        extent + SLOTS_OFFSET + index * SLOT_LEN
    }

    pub fn padding(&mut self, len: usize) {
        let head = PaddingHead {
            area_len: (PaddingHead::LEN + len) as u64,
        };
        self.bytes.extend_from_slice(&head.to_bytes());
        self.bytes
            .resize((self.bytes.len() + len).next_multiple_of(8), 0xee);
    }

    pub fn registry(&mut self, number: u32, entries: &[Entry]) {
        self.block(&registry_chunk(number, entries));
    }
}

pub fn registry_chunk(number: u32, entries: &[Entry]) -> Chunk {
    let mut payload = Vec::new();
    for entry in entries {
        let mut bytes = vec![0; 4096];
        let len = entry.write(&mut bytes);
        payload.extend_from_slice(&bytes[..len]);
    }
    Chunk {
        head: ChunkHead {
            stream: REGISTRY_STREAM,
            number,
            ..ChunkHead::default()
        },
        payload,
        n_events: 0,
        last_sequence: 0,
    }
}

/// Puts a chunk into a slot. The other bytes are invalid, because those of an older chunk may remain there.
pub fn fill_slot(slot: &mut [u8], chunk: &Chunk) {
    let head = SlotHead {
        chunk: chunk.head,
        committed: chunk.payload.len() as u64,
        in_use: true,
    };
    slot.fill(0xcc);
    slot[..SlotHead::LEN].copy_from_slice(&head.to_bytes());
    slot[SlotHead::LEN..][..chunk.payload.len()].copy_from_slice(&chunk.payload);
}
