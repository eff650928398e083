//! memray's encoding: numbers with seven bits per byte, lowest first; signed numbers in zigzag; texts end with a zero.

use heaptide_capture::wire::unzigzag;

/// Reads bytes. Every function returns `None` if they end too early.
#[derive(Clone)]
pub struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Bytes { rest: bytes }
    }

    pub fn n_left(&self) -> usize {
        self.rest.len()
    }

    #[inline(always)]
    pub fn u8(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Reads a number. No valid number has more than ten bytes; of further bytes only the lowest bit counts, as bit 63.
    #[inline(always)]
    pub fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift = (shift + 7).min(63);
        }
    }

    #[inline(always)]
    pub fn signed(&mut self) -> Option<i64> {
        self.number().map(unzigzag)
    }

    pub fn raw(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    pub fn u32(&mut self) -> Option<u32> {
        let bytes = self.raw(4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    pub fn u64(&mut self) -> Option<u64> {
        let bytes = self.raw(8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    pub fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.rest.iter().position(|&byte| byte == 0)?;
        let text = self.raw(len)?;
        self.u8()?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_read_as_memray_writes_them() {
        let mut bytes = Bytes::new(b"\xda\x02\xd7\x01run\0\x07");
        assert_eq!(bytes.signed(), Some(173));
        assert_eq!(bytes.signed(), Some(-108));
        assert_eq!(bytes.text(), Some(&b"run"[..]));
        assert_eq!(bytes.u32(), None);
        assert_eq!(bytes.u8(), Some(7));
        assert_eq!(bytes.number(), None);
    }

    #[test]
    fn number_without_end_is_refused() {
        assert_eq!(Bytes::new(&[0xff; 30]).number(), None);
        assert_eq!(Bytes::new(&[0x80; 30]).number(), None);
    }
}
