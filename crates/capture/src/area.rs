//! The areas of a capture file. They follow the file header; each begins with an eight-byte magic number on an
//! eight-byte boundary.
//!
//! ```text
//! block    a finished chunk, compressed, with a checksum; written once, never changed
//! extent   one page of head, then slots: chunks still being filled, in memory shared with the profiled program
//! padding  bytes to skip
//! ```
//!
//! The chunk of a full slot is written to a block, and only then is the slot used again. After a kill, each chunk is
//! therefore in the file at least once. Two copies have the same stream and number.

use crate::wire::{Reader, Writer, checksum};

pub const BLOCK_MAGIC: u64 = u64::from_le_bytes(*b"tideBLK1");
pub const EXTENT_MAGIC: u64 = u64::from_le_bytes(*b"tideEXT1");
pub const PADDING_MAGIC: u64 = u64::from_le_bytes(*b"tidePAD1");
pub const SLOT_MAGIC: u64 = u64::from_le_bytes(*b"tideSLT1");

/// Areas begin on multiples of this.
pub const AREA_ALIGN: u64 = 8;

/// Rounds up to a multiple of `align`.
pub const fn align_up(offset: u64, align: u64) -> u64 {
    offset.div_ceil(align) * align
}

/// Identity and order of a chunk: the part of its head that block and slot share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ChunkHead {
    /// [`REGISTRY_STREAM`], [`CHECKPOINT_STREAM`], or the number of a thread in the order in which threads first recorded.
    pub stream: u32,
    /// Position of this chunk within its stream, from 0.
    pub number: u32,
    /// Sequence number of the chunk's first record in the order of all threads.
    pub sequence: u64,
    /// Clock units at the chunk's first record.
    pub time: u64,
    /// In a chunk of events, the number of the mode in which they were recorded. In a piece of a checkpoint, the number of
    /// the checkpoint.
    pub generation: u32,
}

/// The stream that describes threads, code objects, memory samples and the end.
pub const REGISTRY_STREAM: u32 = 0;

/// The stream of the checkpoints of a bounded capture, which replace the removed events.
///
/// A piece of a checkpoint is a block. Its `number` counts the pieces from 0, and `n_events` is the number of pieces.
/// `sequence` and `last_sequence` are the cut: the sums contain all events with smaller sequence numbers. `generation`
/// counts the checkpoints from 1.
pub const CHECKPOINT_STREAM: u32 = u32::MAX;

/// ```text
///  0 magic       8 stream   12 number   16 sequence      24 time
/// 32 generation 36 raw_len  40 stored   44 n_events      48 last_sequence
/// 56 checksum of the payload           64 checksum of bytes 0 to 63
/// 72 payload, stored_len bytes, then zeros up to a multiple of 8
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BlockHead {
    pub chunk: ChunkHead,
    /// Length of the payload when unpacked.
    pub raw_len: u32,
    /// Length in the file. If it equals `raw_len`, the payload is not compressed; otherwise it is a zstd frame.
    pub stored_len: u32,
    /// Allocations and frees in the payload; 0 in the registry. In a piece of a checkpoint, the number of pieces.
    pub n_events: u32,
    /// The thread's sequence number after the last record.
    pub last_sequence: u64,
    /// Checksum of the stored bytes.
    pub checksum: u64,
}

impl BlockHead {
    pub const LEN: usize = 72;

    /// Length of the whole area.
    pub fn area_len(&self) -> u64 {
        align_up(Self::LEN as u64 + u64::from(self.stored_len), AREA_ALIGN)
    }

    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut out = Writer::new(&mut bytes);
        out.u64(BLOCK_MAGIC);
        out.u32(self.chunk.stream);
        out.u32(self.chunk.number);
        out.u64(self.chunk.sequence);
        out.u64(self.chunk.time);
        out.u32(self.chunk.generation);
        out.u32(self.raw_len);
        out.u32(self.stored_len);
        out.u32(self.n_events);
        out.u64(self.last_sequence);
        out.u64(self.checksum);
        seal(bytes)
    }

    /// Returns `None` for anything but an intact block head.
    pub fn from_bytes(bytes: &[u8]) -> Option<BlockHead> {
        let mut input = unseal::<{ Self::LEN }>(bytes, BLOCK_MAGIC)?;
        let (stream, number) = (input.u32()?, input.u32()?);
        let (sequence, time) = (input.u64()?, input.u64()?);
        let generation = input.u32()?;
        Some(BlockHead {
            chunk: ChunkHead {
                stream,
                number,
                sequence,
                time,
                generation,
            },
            raw_len: input.u32()?,
            stored_len: input.u32()?,
            n_events: input.u32()?,
            last_sequence: input.u64()?,
            checksum: input.u64()?,
        })
    }
}

