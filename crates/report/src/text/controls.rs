//! Control characters: names in a capture are untrusted, and must not reach a terminal as commands.
//!
//! Every text that the command prints passes through here. Escapes have the form `\u001b`, which is also valid in the strings
//! of JSON. Only Heaptide's own colours stay, and only where they are expected.

use std::borrow::Cow;
use std::io::{self, Write};

use super::style::is_own_code;

/// No colour code of Heaptide is longer.
const MAX_CODE_LEN: usize = 5;

/// Whether a terminal would interpret the character instead of showing it, or show the rest of the line in another order.
pub fn is_interpreted(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        // Marks, embeddings, overrides and isolates that change the direction of text, and two line separators.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        other => other.is_control(),
    }
}

/// Escapes every character that a terminal would interpret, except line feeds and tabs.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_interpreted) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        push(&mut out, character);
    }
    Cow::Owned(out)
}

/// Escapes a text that must stay on one line: also line feeds.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    match escape(text) {
        text if text.contains('\n') => Cow::Owned(text.replace('\n', "\\n")),
        text => text,
    }
}

fn push(out: &mut String, character: char) {
    if is_interpreted(character) {
        // All interpreted characters have at most four digits.
        out.push_str(&format!("\\u{:04x}", character as u32));
    } else {
        out.push(character);
    }
}

/// A writer that escapes all text written to it. Bytes that are no UTF-8 become `\x9b`.
pub struct Escaping<W: Write> {
    out: W,
    has_colours: bool,
    /// The beginning of a character or of a colour code, whose end follows.
    pending: Vec<u8>,
}

impl<W: Write> Escaping<W> {
    /// With `has_colours`, Heaptide's own colour codes stay.
    pub fn new(out: W, has_colours: bool) -> Escaping<W> {
        Escaping {
            out,
            has_colours,
            pending: Vec::new(),
        }
    }

    /// Escapes `bytes`, and keeps an incomplete end unless it `is_last`.
    fn pass(&mut self, bytes: &[u8], is_last: bool) -> io::Result<()> {
        if self.pending.is_empty() {
            // The fast path, for almost all text.
            match std::str::from_utf8(bytes) {
                Ok(text) if !text.contains(is_interpreted) => return self.out.write_all(bytes),
                _ => {}
            }
        }
        let mut all = std::mem::take(&mut self.pending);
        all.extend_from_slice(bytes);
        let mut out = String::with_capacity(all.len());
        let mut rest: &[u8] = &all;
        while !rest.is_empty() {
            let (valid, invalid) = match std::str::from_utf8(rest) {
                Ok(text) => (text, None),
                Err(error) => {
                    let valid = &rest[..error.valid_up_to()];
                    (
                        std::str::from_utf8(valid).unwrap_or(""),
                        Some(error.error_len()),
                    )
                }
            };
            let n_done = self.pass_text(&mut out, valid, is_last || invalid.is_some());
            rest = &rest[n_done..];
            match invalid {
                _ if n_done < valid.len() => break,
                None => {}
                Some(None) if !is_last => break,
                Some(len) => {
                    let (bad, after) = rest.split_at(len.unwrap_or(rest.len()).min(rest.len()));
                    for byte in bad {
                        out.push_str(&format!("\\x{byte:02x}"));
                    }
                    rest = after;
                }
            }
        }
        self.pending = rest.to_owned();
        self.out.write_all(out.as_bytes())
    }

    /// Returns how many bytes of `text` are done: all, except for a colour code whose end may follow.
    fn pass_text(&self, out: &mut String, text: &str, is_whole: bool) -> usize {
        let mut at = 0;
        while let Some(character) = text[at..].chars().next() {
            let rest = &text[at..];
            if character == '\u{1b}' && self.has_colours {
                if let Some(len) = rest.find('m').map(|end| end + 1) {
                    if is_own_code(&rest[..len]) {
                        out.push_str(&rest[..len]);
                        at += len;
                        continue;
                    }
                } else if rest.len() < MAX_CODE_LEN && !is_whole {
                    return at;
                }
            }
            push(out, character);
            at += character.len_utf8();
        }
        at
    }
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pass(bytes, false)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass(&[], true)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Style;

    const HOSTILE: &str = "a\x1b]52;c;aGk=\x07b\x1b[2J\r\x7f\u{9b}31m\u{202e}é\tz\n";
    const SHOWN: &str = "a\\u001b]52;c;aGk=\\u0007b\\u001b[2J\\u000d\\u007f\\u009b31m\\u202eé\tz\n";

    fn passed(pieces: &[&[u8]], has_colours: bool) -> String {
        let mut out = Vec::new();
        let mut escaping = Escaping::new(&mut out, has_colours);
        for piece in pieces {
            escaping.write_all(piece).unwrap();
        }
        escaping.flush().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn characters_that_a_terminal_interprets_are_escaped() {
        assert_eq!(escape(HOSTILE), SHOWN);
        assert!(matches!(escape("plain é\t\n"), Cow::Borrowed(_)));
        assert_eq!(escape_line("a\x07b\nc"), "a\\u0007b\\nc");
        for has_colours in [false, true] {
            assert_eq!(passed(&[HOSTILE.as_bytes()], has_colours), SHOWN);
        }
    }

    #[test]
    fn pieces_of_any_length_give_the_same_text() {
        let text = format!(
            "{}{HOSTILE}{}",
            Style::Terminal.bold("x"),
            Style::Terminal.share(9.0, "y")
        );
        let whole = passed(&[text.as_bytes()], true);
        assert!(whole.starts_with("\x1b[1mx\x1b[0ma\\u001b"));
        assert!(whole.ends_with("\x1b[32my\x1b[0m"));
        for len in 1..8 {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(len).collect();
            assert_eq!(passed(&pieces, true), whole, "pieces of {len}");
        }
    }

    #[test]
    fn only_own_colours_stay_and_only_where_colours_are_expected() {
        let bold = Style::Terminal.bold("x");
        assert_eq!(passed(&[bold.as_bytes()], true), bold);
        assert_eq!(passed(&[bold.as_bytes()], false), "\\u001b[1mx\\u001b[0m");
        // Concealed text, a position, and an unfinished code.
        for code in ["\x1b[8m", "\x1b[2J", "\x1b[1;31m", "\x1b[1", "\x1b"] {
            assert!(
                !passed(&[code.as_bytes()], true).contains('\x1b'),
                "{code:?}"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_escaped() {
        assert_eq!(passed(&[b"a\x9bb\xc3"], true), "a\\x9bb\\xc3");
        assert_eq!(passed(&[b"\xff", b"\xc3", b"\xa9"], true), "\\xffé");
    }
}
