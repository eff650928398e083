//! Whole numbers as bytes: LEB128 variable-length integers, zigzag for signed differences, and little-endian words.
//!
//! Writing happens inside the profiled program, so the writers neither allocate nor fail. The caller guarantees
//! `MAX_VARINT_BYTES` of room per number; without room the number is truncated. Reading happens on untrusted bytes, so
//! every reader returns `None` at the end of the input.

/// The longest encoding of a `u64`: nine groups of seven bits, and one bit.
pub const MAX_VARINT_BYTES: usize = 10;

/// Writes numbers and bytes into a buffer.
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Writer { bytes, at: 0 }
    }

    /// Bytes written so far.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.at
    }

    pub fn is_empty(&self) -> bool {
        self.at == 0
    }

    #[inline(always)]
    pub fn u8(&mut self, value: u8) {
        if let Some(byte) = self.bytes.get_mut(self.at) {
            *byte = value;
            self.at += 1;
        }
    }

    #[inline(always)]
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8);
    }

    #[inline(always)]
    pub fn signed(&mut self, value: i64) {
        self.varint(zigzag(value));
    }

    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    /// Writes a length and that many bytes. A text that does not fit is cut, and its length is that of the cut text.
    pub fn text(&mut self, bytes: &[u8]) {
        let room = self.bytes.len().saturating_sub(self.at + MAX_VARINT_BYTES);
        let bytes = &bytes[..bytes.len().min(room)];
        self.varint(bytes.len() as u64);
        self.raw(bytes);
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.at..self.at + bytes.len()) {
            room.copy_from_slice(bytes);
            self.at += bytes.len();
        }
    }
}

/// Reads numbers and bytes from a buffer. Clone it to remember a position.
#[derive(Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    #[inline(always)]
    pub fn position(&self) -> usize {
        self.at
    }

    #[inline(always)]
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    #[inline(always)]
    pub fn u8(&mut self) -> Option<u8> {
        let value = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(value)
    }

    #[inline(always)]
    pub fn varint(&mut self) -> Option<u64> {
        let first = self.u8()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    #[inline(always)]
    pub fn signed(&mut self) -> Option<i64> {
        self.varint().map(unzigzag)
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.raw(4)?.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.raw(8)?.try_into().ok()?))
    }

    pub fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.raw(len)
    }

    pub fn raw(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }
}

/// Appends a varint to a growing buffer.
#[inline]
pub fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[inline(always)]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline(always)]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Returns a 64-bit checksum of `bytes`. It detects cut and overwritten data, not forgery. It takes eight bytes per step,
/// because the profiled program computes it over the whole capture.
pub fn checksum(bytes: &[u8]) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut sum = MIX ^ bytes.len() as u64;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().unwrap_or([0; 8]));
        sum = (sum ^ word).wrapping_mul(MIX).rotate_left(29);
    }
    let mut rest = [0u8; 8];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    sum = (sum ^ u64::from_le_bytes(rest)).wrapping_mul(MIX);
    sum ^ (sum >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_round_trip(unsigned: u64, signed: i64) {
            let mut bytes = [0; 2 * MAX_VARINT_BYTES];
            let mut writer = Writer::new(&mut bytes);
            writer.varint(unsigned);
            writer.signed(signed);
            let len = writer.len();
            let mut reader = Reader::new(&bytes[..len]);
            prop_assert_eq!(reader.varint(), Some(unsigned));
            prop_assert_eq!(reader.signed(), Some(signed));
            prop_assert!(reader.is_at_end());
        }

        #[test]
        fn any_changed_byte_changes_the_checksum(mut bytes in prop::collection::vec(any::<u8>(), 1..200), at: prop::sample::Index, flip in 1u8..) {
            let before = checksum(&bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert_ne!(before, checksum(&bytes));
        }
    }

    #[test]
    fn number_longer_than_ten_bytes_is_refused() {
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
    }

    #[test]
    fn writer_without_room_does_not_panic() {
        let mut bytes = [0; 3];
        let mut writer = Writer::new(&mut bytes);
        writer.varint(u64::MAX);
        writer.text(b"does not fit");
        assert_eq!(writer.len(), 3);
    }
}
