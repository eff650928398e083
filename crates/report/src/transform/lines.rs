//! JSON with one element a line: short enough for millions of elements, and still fit for `grep` and `diff`.

use std::io::{self, Write};

use crate::json::{Json, write_text};

/// Writes a value without any blank.
pub fn value(out: &mut dyn Write, value: &Json) -> io::Result<()> {
    match value {
        Json::Text(text) => write_text(out, text),
        Json::Array(values) => {
            out.write_all(b"[")?;
            for (at, element) in values.iter().enumerate() {
                comma(out, at)?;
                self::value(out, element)?;
            }
            out.write_all(b"]")
        }
        Json::Object(members) => {
            out.write_all(b"{")?;
            for (at, (key, member)) in members.iter().enumerate() {
                comma(out, at)?;
                write_text(out, key)?;
                out.write_all(b":")?;
                self::value(out, member)?;
            }
            out.write_all(b"}")
        }
        Json::Null => out.write_all(b"null"),
        Json::Bool(value) => write!(out, "{value}"),
        Json::Number(number) => write!(out, "{number}"),
        Json::Signed(number) => write!(out, "{number}"),
        Json::Fraction(number) if number.is_finite() => write!(out, "{number}"),
        Json::Fraction(_) => out.write_all(b"null"),
    }
}

/// Writes an array, each element on a line of its own. They are made one after the other and never are all in memory.
pub fn array(out: &mut dyn Write, elements: impl Iterator<Item = Json>) -> io::Result<()> {
    out.write_all(b"[")?;
    for (at, element) in elements.enumerate() {
        comma(out, at)?;
        out.write_all(b"\n")?;
        value(out, &element)?;
    }
    out.write_all(b"\n]")
}

fn comma(out: &mut dyn Write, n_before: usize) -> io::Result<()> {
    if n_before > 0 {
        out.write_all(b",")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_stand_on_lines_of_their_own_without_blanks() {
        let element = Json::Object(vec![
            ("name", "a \"b\"\n".into()),
            ("n", Json::Array(vec![1u64.into(), Json::Fraction(1.5)])),
            ("x", Json::Fraction(f64::INFINITY)),
        ]);
        let mut out = Vec::new();
        array(&mut out, [element, true.into()].into_iter()).expect("a vector takes everything");
        let expected = "[\n{\"name\":\"a \\\"b\\\"\\n\",\"n\":[1,1.5],\"x\":null},\ntrue\n]";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
