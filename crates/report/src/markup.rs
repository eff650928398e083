//! Escapes text for SVG.

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
            // XML does not allow these characters.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter if letter.is_control() => out.push('\u{fffd}'),
            // These characters would change the direction of the text that follows, beyond this element.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup_or_reverse_the_text_after_it() {
        assert_eq!(
            escaped("a<b>&\"c\"\u{0}\u{202e}d"),
            "a&lt;b&gt;&amp;&quot;c&quot;\u{fffd}d"
        );
    }
}
