//! Reports for other programs. JSON keys, their order and the meaning of numbers are stable.

mod diff;
pub mod explore;
pub mod findings;
pub mod flame;
pub mod heap;
pub mod jobs;
mod lines;
mod stats;

use std::io::{self, Write};

use serde_json::{Value, json};

pub use diff::diff;
pub use jobs::jobs;
pub use lines::lines;
pub use stats::stats;

use heaptide_analysis::model::{PeakMoment, Quality, Stopped};
use heaptide_capture::{Identity, Labels};

/// Writes a value, indented by two spaces per level, and a line end.
pub fn write(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Writes a text in quotes, with escapes.
pub(crate) fn write_text(out: &mut dyn Write, text: &str) -> io::Result<()> {
    Ok(serde_json::to_writer(out, text)?)
}

/// A number that is written without a fraction if it has none, and as `null` if it is not finite.
pub(crate) fn number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}

/// The source location of a frame. An unknown line is 0.
pub(crate) fn location(at: &heaptide_analysis::model::Location) -> Value {
    json!({
        "function": &*at.function,
        "file": &*at.file,
        "line": u64::try_from(at.line).unwrap_or(0),
    })
}

/// The identity of a process. Unknown parts are `null`.
pub(crate) fn identity(identity: &Identity) -> Value {
    let mut value: Value = identity.named_parts().into_iter().collect();
    value["pid"] = identity.pid.into();
    value
}

/// The labels of a process as an object.
pub(crate) fn labels(labels: &Labels) -> Value {
    let pairs = labels.iter();
    pairs
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

/// A text; an empty one is `null`.
pub(crate) fn text_or_null(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => text.into(),
    }
}

/// The sampling rate and the errors of sums (95%), or `null` if every allocation was recorded. `stats --json` and
/// `transform json` name the error of leaked bytes differently, so its key is a parameter.
pub(crate) fn sampling(quality: &Quality, leaked_key: &str) -> Value {
    let Some(sampling) = quality.sampling else {
        return Value::Null;
    };
    json!({
        "mean_bytes": sampling.mean_bytes,
        "total_error_bytes_95": number(sampling.total_error_bytes.round()),
        "peak_error_bytes_95": number(sampling.peak_error_bytes.round()),
        leaked_key: number(sampling.live_error_bytes.round()),
    })
}

/// The moment of all numbers at the peak. `elapsed_ns` is counted from the first start.
pub(crate) fn peak_moment(quality: &Quality) -> Value {
    match quality.peak_moment {
        PeakMoment::OfProcess => json!({ "of": "process" }),
        PeakMoment::Common(ns) => json!({ "of": "processes together", "elapsed_ns": ns }),
        PeakMoment::EachOwn => json!({ "of": "each process" }),
    }
}

/// The counters of lost records.
pub(crate) fn lost(quality: &Quality) -> Value {
    let lost = quality.lost.iter();
    lost.map(|&(reason, count)| json!({ "what": reason.describe(), "count": count }))
        .collect()
}

/// A recording that failed before its program ended.
pub(crate) fn stopped(stopped: &Stopped) -> Value {
    json!({
        "after_ns": stopped.elapsed_ns,
        "dropped_events": stopped.n_dropped,
        "reason": stopped.reason,
    })
}

/// The parts of files that could not be read.
pub(crate) fn damage(quality: &Quality) -> Value {
    let damage = quality.damage.iter().map(|(path, damage)| {
        json!({
            "file": path.display().to_string(),
            "offset": damage.offset,
            "note": damage.to_string(),
        })
    });
    damage.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_indented_and_texts_are_escaped() {
        let value = json!({
            "a": [1, true, null],
            "b": {},
            "c": "say \"é\"\\\n\u{1}",
            "d": number(0.5),
            "e": number(f64::NAN),
            "f": number(3.0),
        });
        let mut out = Vec::new();
        write(&mut out, &value).expect("writing to a vector succeeds");
        let expected = r#"{
  "a": [
    1,
    true,
    null
  ],
  "b": {},
  "c": "say \"é\"\\\n\u0001",
  "d": 0.5,
  "e": null,
  "f": 3
}
"#;
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
