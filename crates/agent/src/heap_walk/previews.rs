//! Previews: short texts of the values of objects, and their redaction. Made only on request, because values are the
//! program's data, and users share snapshots.

use heaptide_capture::heap::{EdgeType, HeapSnapshot};
use heaptide_capture::redact::{REDACTED, Redaction};

use super::reader::Reader;
use crate::cpython::offsets::object;
use crate::cpython::references::Object;

/// Longer texts are cut.
const MAX_PREVIEW: usize = 60;
/// Marks a text that was cut.
const CUT: char = '…';

/// Returns a string or an `int` in Python's notation; `None` for other objects.
pub fn preview(reader: &Reader, object: Object) -> Option<String> {
    let type_ = reader.type_of(object);
    if type_ == reader.known.unicode {
        let mut buffer = [0; MAX_PREVIEW];
        let (text, cut) = reader.text(object, &mut buffer)?;
        let text = text.escape_debug();
        return Some(if cut {
            format!("'{text}{CUT}'")
        } else {
            format!("'{text}'")
        });
    }
    if type_ == reader.known.long {
        // SAFETY: an `int` has its length here.
        let size = unsafe { reader.size(object) };
        let (n_digits, negative) = if reader.heap.tagged_numbers {
            (size >> 3, size & 3 == 2)
        } else {
            ((size as isize).unsigned_abs(), (size as isize) < 0)
        };
        if n_digits > 4 {
            return None;
        }
        let value = (0..n_digits).rev().fold(0_u128, |value, number| {
            // SAFETY: an `int` has this many digits.
            let digit = unsafe { reader.half(object, object::LONG_DIGITS + number * 4) };
            value << 30 | u128::from(digit)
        });
        let sign = if negative { "-" } else { "" };
        return Some(format!("{sign}{value}"));
    }
    None
}

/// Redacts values whose text matches one of the patterns, values under a name that matches, and dict keys that match. A
/// secret is redacted in values and keys wherever it occurs.
pub fn redact(snapshot: &mut HeapSnapshot, redaction: &Redaction) {
    if redaction.is_empty() {
        return;
    }
    let hides = |text: &str| redaction.matches(text) || has_secret(redaction, text);
    let hidden_names: Vec<bool> = snapshot.names.iter().map(hides).collect();
    let is_hidden = |number: u32| hidden_names.get(number as usize) == Some(&true);
    let mut hidden_objects = vec![false; snapshot.objects.len()];
    let mut key_names = vec![false; hidden_names.len()];
    let mut last_key = None;
    for (target, label) in snapshot.edges.targets.iter().zip(&snapshot.edges.labels) {
        if label.edge_type() == EdgeType::KeyOf {
            last_key = Some(*target);
        } else if label.edge_type().has_name() && is_hidden(label.number()) {
            let key = last_key.filter(|_| label.edge_type() == EdgeType::Key);
            for object in [Some(*target), key].into_iter().flatten() {
                if let Some(hidden) = hidden_objects.get_mut(object as usize) {
                    *hidden = true;
                }
            }
            if label.edge_type() == EdgeType::Key {
                if let Some(hidden) = key_names.get_mut(label.number() as usize) {
                    *hidden = true;
                }
            }
        }
    }
    for value in &mut snapshot.values {
        if hidden_objects.get(value.object as usize) == Some(&true) || hides(&value.text) {
            value.text = REDACTED.to_owned();
        }
    }
    let mut names = heaptide_capture::heap::Names::default();
    for (number, name) in snapshot.names.iter().enumerate().skip(1) {
        names.push(if key_names[number] { REDACTED } else { name });
    }
    snapshot.names = names;
}

/// Whether a preview or a key contains a secret, or the beginning of one at its cut end.
fn has_secret(redaction: &Redaction, text: &str) -> bool {
    let text = text.strip_suffix('\'').unwrap_or(text);
    match text.strip_suffix(CUT) {
        Some(beginning) => redaction.has_secret(beginning, true),
        None => redaction.has_secret(text, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_capture::heap::Label;
    use heaptide_testkit::HeapBuilder;

    #[test]
    fn values_and_keys_that_match_are_redacted() {
        let mut builder = HeapBuilder::new();
        let dict = builder.object("dict", 64);
        let key = builder.object("str", 60);
        let value = builder.object("str", 60);
        let other = builder.object("str", 60);
        builder.edge(dict, key, Label::new(EdgeType::KeyOf, 0));
        builder.named(dict, value, EdgeType::Key, "API_Token");
        builder.named(dict, other, EdgeType::Key, "colour");
        builder.value(key, "'API_Token'");
        builder.value(value, "'s3cret'");
        builder.value(other, "'blue'");
        let mut snapshot = builder.finish();
        redact(&mut snapshot, &Redaction::new(&["*token*".to_owned()], &[]));
        assert_eq!(snapshot.value_of(1), Some(REDACTED));
        assert_eq!(snapshot.value_of(2), Some(REDACTED));
        assert_eq!(snapshot.value_of(3), Some("'blue'"));
        let names: Vec<&str> = snapshot.names.iter().collect();
        assert_eq!(names, ["", REDACTED, "colour"]);
    }

    #[test]
    fn secret_is_redacted_in_every_value_and_key() {
        let mut builder = HeapBuilder::new();
        let dict = builder.object("dict", 64);
        let texts = [
            "'abc123xyz'",
            "'Bearer abc123xyz'",
            "'long … abc12…'",
            "'abc'",
        ];
        let objects: Vec<_> = texts.iter().map(|_| builder.object("str", 60)).collect();
        for (object, text) in objects.into_iter().zip(texts) {
            builder.named(dict, object, EdgeType::Key, text.trim_matches('\''));
            builder.value(object, text);
        }
        let mut snapshot = builder.finish();
        redact(
            &mut snapshot,
            &Redaction::new(&[], &["abc123xyz".to_owned()]),
        );
        let values = snapshot.values.iter().map(|value| value.text.as_str());
        let shown: Vec<&str> = values.collect();
        assert_eq!(shown, [REDACTED, REDACTED, REDACTED, "'abc'"]);
        let names: Vec<&str> = snapshot.names.iter().collect();
        assert_eq!(names, ["", REDACTED, REDACTED, REDACTED, "abc"]);
    }
}
