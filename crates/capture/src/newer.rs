//! Files of a later format: the message that names the version of Heaptide that can read them.
//!
//! Captures and heap snapshots of every version begin with a magic number, the version of the format, the length of the
//! fields, their checksum and the fields. The field [`WRITTEN_BY`] has the same tag in both and in every version.

use std::fmt;

use crate::wire::Reader;

/// The tag of the field that holds the version of Heaptide that wrote the file.
pub const WRITTEN_BY: u64 = 21;

/// The version of this Heaptide.
pub const THIS_VERSION: &str = env!("CARGO_PKG_VERSION");

/// A file in a format that this version cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewerFormat {
    pub format: u32,
    /// The version of Heaptide that wrote it; `None` if it is not in the header.
    pub written_by: Option<String>,
}

impl NewerFormat {
    /// Takes the version from the fields of a header. Other fields of a later format may mean anything.
    pub fn new(format: u32, fields: &[u8]) -> NewerFormat {
        NewerFormat {
            format,
            written_by: written_by(fields),
        }
    }
}

/// Returns whether a later version than this one wrote a file with these header fields.
pub fn is_by_later_version(fields: &[u8]) -> bool {
    written_by(fields).is_some_and(|version| numbers(&version) > numbers(THIS_VERSION))
}

fn numbers(version: &str) -> Vec<u32> {
    let parts = version.split(|letter: char| !letter.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

fn written_by(fields: &[u8]) -> Option<String> {
    let mut input = Reader::new(fields);
    while !input.is_at_end() {
        let (tag, value) = (input.varint()?, input.text()?);
        // The value is printed, so only the characters of version numbers are allowed.
        let is_version = |byte: &u8| byte.is_ascii_alphanumeric() || b".+-".contains(byte);
        if tag == WRITTEN_BY && (1..=40).contains(&value.len()) && value.iter().all(is_version) {
            return Some(String::from_utf8_lossy(value).into_owned());
        }
    }
    None
}

impl fmt::Display for NewerFormat {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let format = self.format;
        match &self.written_by {
            Some(version) => write!(
                out,
                "was written by Heaptide {version} in format {format}, which Heaptide {THIS_VERSION} cannot read: install \
                 Heaptide {version} or later"
            ),
            None => write!(
                out,
                "was written by a later Heaptide in format {format}, which Heaptide {THIS_VERSION} cannot read: install the \
                 newest Heaptide"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (later, earlier) in [
            ("0.2.0", "0.1.9"),
            ("0.10.0", "0.9.3"),
            ("1.0", "0.9"),
            ("0.1.0rc2", "0.1.0rc1"),
        ] {
            assert!(numbers(later) > numbers(earlier), "{later} {earlier}");
        }
    }
}
