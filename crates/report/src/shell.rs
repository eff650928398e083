//! Quotes command lines for a shell.

/// One word, in quotes if a shell would otherwise split or expand it.
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if word.contains('\n') {
        // The form of bash and zsh that keeps the word on one line.
        let word = word.replace('\\', "\\\\").replace('\'', "\\'");
        return format!("$'{}'", word.replace('\n', "\\n"));
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A whole command line.
pub fn command_line(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_shell_would_split_are_quoted() {
        let words = ["job.py", "--name=x", "b c", "", "it's"].map(String::from);
        assert_eq!(command_line(&words), r"job.py --name=x 'b c' '' 'it'\''s'");
        assert_eq!(quote("two\nlines \\ it's"), r"$'two\nlines \\ it\'s'");
    }
}
