//! Escapes text for SVG and HTML, and fills page templates.

use std::io::{self, Write};

/// Escapes a text for XML. Line breaks stay.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            // Not allowed in XML.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter if letter.is_control() => out.push('\u{fffd}'),
            // Would change the direction of the text that follows, beyond this element.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            letter => out.push(letter),
        }
    }
    out
}

/// Writes a template with its placeholders replaced, in their order. Inserted contents are not searched for placeholders.
pub fn fill(out: &mut dyn Write, page: &str, contents: &[(&str, &str)]) -> io::Result<()> {
    let mut rest = page;
    for (placeholder, content) in contents {
        let (before, after) = rest.split_once(placeholder).ok_or_else(|| {
            io::Error::other(format!(
                "the page of this build has no placeholder {placeholder}"
            ))
        })?;
        out.write_all(before.as_bytes())?;
        out.write_all(content.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_contents_are_not_searched_for_placeholders() {
        let mut out = Vec::new();
        fill(&mut out, "<ONE|TWO>", &[("ONE", "TWO"), ("TWO", "ONE")]).unwrap();
        assert_eq!(out, b"<TWO|ONE>");
        assert!(fill(&mut out, "ONE", &[("TWO", "")]).is_err());
    }

    #[test]
    fn text_cannot_become_markup_or_reverse_the_text_after_it() {
        assert_eq!(
            escaped("a<b>&\"c\"\u{0}\u{202e}d"),
            "a&lt;b&gt;&amp;&quot;c&quot;\u{fffd}d"
        );
    }
}