/// The head of an extent: one page, then `n_slots` slots of `slot_len` bytes from `slots_offset` on.
///
/// ```text
/// 0 magic   8 area_len   16 slots_offset (from the area's start)   20 slot_len   24 n_slots   28 zero   32 checksum
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentHead {
    pub area_len: u64,
    pub slots_offset: u32,
    pub slot_len: u32,
    pub n_slots: u32,
}

impl ExtentHead {
    pub const LEN: usize = 40;

    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut out = Writer::new(&mut bytes);
        out.u64(EXTENT_MAGIC);
        out.u64(self.area_len);
        out.u32(self.slots_offset);
        out.u32(self.slot_len);
        out.u32(self.n_slots);
        seal(bytes)
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<ExtentHead> {
        let mut input = unseal::<{ Self::LEN }>(bytes, EXTENT_MAGIC)?;
        let head = ExtentHead {
            area_len: input.u64()?,
            slots_offset: input.u32()?,
            slot_len: input.u32()?,
            n_slots: input.u32()?,
        };
        let slots_end =
            u64::from(head.slots_offset) + u64::from(head.slot_len) * u64::from(head.n_slots);
        (head.slot_len as usize > SlotHead::LEN && slots_end <= head.area_len).then_some(head)
    }
}

/// Bytes to skip. `0 magic   8 area_len   16 checksum`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaddingHead {
    pub area_len: u64,
}

impl PaddingHead {
    pub const LEN: usize = 24;

    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut out = Writer::new(&mut bytes);
        out.u64(PADDING_MAGIC);
        out.u64(self.area_len);
        seal(bytes)
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<PaddingHead> {
        let mut input = unseal::<{ Self::LEN }>(bytes, PADDING_MAGIC)?;
        let area_len = input.u64()?;
        (area_len >= Self::LEN as u64).then_some(PaddingHead { area_len })
    }
}

/// The head of a slot. It has no checksum, because it changes while the program runs. `committed` grows after the bytes it
/// counts are written; `in_use` is cleared while the other fields are rewritten.
///
/// ```text
///  0 magic   8 stream   12 number   16 sequence   24 time   32 committed   40 generation   44 in_use   48…63 zero
/// 64 payload
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHead {
    pub chunk: ChunkHead,
    /// Payload bytes that are complete.
    pub committed: u64,
    pub in_use: bool,
}

impl SlotHead {
    pub const LEN: usize = 64;
    pub const COMMITTED_AT: usize = 32;
    pub const IN_USE_AT: usize = 44;

    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut out = Writer::new(&mut bytes);
        out.u64(SLOT_MAGIC);
        out.u32(self.chunk.stream);
        out.u32(self.chunk.number);
        out.u64(self.chunk.sequence);
        out.u64(self.chunk.time);
        out.u64(self.committed);
        out.u32(self.chunk.generation);
        out.u32(u32::from(self.in_use));
        bytes
    }

    /// Returns `None` if the slot was never used or holds something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<SlotHead> {
        let mut input = Reader::new(bytes.get(..Self::LEN)?);
        if input.u64()? != SLOT_MAGIC {
            return None;
        }
        let (stream, number) = (input.u32()?, input.u32()?);
        let (sequence, time) = (input.u64()?, input.u64()?);
        let committed = input.u64()?;
        let generation = input.u32()?;
        Some(SlotHead {
            chunk: ChunkHead {
                stream,
                number,
                sequence,
                time,
                generation,
            },
            committed,
            in_use: input.u32()? != 0,
        })
    }
}

