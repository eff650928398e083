//! Notes about damaged parts of a capture: the bytes, their owner, and what the reader did with them.
//!
//! A damaged capture can still be read: the reader leaves out each untrustworthy part and adds one of these notes.

use std::fmt;

use crate::area::{CHECKPOINT_STREAM, REGISTRY_STREAM};

/// A part of a capture that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file at which the damage begins.
    pub offset: u64,
    pub category: DamageCategory,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageCategory {
    /// No intact area begins between `offset` and `end`.
    Unreadable { end: u64 },
    /// The file has neither blocks nor slots. A recording reserves slots before it starts.
    OnlyHeader,
    /// The file ends inside the area that begins at `offset`. `stream` is known if the file has enough of its head.
    Cut { stream: Option<u32> },
    /// The stored bytes do not match their checksum.
    WrongChecksum { end: u64, stream: u32 },
    /// The head is intact but contains an impossible length.
    ImplausibleLength { end: u64, stream: u32 },
    /// The checksum is right, but the bytes do not unpack.
    NotUnpackable { end: u64, stream: u32 },
    /// A slot's head is invalid.
    WrongSlot,
    /// A record of the chunk is invalid; the records before it were used.
    WrongRecord { stream: u32, number: u32 },
    /// Chunks that were written are missing from the file.
    Missing {
        stream: u32,
        first: u32,
        n_chunks: u32,
    },
    /// In another profiler's capture: the record at `offset` of the unpacked file is invalid.
    WrongForeignRecord,
    /// The operating system reported an error.
    ReadFailed {
        stream: u32,
        reason: std::io::ErrorKind,
    },
}

/// The name of a stream in messages.
struct Owner(u32);

impl fmt::Display for Owner {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            REGISTRY_STREAM => write!(out, "the registry"),
            CHECKPOINT_STREAM => write!(out, "the checkpoint"),
            stream => write!(out, "thread {stream}"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let offset = self.offset;
        match self.category {
            DamageCategory::Unreadable { end } => write!(
                out,
                "bytes {offset} to {end} are damaged: no intact block begins there and they were left out"
            ),
            DamageCategory::OnlyHeader => write!(
                out,
                "the file ends after its header: another process truncated it, or the program was killed at its start"
            ),
            DamageCategory::Cut {
                stream: Some(stream),
            } => write!(
                out,
                "the file ends too early: the block of {} at byte {offset} is incomplete and was left out",
                Owner(stream)
            ),
            DamageCategory::Cut { stream: None } => write!(
                out,
                "the file ends too early: the area at byte {offset} is incomplete and was left out"
            ),
            DamageCategory::WrongChecksum { end, stream } => write!(
                out,
                "bytes {offset} to {end} are damaged: the block of {} does not match its checksum and was left out",
                Owner(stream)
            ),
            DamageCategory::ImplausibleLength { end, stream } => write!(
                out,
                "bytes {offset} to {end} are damaged: the block of {} has an impossible length and was left out",
                Owner(stream)
            ),
            DamageCategory::NotUnpackable { end, stream } => write!(
                out,
                "bytes {offset} to {end} are damaged: the block of {} cannot be unpacked and was left out",
                Owner(stream)
            ),
            DamageCategory::WrongSlot => write!(
                out,
                "the slot at byte {offset} is damaged: its head is invalid and its events were left out"
            ),
            DamageCategory::WrongRecord { stream, number } => write!(
                out,
                "the block at byte {offset} is damaged: chunk {number} of {} has an invalid record, \
                 and the rest of the chunk was left out",
                Owner(stream)
            ),
            DamageCategory::Missing {
                stream,
                first,
                n_chunks: 1,
            } => write!(
                out,
                "chunk {first} of {} is missing from the file, and its content was left out",
                Owner(stream)
            ),
            DamageCategory::Missing {
                stream,
                first,
                n_chunks,
            } => write!(
                out,
                "chunks {first} to {} of {} are missing from the file, and their content was left out",
                first.saturating_add(n_chunks - 1),
                Owner(stream)
            ),
            DamageCategory::WrongForeignRecord => write!(
                out,
                "the record at byte {offset} is invalid: it and everything after it were left out"
            ),
            DamageCategory::ReadFailed { stream, reason } => write!(
                out,
                "the block of {} at byte {offset} could not be read ({reason}) and was left out",
                Owner(stream)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_names_the_bytes_their_owner_and_the_consequence() {
        let note = Damage {
            offset: 73_728,
            category: DamageCategory::WrongChecksum {
                end: 139_264,
                stream: 3,
            },
        };
        assert_eq!(
            note.to_string(),
            "bytes 73728 to 139264 are damaged: the block of thread 3 does not match its checksum and was left out"
        );
    }

    #[test]
    fn missing_chunks_are_counted_from_first_to_last() {
        let missing = |first, n_chunks| Damage {
            offset: 0,
            category: DamageCategory::Missing {
                stream: REGISTRY_STREAM,
                first,
                n_chunks,
            },
        };
        assert_eq!(
            missing(4, 3).to_string(),
            "chunks 4 to 6 of the registry are missing from the file, and their content was left out"
        );
        assert!(
            missing(4, 1)
                .to_string()
                .starts_with("chunk 4 of the registry is")
        );
    }
}
