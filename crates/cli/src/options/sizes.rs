//! Parses sizes on the command line: `512k`, `1MiB`, `2.5M`, `4096`.

/// Returns the bytes of a size. `k`, `M` and `G`, with or without `iB`, are powers of 1024; `kB`, `MB` and `GB` powers
/// of 1000.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "ki" | "kib" => 1024.0,
        "m" | "mi" | "mib" => 1024.0 * 1024.0,
        "g" | "gi" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        _ => {
            return Err("must be a number followed by k, M or G, for example 512k or 1MiB".into());
        }
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| "must start with a number, for example 512k or 1MiB")?;
    let bytes = (number * factor).round();
    if (1.0..=(1u64 << 50) as f64).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err("must be between one byte and one pebibyte".into())
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_parsed_with_their_units() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("512k"), Ok(524_288));
        assert_eq!(parse("1MiB"), Ok(1 << 20));
        assert_eq!(parse("1.5M"), Ok(3 << 19));
        assert_eq!(parse("2kB"), Ok(2_000));
        assert_eq!(parse("1g"), Ok(1 << 30));
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in ["", "k", "0", "-1", "5 k", "1e9x", "inf", "nan", "99999999g"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
