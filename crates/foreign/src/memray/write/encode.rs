//! memray's encoding of numbers and texts; `super::super::bytes` reads it.

use heaptide_capture::wire::{push_varint, zigzag};

#[derive(Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// Returns the bytes so far and leaves none.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all bytes and keeps the capacity.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    pub fn number(&mut self, value: u64) {
        push_varint(&mut self.bytes, value);
    }

    pub fn signed(&mut self, value: i64) {
        self.number(zigzag(value));
    }

    /// Writes a text up to its first zero, which would end it.
    pub fn text(&mut self, text: &str) {
        let text = text.split('\0').next().unwrap_or_default();
        self.raw(text.as_bytes());
        self.u8(0);
    }

    /// Writes texts and an empty one, which ends the list.
    pub fn texts<'a>(&mut self, texts: impl Iterator<Item = &'a String>) {
        for text in texts.filter(|text| !text.is_empty() && !text.starts_with('\0')) {
            self.text(text);
        }
        self.u8(0);
    }

    /// Sets the thread of the records that follow.
    pub fn thread(&mut self, number: u64) {
        self.u8(0x0c);
        self.u64(number);
    }
}
