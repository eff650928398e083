//! Numbers of a checkpoint as bytes, and back.
//!
//! The bytes come from a file and are untrusted: [`Decoder`] checks every length against the remaining bytes and every
//! site number against the number of sites.

use heaptide_capture::wire::{Reader, push_varint, unzigzag, zigzag};

use crate::amount::Raw;

/// Larger counts are damage, because they could overflow when counting continues.
const MAX_COUNT: u64 = 1 << 60;

/// A growing buffer. Numbers are varints.
#[derive(Default)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn reserve(&mut self, n_bytes: usize) {
        self.bytes.reserve(n_bytes);
    }

    pub fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    #[inline]
    pub fn number(&mut self, value: u64) {
        push_varint(&mut self.bytes, value);
    }

    /// Writes a number as its difference from a known one.
    #[inline]
    pub fn difference(&mut self, value: u64, known: u64) {
        self.number(zigzag(value.wrapping_sub(known) as i64));
    }

    pub fn amount(&mut self, amount: Raw) {
        self.number(amount.bytes);
        self.number(amount.count);
        self.number(amount.variance);
    }
}

/// Reads the bytes of an [`Encoder`].
pub(crate) struct Decoder<'a> {
    input: Reader<'a>,
    len: usize,
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder {
            input: Reader::new(bytes),
            len: bytes.len(),
        }
    }

    pub fn is_at_end(&self) -> bool {
        self.input.is_at_end()
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.input.u8()
    }

    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        self.input.varint()
    }

    pub fn number32(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// Reads a count, which may be increased later.
    pub fn count(&mut self) -> Option<u64> {
        self.number().filter(|&count| count <= MAX_COUNT)
    }

    /// Reads the number of elements that follow, each of at least `least` bytes.
    pub fn length(&mut self, least: usize) -> Option<usize> {
        let length = usize::try_from(self.number()?).ok()?;
        let n_left = self.len.saturating_sub(self.input.position());
        (length <= n_left / least).then_some(length)
    }

    pub fn site(&mut self, n_sites: usize) -> Option<u32> {
        let site = self.number32()?;
        ((site as usize) < n_sites).then_some(site)
    }

    #[inline]
    pub fn difference(&mut self, known: u64) -> Option<u64> {
        Some(known.wrapping_add(unzigzag(self.number()?) as u64))
    }

    pub fn amount(&mut self) -> Option<Raw> {
        Some(Raw {
            bytes: self.number()?,
            count: self.number()?,
            variance: self.number()?,
        })
    }
}
