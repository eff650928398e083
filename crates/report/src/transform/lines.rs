//! JSON with one array element per line: compact enough for millions of elements, and still usable with `grep` and `diff`.

use std::io::{self, Write};

use serde_json::Value;

/// Writes a value without blanks.
pub fn value(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    Ok(serde_json::to_writer(out, value)?)
}

/// Writes an array, each element on its own line. Only one element is in memory at a time.
pub fn array(out: &mut dyn Write, elements: impl Iterator<Item = Value>) -> io::Result<()> {
    array_with(out, elements, |out, element| value(out, &element))
}

/// Writes an array. Calls `write` for each element.
pub fn array_with<T>(
    out: &mut dyn Write,
    elements: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut dyn Write, T) -> io::Result<()>,
) -> io::Result<()> {
    out.write_all(b"[")?;
    for (at, element) in elements.enumerate() {
        out.write_all(if at > 0 { b",\n" } else { b"\n" })?;
        write(out, element)?;
    }
    out.write_all(b"\n]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_element_is_one_line_without_blanks() {
        let element = json!({ "name": "a \"b\"\n", "n": [1, 1.5], "x": f64::INFINITY });
        let mut out = Vec::new();
        array(&mut out, [element, true.into()].into_iter()).expect("writing to a vector succeeds");
        let expected = "[\n{\"name\":\"a \\\"b\\\"\\n\",\"n\":[1,1.5],\"x\":null},\ntrue\n]";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
