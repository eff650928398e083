//! The stop mark: a recording stopped before the program did, for example because the disk was full.
//!
//! A record cannot be added on a full disk, so the mark lies in memory that is already mapped: after the first extent's
//! head, in the same page. Later dropped events are counted in the mark, so the count survives a kill.
//!
//! ```text
//! 0 magic   8 time   16 number of dropped events   24 length of the reason (u32)   28 zero   32 reason, UTF-8
//! ```

use crate::area::ExtentHead;
use crate::wire::Reader;

pub const STOP_MAGIC: u64 = u64::from_le_bytes(*b"tideSTP1");

/// A recording that stopped early.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopMark {
    /// Clock units.
    pub time: u64,
    /// Events that were not recorded since that time.
    pub n_dropped: u64,
    pub reason: String,
}

impl StopMark {
    /// Offset of the mark in its extent.
    pub const AT: usize = 64;
    pub const LEN: usize = 192;
    /// Offsets in the mark.
    pub const TIME_AT: usize = 8;
    pub const DROPPED_AT: usize = 16;
    pub const REASON_LEN_AT: usize = 24;
    pub const REASON_AT: usize = 32;
    pub const MAX_REASON_LEN: usize = StopMark::LEN - StopMark::REASON_AT;

    /// Whether the extent has room for a mark before its slots.
    pub(crate) fn fits(head: &ExtentHead) -> bool {
        head.slots_offset as usize >= StopMark::AT + StopMark::LEN
    }

    /// Returns `None` if the bytes are not a mark, which is the normal case.
    pub fn from_bytes(bytes: &[u8]) -> Option<StopMark> {
        let mut input = Reader::new(bytes);
        if input.u64()? != STOP_MAGIC {
            return None;
        }
        let (time, n_dropped) = (input.u64()?, input.u64()?);
        let len = (input.u32()? as usize).min(StopMark::MAX_REASON_LEN);
        let reason = bytes.get(StopMark::REASON_AT..StopMark::REASON_AT + len)?;
        Some(StopMark {
            time,
            n_dropped,
            // The reason is printed, so control characters of a crafted file are replaced.
            reason: String::from_utf8_lossy(reason).replace(char::is_control, "?"),
        })
    }

    pub fn to_bytes(&self) -> [u8; StopMark::LEN] {
        let mut bytes = [0; StopMark::LEN];
        // A character that does not fit completely is shown as invalid.
        let reason = self.reason.as_bytes();
        let len = reason.len().min(StopMark::MAX_REASON_LEN);
        let fields: [(usize, &[u8]); 5] = [
            (0, &STOP_MAGIC.to_le_bytes()),
            (StopMark::TIME_AT, &self.time.to_le_bytes()),
            (StopMark::DROPPED_AT, &self.n_dropped.to_le_bytes()),
            (StopMark::REASON_LEN_AT, &(len as u32).to_le_bytes()),
            (StopMark::REASON_AT, &reason[..len]),
        ];
        for (at, field) in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_round_trips_and_a_long_reason_is_cut() {
        let mark = StopMark {
            time: 77,
            n_dropped: 1 << 40,
            reason: "disk full".into(),
        };
        assert_eq!(StopMark::from_bytes(&mark.to_bytes()), Some(mark.clone()));
        let long = StopMark {
            reason: "x".repeat(1000),
            ..mark
        };
        let read = StopMark::from_bytes(&long.to_bytes()).expect("a mark");
        assert_eq!(read.reason.len(), StopMark::MAX_REASON_LEN);
        assert_eq!(StopMark::from_bytes(&[0; StopMark::LEN]), None);
        let hostile = StopMark {
            reason: "full\u{1b}[2J".into(),
            ..StopMark::default()
        };
        let read = StopMark::from_bytes(&hostile.to_bytes()).expect("a mark");
        assert_eq!(read.reason, "full?[2J");
        for n in 0..StopMark::LEN {
            let _ = StopMark::from_bytes(&long.to_bytes()[..n]);
        }
    }
}
