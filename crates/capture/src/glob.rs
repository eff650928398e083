//! Patterns with `*` for any text and `?` for any character: one implementation for filters and for redaction.

/// Returns whether the whole text fits the pattern. Takes at most `pattern × text` steps.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // The position after the last star, and the position in the text at which to try the rest of the pattern next.
    let mut retry = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                p += 1;
                retry = Some((p, t));
            }
            Some(&wanted) if wanted == '?' || wanted == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((after_star, from)) = retry else {
                    return false;
                };
                retry = Some((after_star, from + 1));
                (p, t) = (after_star, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|&rest| rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_text_and_question_marks_one_character() {
        for (pattern, text, fits) in [
            ("*password*", "db_password_2", true),
            ("*password*", "passwort", false),
            ("k?y", "key", true),
            ("k?y", "ky", false),
            ("*", "", true),
            ("a*b*c", "a--b--b-c", true),
            ("a*b*c", "a--b--b-", false),
            ("plain", "plain", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
