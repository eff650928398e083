//! JSON as a value, and its text: keys keep their order, two spaces a level, one element a line.

use std::io::{self, Write};

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(u64),
    Signed(i64),
    Fraction(f64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl From<u64> for Json {
    fn from(number: u64) -> Json {
        Json::Number(number)
    }
}

impl From<u32> for Json {
    fn from(number: u32) -> Json {
        Json::Number(number.into())
    }
}

impl From<i64> for Json {
    fn from(number: i64) -> Json {
        Json::Signed(number)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Json {
        Json::Bool(value)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Json {
        Json::Text(text)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

impl FromIterator<Json> for Json {
    fn from_iter<I: IntoIterator<Item = Json>>(values: I) -> Json {
        Json::Array(values.into_iter().collect())
    }
}

impl Json {
    /// Writes the value and a line end.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_at(out, 0)?;
        out.write_all(b"\n")
    }

    fn write_at(&self, out: &mut dyn Write, depth: usize) -> io::Result<()> {
        match self {
            Json::Null => out.write_all(b"null"),
            Json::Bool(value) => write!(out, "{value}"),
            Json::Number(number) => write!(out, "{number}"),
            Json::Signed(number) => write!(out, "{number}"),
            // JSON has no word for what is not a number.
            Json::Fraction(number) if !number.is_finite() => out.write_all(b"null"),
            Json::Fraction(number) => write!(out, "{number}"),
            Json::Text(text) => write_text(out, text),
            Json::Array(values) if values.is_empty() => out.write_all(b"[]"),
            Json::Array(values) => {
                out.write_all(b"[")?;
                for (at, value) in values.iter().enumerate() {
                    start_line(out, at, depth + 1)?;
                    value.write_at(out, depth + 1)?;
                }
                start_line(out, 0, depth)?;
                out.write_all(b"]")
            }
            Json::Object(members) if members.is_empty() => out.write_all(b"{}"),
            Json::Object(members) => {
                out.write_all(b"{")?;
                for (at, (key, value)) in members.iter().enumerate() {
                    start_line(out, at, depth + 1)?;
                    write_text(out, key)?;
                    out.write_all(b": ")?;
                    value.write_at(out, depth + 1)?;
                }
                start_line(out, 0, depth)?;
                out.write_all(b"}")
            }
        }
    }
}

fn start_line(out: &mut dyn Write, n_before: usize, depth: usize) -> io::Result<()> {
    let comma = if n_before > 0 { "," } else { "" };
    write!(out, "{comma}\n{:width$}", "", width = 2 * depth)
}

pub(crate) fn write_text(out: &mut dyn Write, text: &str) -> io::Result<()> {
    out.write_all(b"\"")?;
    for character in text.chars() {
        match character {
            '"' => out.write_all(b"\\\"")?,
            '\\' => out.write_all(b"\\\\")?,
            '\n' => out.write_all(b"\\n")?,
            '\r' => out.write_all(b"\\r")?,
            '\t' => out.write_all(b"\\t")?,
            control if control < ' ' || control == '\x7f' => {
                write!(out, "\\u{:04x}", control as u32)?
            }
            other => write!(out, "{other}")?,
        }
    }
    out.write_all(b"\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_with_two_spaces_a_level_and_escaped_texts() {
        let value = Json::Object(vec![
            ("a", Json::Array(vec![1u64.into(), true.into(), Json::Null])),
            ("b", Json::Object(vec![])),
            ("c", "say \"é\"\\\n\u{1}".into()),
            ("d", Json::Fraction(0.5)),
            ("e", Json::Fraction(f64::NAN)),
        ]);
        let mut out = Vec::new();
        value.write(&mut out).expect("a vector takes everything");
        let expected = r#"{
  "a": [
    1,
    true,
    null
  ],
  "b": {},
  "c": "say \"é\"\\\n\u0001",
  "d": 0.5,
  "e": null
}
"#;
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
