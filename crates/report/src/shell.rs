//! Words of a command line as a shell would read them back.

/// One word, in quotes where a shell would otherwise take it apart.
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
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
    fn words_that_a_shell_would_take_apart_are_quoted() {
        let words = ["job.py", "--name=x", "b c", "", "it's"].map(String::from);
        assert_eq!(command_line(&words), r"job.py --name=x 'b c' '' 'it'\''s'");
    }
}
