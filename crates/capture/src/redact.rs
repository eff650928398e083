//! Redaction: hides parts of a command line, and texts that must never be stored.
//!
//! A pattern has `*` for any text and `?` for one character; case does not matter.

use crate::glob;

/// Replaces a value or a key that must not be shown.
pub const REDACTED: &str = "<redacted>";
/// A cut text that ends with fewer characters of a secret is not hidden.
const MIN_SECRET_PART: usize = 4;

/// Patterns, in lower case, and secrets.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    patterns: Vec<String>,
    /// Texts that are hidden wherever they occur: Heaptide's own tokens.
    secrets: Vec<String>,
}

impl Redaction {
    pub fn new(patterns: &[String], secrets: &[String]) -> Redaction {
        let non_empty = |texts: &[String]| -> Vec<String> {
            let texts = texts.iter().filter(|text| !text.is_empty());
            texts.cloned().collect()
        };
        Redaction {
            patterns: non_empty(patterns)
                .iter()
                .map(|text| text.to_lowercase())
                .collect(),
            secrets: non_empty(secrets),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty() && self.secrets.is_empty()
    }

    /// Whether a pattern matches the whole text.
    pub fn matches(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.patterns
            .iter()
            .any(|pattern| glob::matches(pattern, &text))
    }

    /// Whether a secret occurs in the text, or begins at the end of a text that was cut.
    pub fn has_secret(&self, text: &str, is_cut: bool) -> bool {
        self.secrets.iter().any(|secret| {
            text.contains(secret.as_str())
                || is_cut
                    && secret
                        .char_indices()
                        .skip(MIN_SECRET_PART)
                        .any(|(end, _)| text.ends_with(&secret[..end]))
        })
    }

    /// Returns the words of a command line with secret values hidden.
    ///
    /// Of `name=value` only the value is hidden. If an option without `=` matches, the next word is its value.
    pub fn command(&self, words: Vec<String>) -> Vec<String> {
        let mut is_value = false;
        let redacted = words.into_iter().map(|word| {
            let is_option = word.starts_with('-');
            if std::mem::take(&mut is_value) && !is_option {
                return REDACTED.to_owned();
            }
            match word.split_once('=') {
                Some((name, value))
                    if self.matches(name) || self.hides(value) || self.hides(&word) =>
                {
                    if self.has_secret(name, false) {
                        return REDACTED.to_owned();
                    }
                    format!("{name}={REDACTED}")
                }
                None if self.hides(&word) => {
                    is_value = is_option;
                    // After `--password` only the next word is secret, but `-psecret` contains option and value.
                    if word.starts_with("--") && !self.has_secret(&word, false) {
                        word
                    } else {
                        REDACTED.to_owned()
                    }
                }
                _ => word,
            }
        });
        redacted.collect()
    }

    fn hides(&self, text: &str) -> bool {
        self.matches(text) || self.has_secret(text, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(patterns: &[&str], secrets: &[&str], command: &str) -> String {
        let texts = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        let redaction = Redaction::new(&texts(patterns), &texts(secrets));
        let words = command.split(' ').map(str::to_owned).collect();
        redaction.command(words).join(" ")
    }

    #[test]
    fn values_of_matching_options_are_hidden_in_a_command_line() {
        for (pattern, command, shown) in [
            (
                "*secret*",
                "job.py --password=ARGSECRET x",
                "job.py --password=<redacted> x",
            ),
            (
                "*password*",
                "job.py --password=hunter2 x",
                "job.py --password=<redacted> x",
            ),
            (
                "*password*",
                "job.py --password hunter2 x",
                "job.py --password <redacted> x",
            ),
            (
                "*password*",
                "job.py --password --verbose x",
                "job.py --password --verbose x",
            ),
            (
                "*pw*",
                "job.py postgres://me:pw@host -v",
                "job.py <redacted> -v",
            ),
            ("*pw*", "job.py -pPW -v", "job.py <redacted> -v"),
            ("db_*", "DB_KEY=1 job.py", "DB_KEY=<redacted> job.py"),
            ("*other*", "job.py --password=x", "job.py --password=x"),
        ] {
            assert_eq!(redacted(&[pattern], &[], command), shown, "{pattern}");
        }
    }

    #[test]
    fn secret_is_hidden_wherever_it_occurs() {
        for (command, shown) in [
            ("job.py --token t0ken x", "job.py --token <redacted> x"),
            ("job.py --header=Bearer:t0ken", "job.py --header=<redacted>"),
            ("job.py --t0ken=x", "job.py <redacted>"),
            ("job.py T0KEN", "job.py T0KEN"),
        ] {
            assert_eq!(redacted(&[], &["t0ken", ""], command), shown);
        }
        let redaction = Redaction::new(&[], &["0123456789".to_owned()]);
        assert!(redaction.has_secret("Bearer 01234", true));
        assert!(!redaction.has_secret("Bearer 01234", false));
        assert!(!redaction.has_secret("number 012", true));
    }
}
