//! One line of a file of job records. A line that does not match the documented format is skipped.

use heaptide_capture::{Identity, Outcome, labels};
use serde_json::{Map, Value};

/// The version of the lines that this release reads.
pub const VERSION: u64 = 1;
/// No size or duration is larger, so larger numbers are ignored.
const MAX_BYTES: u64 = 1 << 56;
const MAX_SECONDS: f64 = 1e10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Begin,
    End,
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub event: Event,
    pub id: String,
    pub identity: Identity,
    pub run: String,
    /// The role or program of the process; empty if unknown.
    pub title: String,
    pub number: Option<u64>,
    pub name: String,
    /// The value of the requested label: of the job, or else of its process.
    pub label: Option<String>,
    pub key: Option<String>,
    pub time: f64,
    pub seconds: Option<f64>,
    pub outcome: Outcome,
    pub error: Option<String>,
    pub resident_before: Option<u64>,
    pub resident_after: Option<u64>,
    pub resident_peak: Option<u64>,
    pub peak_bytes: Option<u64>,
    pub retained_bytes: Option<i64>,
    pub name_bytes: Option<u64>,
    /// `function at file:line` and bytes.
    pub sites: Vec<(String, u64)>,
    pub capture: Option<String>,
}

/// The reason why a line is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    Invalid,
    /// Written by a later release.
    Newer,
}

impl Line {
    /// Reads a line. Of the labels, only the one with the key `label` is kept.
    pub fn parse(text: &[u8], label: Option<&str>) -> Result<Line, Skipped> {
        let value: Value = serde_json::from_slice(text).map_err(|_| Skipped::Invalid)?;
        let fields = value.as_object().ok_or(Skipped::Invalid)?;
        match fields.get("v").and_then(Value::as_u64) {
            Some(VERSION) => Line::of(fields, label).ok_or(Skipped::Invalid),
            Some(version) if version > VERSION => Err(Skipped::Newer),
            _ => Err(Skipped::Invalid),
        }
    }

    fn of(fields: &Map<String, Value>, label: Option<&str>) -> Option<Line> {
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let bytes = |key: &str| {
            let number = fields.get(key).and_then(Value::as_u64);
            number.filter(|&number| number <= MAX_BYTES)
        };
        let owned = |key: &str| text(key).map(str::to_owned);
        let event = match text("event")? {
            "begin" => Event::Begin,
            "end" => Event::End,
            _ => return None,
        };
        let time = fields.get("time").and_then(Value::as_f64)?;
        let seconds = fields.get("seconds").and_then(Value::as_f64);
        let retained = fields.get("retained_bytes").and_then(Value::as_i64);
        let pid = fields.get("pid").and_then(Value::as_u64)?;
        Some(Line {
            event,
            id: owned("id").filter(|id| !id.is_empty())?,
            identity: Identity {
                pid: u32::try_from(pid).ok()?,
                host: owned("host").unwrap_or_default(),
                start: owned("start").unwrap_or_default(),
                pid_namespace: owned("pid_namespace").unwrap_or_default(),
                boot_id: owned("boot_id").unwrap_or_default(),
            },
            run: owned("run").unwrap_or_default(),
            title: title(fields.get("process_labels"), text("program")),
            number: fields.get("number").and_then(Value::as_u64),
            name: owned("name")?,
            label: label.and_then(|key| {
                let labels = ["labels", "process_labels"].into_iter();
                let mut values = labels.filter_map(|labels| fields.get(labels)?.get(key)?.as_str());
                values.next().map(str::to_owned)
            }),
            key: owned("key"),
            time: Some(time).filter(|time| (0.0..MAX_SECONDS).contains(time))?,
            seconds: seconds.filter(|seconds| (0.0..MAX_SECONDS).contains(seconds)),
            outcome: match event {
                Event::Begin => Outcome::Running,
                Event::End => Outcome::from_name(text("outcome")?)?,
            },
            error: owned("error"),
            resident_before: bytes("resident_before"),
            resident_after: bytes("resident_after"),
            resident_peak: bytes("resident_peak"),
            peak_bytes: bytes("peak_bytes"),
            retained_bytes: retained.filter(|bytes| bytes.unsigned_abs() <= MAX_BYTES),
            name_bytes: bytes("name_bytes"),
            sites: fields.get("sites").map(sites).unwrap_or_default(),
            capture: owned("capture"),
        })
    }

    /// When the job began.
    pub fn started(&self) -> f64 {
        match self.event {
            Event::Begin => self.time,
            Event::End => self.time - self.seconds.unwrap_or(0.0),
        }
    }
}

fn title(process_labels: Option<&Value>, program: Option<&str>) -> String {
    let fields = process_labels.and_then(Value::as_object);
    let texts = fields.into_iter().flatten();
    let known = texts.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    let known: labels::Labels = known.collect();
    let program = program.map(str::to_owned);
    labels::title(&known, program.as_slice())
}

/// The text of a site. Memory that no Python line allocated, such as arenas of small objects, has no line.
pub(super) fn site_text(function: &str, file: &str, line: u64) -> String {
    match line {
        0 => function.to_owned(),
        _ => format!("{function} at {file}:{line}"),
    }
}

fn sites(value: &Value) -> Vec<(String, u64)> {
    let site = |site: &Value| {
        let text = |key: &str| site.get(key).and_then(Value::as_str);
        let (function, file) = (text("function")?, text("file")?);
        let line = site.get("line").and_then(Value::as_u64).unwrap_or(0);
        let bytes = site.get("bytes").and_then(Value::as_u64)?;
        Some((site_text(function, file, line), bytes.min(MAX_BYTES)))
    };
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(site)
        .collect()
}
