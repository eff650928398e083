//! Reasons of failed system calls in messages.
//!
//! Rust's [`std::io::Error`] appends the number of the error: `No such file or directory (os error 2)`. Messages for users
//! contain only the reason.

const BEFORE: &str = " (os error ";

/// Removes the numbers of the operating system's errors from a message.
pub fn without_error_numbers(message: &str) -> String {
    let mut kept = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(BEFORE) {
        kept.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        rest = match after.get(digits..).and_then(|rest| rest.strip_prefix(')')) {
            Some(rest) if digits > 0 => rest,
            _ => {
                kept.push_str(BEFORE);
                after
            }
        };
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_numbers_of_errors_are_removed() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(
            without_error_numbers(&format!("cannot read x ({error}): check ({error})")),
            "cannot read x (No such file or directory): check (No such file or directory)"
        );
        for other in [
            "",
            "a (os error )",
            "a (os error 2",
            "é (os error x)",
            "(os error 2)",
        ] {
            assert_eq!(without_error_numbers(other), other);
        }
    }
}