/// An intact area's head.
pub(crate) enum Area {
    Block(BlockHead),
    Extent(ExtentHead),
    Padding(PaddingHead),
}

impl Area {
    /// The longest head of an area.
    pub(crate) const MAX_HEAD_LEN: usize = BlockHead::LEN;

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Area> {
        match u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?) {
            BLOCK_MAGIC => BlockHead::from_bytes(bytes).map(Area::Block),
            EXTENT_MAGIC => ExtentHead::from_bytes(bytes)
                .filter(|head| head.area_len >= ExtentHead::LEN as u64)
                .map(Area::Extent),
            PADDING_MAGIC => PaddingHead::from_bytes(bytes).map(Area::Padding),
            _ => None,
        }
    }

    /// Returns the offset of the next area, given that of this one.
    pub(crate) fn end(&self, offset: u64) -> u64 {
        let len = match self {
            Area::Block(head) => head.area_len(),
            Area::Extent(head) => head.area_len,
            Area::Padding(head) => head.area_len,
        };
        let end = offset.saturating_add(len);
        // Rounding up must not overflow. Such a length points past the end of the file in any case.
        align_up(end.min(u64::MAX - AREA_ALIGN), AREA_ALIGN)
    }
}

/// Stores the checksum of all preceding bytes in the last eight.
fn seal<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    let (body, seal) = bytes.split_at_mut(N - 8);
    seal.copy_from_slice(&checksum(body).to_le_bytes());
    bytes
}

/// Returns a reader after the magic number, if magic number and checksum are right.
fn unseal<const N: usize>(bytes: &[u8], magic: u64) -> Option<Reader<'_>> {
    let (body, seal) = bytes.get(..N)?.split_at(N - 8);
    let mut input = Reader::new(body);
    let intact = input.u64()? == magic && checksum(body).to_le_bytes() == seal;
    intact.then_some(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk() -> ChunkHead {
        ChunkHead {
            stream: 3,
            number: 70_000,
            sequence: 1 << 40,
            time: 12_345,
            generation: 2,
        }
    }

    #[test]
    fn heads_round_trip() {
        let block = BlockHead {
            chunk: chunk(),
            raw_len: 65_000,
            stored_len: 1_234,
            n_events: 20_000,
            last_sequence: (1 << 40) + 5,
            checksum: u64::MAX,
        };
        assert_eq!(BlockHead::from_bytes(&block.to_bytes()), Some(block));
        let extent = ExtentHead {
            area_len: 4096 + 16 * 65_536,
            slots_offset: 4096,
            slot_len: 65_536,
            n_slots: 16,
        };
        assert_eq!(ExtentHead::from_bytes(&extent.to_bytes()), Some(extent));
        let padding = PaddingHead { area_len: 24 };
        assert_eq!(PaddingHead::from_bytes(&padding.to_bytes()), Some(padding));
        let slot = SlotHead {
            chunk: chunk(),
            committed: 99,
            in_use: true,
        };
        assert_eq!(SlotHead::from_bytes(&slot.to_bytes()), Some(slot));
    }

    #[test]
    fn changing_slot_fields_are_at_the_offsets_that_the_agent_writes() {
        let slot = SlotHead {
            chunk: ChunkHead::default(),
            committed: 0x1122,
            in_use: true,
        };
        let bytes = slot.to_bytes();
        assert_eq!(bytes[SlotHead::COMMITTED_AT..][..2], [0x22, 0x11]);
        assert_eq!(bytes[SlotHead::IN_USE_AT], 1);
    }

    #[test]
    fn block_head_with_one_bit_changed_is_refused() {
        let bytes = BlockHead::default().to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BlockHead::from_bytes(&bytes), None, "bit {bit}");
        }
    }

    #[test]
    fn extent_whose_slots_do_not_fit_is_refused() {
        let extent = ExtentHead {
            area_len: 4096,
            slots_offset: 4096,
            slot_len: 65_536,
            n_slots: 1,
        };
        assert_eq!(ExtentHead::from_bytes(&extent.to_bytes()), None);
    }
}
