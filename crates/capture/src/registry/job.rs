//! Entries about jobs: begin, end, and how a job ended.

use crate::numbered::numbered;
use crate::wire::{Reader, Writer, push_varint};

/// Longer names, keys and lists of labels are cut, so that an entry fits into any slot.
pub const MAX_TEXT_BYTES: usize = 1024;
pub const MAX_LABELS_BYTES: usize = 4096;

/// A job began: from here on events may refer to it by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct JobBegan<'a> {
    /// From 1 on; unique in its process.
    pub number: u32,
    /// The number of the name, which all jobs of the same name share. 0 is the common number of all names beyond the first
    /// few thousand.
    pub name_number: u32,
    /// The enclosing job; 0 if there is none.
    pub parent: u32,
    /// Operating-system id of the thread in which it began.
    pub thread: u32,
    /// Clock units. A job that was already running when the recording started began earlier than the recording.
    pub time: u64,
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
    pub name: &'a [u8],
    /// `None` if the job has no key.
    pub key: Option<&'a [u8]>,
    /// Pairs of texts; see [`labels`].
    pub labels: &'a [u8],
}

/// A job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct JobEnded<'a> {
    pub number: u32,
    pub time: u64,
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
    pub outcome: Outcome,
    /// The type of the exception; empty if there was none.
    pub error: &'a [u8],
}

numbered! {
    /// How a job ended.
    #[derive(Default)]
    pub enum Outcome {
        /// It has not ended, or the recording stopped first.
        #[default]
        Running = 0,
        Ok = 1,
        Failed = 2,
        Skipped = 3,
        Deferred = 4,
        Retried = 5,
        /// Its process died while it ran.
        Killed = 6,
    }
}

impl Outcome {
    pub fn from_name(name: &str) -> Option<Outcome> {
        Outcome::ALL
            .into_iter()
            .find(|outcome| outcome.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Outcome::Running => "running",
            Outcome::Ok => "ok",
            Outcome::Failed => "failed",
            Outcome::Skipped => "skipped",
            Outcome::Deferred => "deferred",
            Outcome::Retried => "retried",
            Outcome::Killed => "killed",
        }
    }
}

/// Returns the labels of a job: keys and values.
pub fn labels(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut input = Reader::new(bytes);
    std::iter::from_fn(move || Some((input.text()?, input.text()?)))
}

/// Returns the bytes of [`JobBegan::labels`]. Labels that do not fit are left out.
pub fn labels_to_bytes<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in labels {
        let before = bytes.len();
        for text in [key, value] {
            let text = cut(text.as_bytes());
            push_varint(&mut bytes, text.len() as u64);
            bytes.extend_from_slice(text);
        }
        if bytes.len() > MAX_LABELS_BYTES {
            bytes.truncate(before);
            break;
        }
    }
    bytes
}

/// Cuts a text to the maximum length, between two characters.
pub fn cut(text: &[u8]) -> &[u8] {
    let mut len = text.len().min(MAX_TEXT_BYTES);
    // The bytes of a character after its first one have the form 10xxxxxx.
    while len < text.len() && len > 0 && text[len] & 0xc0 == 0x80 {
        len -= 1;
    }
    &text[..len]
}

impl<'a> JobBegan<'a> {
    pub fn max_bytes(&self) -> usize {
        96 + cut(self.name).len() + cut(self.key.unwrap_or_default()).len() + self.labels.len()
    }

    pub(super) fn write(&self, out: &mut Writer) {
        out.varint(self.number.into());
        out.varint(self.name_number.into());
        out.varint(self.parent.into());
        out.varint(self.thread.into());
        out.varint(self.time);
        out.varint(self.unix_ns);
        out.text(cut(self.name));
        out.u8(self.key.is_some().into());
        out.text(cut(self.key.unwrap_or_default()));
        out.text(self.labels);
    }

    pub(super) fn read(fields: &mut Reader<'a>) -> Option<JobBegan<'a>> {
        let number = u32::try_from(fields.varint()?).ok()?;
        let name_number = u32::try_from(fields.varint()?).ok()?;
        let parent = u32::try_from(fields.varint()?).ok()?;
        let thread = u32::try_from(fields.varint()?).ok()?;
        let (time, unix_ns) = (fields.varint()?, fields.varint()?);
        let name = fields.text()?;
        let has_key = fields.u8()? != 0;
        let key = fields.text()?;
        Some(JobBegan {
            number,
            name_number,
            parent,
            thread,
            time,
            unix_ns,
            name,
            key: has_key.then_some(key),
            labels: fields.text()?,
        })
    }
}

impl<'a> JobEnded<'a> {
    pub fn max_bytes(&self) -> usize {
        64 + cut(self.error).len()
    }

    pub(super) fn write(&self, out: &mut Writer) {
        out.varint(self.number.into());
        out.varint(self.time);
        out.varint(self.unix_ns);
        out.u8(self.outcome as u8);
        out.text(cut(self.error));
    }

    pub(super) fn read(fields: &mut Reader<'a>) -> Option<JobEnded<'a>> {
        Some(JobEnded {
            number: u32::try_from(fields.varint()?).ok()?,
            time: fields.varint()?,
            unix_ns: fields.varint()?,
            // An outcome of a later release: the job has ended, and nothing else is known.
            outcome: Outcome::from_number(fields.u8()?).unwrap_or(Outcome::Ok),
            error: fields.text()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_round_trip_and_long_texts_are_cut_between_characters() {
        let long = "ä".repeat(2000);
        let bytes = labels_to_bytes([("queue", "mail"), ("note", &long)].into_iter());
        let read: Vec<(&[u8], &[u8])> = labels(&bytes).collect();
        assert_eq!(read[0], (&b"queue"[..], &b"mail"[..]));
        assert_eq!(read[1].1.len(), MAX_TEXT_BYTES);
        assert!(std::str::from_utf8(cut(format!("x{long}").as_bytes())).is_ok());
        let many: Vec<String> = (0..100).map(|n| format!("{n}{long}")).collect();
        let bytes = labels_to_bytes(many.iter().map(|text| ("k", text.as_str())));
        assert!(bytes.len() <= MAX_LABELS_BYTES);
        assert!(labels(&bytes).count() >= 3);
    }

    #[test]
    fn outcomes_have_distinct_names_and_their_numbers() {
        for (number, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(Outcome::from_number(number as u8), Some(outcome));
            assert_eq!(Outcome::from_name(outcome.name()), Some(outcome));
        }
        assert_eq!(Outcome::from_number(7), None);
    }
}
