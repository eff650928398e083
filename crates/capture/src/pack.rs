//! Packs a finished chunk into a block: compressed, with a checksum, ready to be appended to the file.
//!
//! Runs inside the profiled program, so nothing here panics or uses much stack. Buffers are kept, so that only the first
//! payload of the usual size allocates.

use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

use crate::area::{AREA_ALIGN, BlockHead, align_up};
use crate::wire::checksum;

/// The fastest of zstd's ordinary levels. Event streams become a third smaller than with LZ4, in little more time.
const LEVEL: i32 = 1;

/// Packs one block after another and reuses its buffers.
pub struct Packer {
    /// `None` if there was no memory for it: blocks are then stored uncompressed.
    compressor: Option<Compressor<'static>>,
    area: Vec<u8>,
}

impl Packer {
    pub fn new() -> Packer {
        Packer {
            compressor: Compressor::new(LEVEL).ok(),
            area: Vec::new(),
        }
    }

    /// Returns a packer that has all the memory it will need for payloads of up to `max_len` bytes.
    pub fn for_payloads_up_to(max_len: usize) -> Packer {
        let mut packer = Packer::new();
        // If this fails, `block` tries again.
        let _ = packer.area.try_reserve_exact(room_for(max_len));
        packer
    }

    /// Returns the whole area for `payload`: head, stored bytes and zeros up to a multiple of eight. Fills in the
    /// lengths and the checksum in `head`. Returns an empty slice if there is no memory, or if the payload is too
    /// long for the format.
    pub fn block(&mut self, mut head: BlockHead, payload: &[u8]) -> &[u8] {
        let room = room_for(payload.len());
        let Ok(raw_len) = u32::try_from(payload.len()) else {
            return &[];
        };
        self.area.clear();
        if self.area.try_reserve_exact(room).is_err() {
            return &[];
        }
        self.area.resize(room, 0);
        let body = &mut self.area[BlockHead::LEN..];
        let compressed = self
            .compressor
            .as_mut()
            .map(|compressor| compressor.compress_to_buffer(payload, body));
        let stored_len = match compressed {
            Some(Ok(len)) if len < payload.len() => len,
            _ => {
                body[..payload.len()].copy_from_slice(payload);
                payload.len()
            }
        };
        head.raw_len = raw_len;
        head.stored_len = stored_len as u32;
        head.checksum = checksum(&body[..stored_len]);
        // The compressor may have written bytes after its result.
        let end = head.area_len() as usize;
        self.area[BlockHead::LEN + stored_len..end].fill(0);
        self.area[..BlockHead::LEN].copy_from_slice(&head.to_bytes());
        self.area.truncate(end);
        &self.area
    }
}

impl Default for Packer {
    fn default() -> Self {
        Packer::new()
    }
}

/// Returns the largest length of an area for a payload of this length, including head and padding.
fn room_for(payload_len: usize) -> usize {
    let stored = compress_bound(payload_len).max(payload_len);
    align_up((BlockHead::LEN + stored) as u64, AREA_ALIGN) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unpacked(area: &[u8]) -> Vec<u8> {
        let head = BlockHead::from_bytes(area).unwrap();
        assert_eq!(area.len() as u64, head.area_len());
        let (stored, padding) = area[BlockHead::LEN..].split_at(head.stored_len as usize);
        assert!(padding.iter().all(|byte| *byte == 0));
        assert_eq!(head.checksum, checksum(stored));
        if head.stored_len == head.raw_len {
            return stored.to_vec();
        }
        assert!(head.stored_len < head.raw_len);
        zstd::bulk::decompress(stored, head.raw_len as usize).unwrap()
    }

    proptest! {
        #[test]
        fn payloads_round_trip_through_a_reused_packer(
            payloads in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..300),
                    (any::<u8>(), 0..100_000usize).prop_map(|(byte, len)| vec![byte; len]),
                ],
                1..6,
            )
        ) {
            let mut packer = Packer::for_payloads_up_to(1000);
            for payload in payloads {
                prop_assert_eq!(unpacked(packer.block(BlockHead::default(), &payload)), payload);
            }
        }
    }

    #[test]
    fn payload_that_does_not_shrink_is_stored_uncompressed() {
        let payload: Vec<u8> = (0..=255).collect();
        let mut packer = Packer::new();
        let head = BlockHead::from_bytes(packer.block(BlockHead::default(), &payload)).unwrap();
        assert_eq!((head.raw_len, head.stored_len), (256, 256));
    }

    #[test]
    fn memory_is_allocated_once_for_payloads_of_the_expected_length() {
        let mut packer = Packer::for_payloads_up_to(65_472);
        let before = packer.area.capacity();
        for byte in 0..3 {
            packer.block(BlockHead::default(), &vec![byte; 65_472]);
        }
        assert!(before > 0);
        assert_eq!(packer.area.capacity(), before);
    }
}
