//! Texts and numbers in lines, for both formats.

use std::borrow::Cow;

const MIB: f64 = 1_048_576.0;

/// Escapes a text for use in a line: line feeds, and blanks unless `keep_blanks`.
pub fn escape(text: &str, keep_blanks: bool) -> Cow<'_, str> {
    let is_plain =
        |letter: char| letter != '\\' && !letter.is_control() && (keep_blanks || letter != ' ');
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            _ if is_plain(letter) => escaped.push(letter),
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\t' => escaped.push_str("\\t"),
            ' ' => escaped.push_str("\\s"),
            // Other control characters could affect a terminal.
            _ => escaped.push('?'),
        }
    }
    Cow::Owned(escaped)
}

pub fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            plain.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some('s') => plain.push(' '),
            Some(other) => plain.push(other),
            None => {}
        }
    }
    plain
}

/// Returns the note about lines that cannot be parsed.
pub fn invalid_lines(n_lines: usize) -> String {
    match n_lines {
        1 => "a line is invalid".to_owned(),
        n_lines => format!("{n_lines} lines are invalid"),
    }
}

/// Parses a finite time: files may contain `nan`, and curves must not.
pub fn seconds(text: &str) -> Option<f64> {
    text.parse()
        .ok()
        .filter(|time: &f64| time.is_finite() && time.abs() < 1e12)
}

pub fn bytes_of_mib(text: &str) -> Option<u64> {
    let mib: f64 = text.parse().ok()?;
    // No machine has more memory than this.
    (mib.is_finite() && (0.0..1e12).contains(&mib)).then(|| (mib * MIB).round() as u64)
}

pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

pub fn bytes_of_kib(text: &str) -> Option<u64> {
    text.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip_through_a_line() {
        for text in ["", "plain", "two words", "a\\b\nc\td", "ünïcode", "\\n"] {
            for keep_blanks in [true, false] {
                let line = escape(text, keep_blanks);
                assert!(
                    !line.contains('\n') && (keep_blanks || !line.contains(' ')),
                    "{line}"
                );
                assert_eq!(unescape(&line), text);
            }
        }
        assert_eq!(escape("\x1b[31m", true), "?[31m");
    }

    #[test]
    fn page_counts_are_exact_with_six_decimals_of_a_mebibyte() {
        for pages in [1u64, 3, 77, 12_345, 9_999_999] {
            let text = format!("{:.6}", mib(pages * 4096));
            assert_eq!(
                bytes_of_mib(&text).map(|bytes| (bytes + 2048) / 4096),
                Some(pages)
            );
        }
        for bad in ["nan", "-1", "inf", "x", "1e300"] {
            assert_eq!(bytes_of_mib(bad), None, "{bad}");
        }
    }
}
