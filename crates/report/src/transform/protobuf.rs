//! The part of the protocol-buffer encoding that a profile needs: numbers, texts, nested messages.

use heaptide_capture::wire::push_varint;

/// A message that is being written. Single numbers that are 0 are left out: readers take missing numbers as 0.
#[derive(Default)]
pub struct Message {
    bytes: Vec<u8>,
}

const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

impl Message {
    pub fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(field) << 3 | VARINT);
            self.varint(value);
        }
    }

    /// A text or an element of a repeated field, written even if it is empty.
    pub fn element(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.element(field, &inner.bytes);
    }

    /// A repeated number, packed.
    pub fn numbers(&mut self, field: u32, values: impl Iterator<Item = u64>) {
        self.message(field, |inner| values.for_each(|value| inner.varint(value)));
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn varint(&mut self, value: u64) {
        push_varint(&mut self.bytes, value);
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn fields_are_encoded_as_the_specification_shows_them() {
        // Examples from the documentation of the encoding.
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.bytes(), [0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.element(2, b"testing");
        assert_eq!(message.bytes(), b"\x12\x07testing");
        let mut message = Message::default();
        message.message(3, |inner| inner.number(1, 150));
        assert_eq!(message.bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.numbers(6, [3, 270, 86942].into_iter());
        assert_eq!(
            message.bytes(),
            [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]
        );
    }

    #[test]
    fn zero_is_omitted_as_a_single_number_and_kept_in_a_list() {
        let mut message = Message::default();
        message.number(1, 0);
        assert_eq!(message.bytes(), [0u8; 0]);
        message.numbers(2, [0, 1].into_iter());
        assert_eq!(message.bytes(), [0x12, 0x02, 0x00, 0x01]);
    }
}
