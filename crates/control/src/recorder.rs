//! The trait that the control API calls, and its options. The API depends neither on the agent nor on the interpreter.

use std::io;
use std::path::{Path, PathBuf};

use heaptide_capture::Labels;
use heaptide_capture::header::{DEFAULT_INTERVAL_MS, DEFAULT_SAMPLE_BYTES, Mode};

use serde_json::{Value, json};

const MAX_SAMPLE_BYTES: i64 = 1 << 50;
const MAX_INTERVAL_MS: i64 = 86_400_000;

pub trait Recorder: Send + Sync {
    /// Returns the capture that this process is recorded into. Never waits for the interpreter.
    fn recording(&self) -> Option<PathBuf>;

    /// Returns whether the recording has failed, for example because the disk was full, and has not been stopped since.
    /// Never waits for the interpreter.
    fn has_failed(&self) -> bool {
        false
    }

    /// Returns the labels of this process. Never waits for the interpreter.
    fn labels(&self) -> Labels;

    /// Starts recording. May wait for the interpreter. Returns a warning if the recording is incomplete.
    fn start(&self, path: &Path, options: &Options) -> Result<Option<String>, String>;

    /// Stops recording. May wait for the interpreter.
    fn stop(&self) -> Result<(), String>;

    /// Returns the mode of the running recording. Never waits for the interpreter.
    fn mode(&self) -> Option<Mode> {
        None
    }

    /// Changes the mode of the running recording. May wait for the interpreter. Returns whether anything changed.
    fn change_mode(&self, _wanted: &ModeOptions) -> Result<bool, String> {
        Err("this program cannot change the mode of a recording".to_owned())
    }

    /// Writes a heap snapshot of this process and returns the pause of the program in milliseconds. May wait for the
    /// interpreter.
    fn heap(&self, path: &Path, options: &HeapOptions) -> Result<f64, String>;

    /// Runs `work` on a thread that is not recorded and receives none of the program's signals.
    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> io::Result<()>;

    /// Runs `work` like [`Recorder::spawn`]. The caller must call the returned function, which waits for the thread to end.
    fn spawn_to_join(&self, work: Box<dyn FnOnce() + Send>) -> io::Result<Join>;
}

/// Waits until a thread has ended.
pub type Join = Box<dyn FnOnce() + Send>;

/// The options of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub mode: Mode,
    /// Milliseconds between two readings of the resident size.
    pub interval_ms: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode {
                follow_fork: true,
                ..Mode::default()
            },
            interval_ms: DEFAULT_INTERVAL_MS,
        }
    }
}

impl Options {
    /// The options of a recording that memray's routes start: it also contains Python objects, as in Racetrack, whose
    /// clients use these routes.
    pub(crate) fn every_object() -> Options {
        let mut options = Options::default();
        options.mode.objects = true;
        options
    }

    pub(crate) fn mode_name(&self) -> &'static str {
        match (self.mode.objects, self.mode.sample_bytes) {
            (true, _) => "objects",
            (false, 0) => "exact",
            (false, _) => "sampled",
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "mode": self.mode_name(),
            "sample_bytes": self.mode.sample_bytes,
            "aggregate": self.mode.aggregate,
            "native": self.mode.native,
            "follow_fork": self.mode.follow_fork,
            "interval_ms": self.interval_ms,
        })
    }

    /// Reads the body of a request. Refuses unknown keys, so that a misspelt option is not ignored.
    pub fn from_json(body: &Value) -> Result<Options, String> {
        let Value::Object(pairs) = body else {
            return Err("the body must be a JSON object with options, or empty".to_owned());
        };
        let mut options = Options::default();
        let (mut mode, mut sample_bytes) = (None, None);
        for (key, value) in pairs {
            let flag = || flag(key, value);
            let number = |most: i64| {
                let number = value.as_i64().filter(|number| (1..=most).contains(number));
                number.ok_or_else(|| format!("{key} must be a whole number from 1 to {most}"))
            };
            match key.as_str() {
                "mode" => match value.as_str() {
                    Some(name @ ("exact" | "objects" | "sampled")) => mode = Some(name),
                    _ => return Err("mode must be exact, objects or sampled".to_owned()),
                },
                // The description of a session has 0 for "every allocation"; clients may send it back.
                "sample_bytes" if *value == 0 => sample_bytes = Some(0),
                "sample_bytes" => sample_bytes = Some(number(MAX_SAMPLE_BYTES)? as u64),
                "aggregate" => options.mode.aggregate = flag()?,
                "native" | "native_traces" => options.mode.native = flag()?,
                "follow_fork" => options.mode.follow_fork = flag()?,
                "interval_ms" => options.interval_ms = number(MAX_INTERVAL_MS)? as u32,
                _ => {
                    return Err(format!(
                        "unknown option {key:?}: use mode, sample_bytes, aggregate, native, follow_fork, interval_ms"
                    ));
                }
            }
        }
        options.mode.objects = mode == Some("objects");
        options.mode.sample_bytes = match (mode, sample_bytes) {
            (Some("sampled"), Some(0)) => {
                return Err("mode sampled needs sample_bytes of at least 1".to_owned());
            }
            (Some("sampled"), None) => DEFAULT_SAMPLE_BYTES,
            (Some(mode @ ("exact" | "objects")), Some(1..)) => {
                return Err(format!("sample_bytes needs mode sampled, not {mode}"));
            }
            (_, sample_bytes) => sample_bytes.unwrap_or(0),
        };
        Ok(options)
    }
}

/// Reads `true` or `false`, or the 1 or 0 of a command line.
fn flag(key: &str, value: &Value) -> Result<bool, String> {
    match (value, value.as_u64()) {
        (Value::Bool(value), _) => Ok(*value),
        (_, Some(number @ 0..=1)) => Ok(number == 1),
        _ => Err(format!("{key} must be true or false")),
    }
}

/// A change of the mode: the parts to change. The others stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModeOptions {
    pub objects: Option<bool>,
    /// 0 records every allocation.
    pub sample_bytes: Option<u64>,
    pub native: Option<bool>,
}

impl ModeOptions {
    /// Reads the body of a request. Refuses unknown keys.
    pub fn from_json(body: &Value) -> Result<ModeOptions, String> {
        let Value::Object(pairs) = body else {
            return Err("the body must be a JSON object with options".to_owned());
        };
        if let Some(key) = pairs
            .keys()
            .find(|key| !["mode", "sample_bytes", "native"].contains(&key.as_str()))
        {
            return Err(format!(
                "unknown option {key:?}: use mode, sample_bytes, native; other options cannot change while recording"
            ));
        }
        let options = Options::from_json(body)?;
        let names_sampling = pairs.contains_key("mode") || pairs.contains_key("sample_bytes");
        let changed = ModeOptions {
            objects: names_sampling.then_some(options.mode.objects),
            sample_bytes: names_sampling.then_some(options.mode.sample_bytes),
            native: pairs.contains_key("native").then_some(options.mode.native),
        };
        match changed == ModeOptions::default() {
            true => Err("nothing to change: name mode, sample_bytes or native".to_owned()),
            false => Ok(changed),
        }
    }
}

impl Options {
    /// Returns these options in another mode.
    pub(crate) fn in_mode(mut self, wanted: &ModeOptions) -> Options {
        let mode = &mut self.mode;
        mode.objects = wanted.objects.unwrap_or(mode.objects);
        mode.sample_bytes = wanted.sample_bytes.unwrap_or(mode.sample_bytes);
        mode.native = wanted.native.unwrap_or(mode.native);
        self
    }
}

/// Returns a mode as JSON.
pub(crate) fn mode_to_json(mode: Mode) -> Value {
    let options = Options {
        mode,
        ..Options::default()
    };
    json!({
        "mode": options.mode_name(),
        "sample_bytes": mode.sample_bytes,
        "native": mode.native,
        "aggregate": mode.aggregate,
    })
}

/// The options of a heap snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeapOptions {
    /// Whether to store the values of short strings and of numbers.
    pub values: bool,
    /// Patterns of names and values to hide.
    pub redact: Vec<String>,
    /// Whether to walk a forked copy, which pauses the program only for the fork.
    pub fork: bool,
}

impl HeapOptions {
    /// Reads the body of a request. Refuses unknown keys.
    pub fn from_json(body: &Value) -> Result<HeapOptions, String> {
        let Value::Object(pairs) = body else {
            return Err("the body must be a JSON object with options, or empty".to_owned());
        };
        let mut options = HeapOptions::default();
        for (key, value) in pairs {
            let flag = || flag(key, value);
            match (key.as_str(), value) {
                ("values", _) => options.values = flag()?,
                ("fork", _) => options.fork = flag()?,
                ("redact", Value::Array(patterns)) => {
                    for pattern in patterns {
                        let pattern = pattern.as_str().ok_or("redact must be a list of strings")?;
                        options.redact.push(pattern.to_owned());
                    }
                }
                ("redact", _) => return Err("redact must be a list of strings".to_owned()),
                _ => {
                    return Err(format!("unknown option {key:?}: use values, redact, fork"));
                }
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Options, String> {
        Options::from_json(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn heap_options_are_read_and_unknown_ones_refused() {
        let read = |text: &str| HeapOptions::from_json(&serde_json::from_str(text).unwrap());
        assert_eq!(read("{}"), Ok(HeapOptions::default()));
        let all = read(r#"{"values":true,"fork":true,"redact":["*token*","x"]}"#).unwrap();
        assert!(all.values && all.fork);
        assert_eq!(all.redact, ["*token*", "x"]);
        assert!(read(r#"{"value":true}"#).unwrap_err().contains("\"value\""));
        assert!(read(r#"{"redact":3}"#).is_err());
        assert!(read("[]").is_err());
    }

    #[test]
    fn mode_change_contains_only_the_options_that_are_named() {
        let read = |text: &str| ModeOptions::from_json(&serde_json::from_str(text).unwrap());
        let native = read(r#"{"native":true}"#).unwrap();
        assert_eq!((native.objects, native.sample_bytes), (None, None));
        let exact = read(r#"{"mode":"exact"}"#).unwrap();
        assert_eq!((exact.objects, exact.sample_bytes), (Some(false), Some(0)));
        let sampled = read(r#"{"sample_bytes":4096}"#).unwrap();
        assert_eq!(sampled.sample_bytes, Some(4096));
        assert_eq!(sampled.native, None);
        assert!(read("{}").is_err());
        assert!(read(r#"{"aggregate":true}"#).is_err());
    }

    #[test]
    fn options_survive_a_round_trip_and_unknown_ones_are_refused() {
        for text in [
            "{}",
            r#"{"mode":"objects","follow_fork":true}"#,
            r#"{"native_traces":true}"#,
            r#"{"follow_fork":false}"#,
            r#"{"sample_bytes":4096}"#,
        ] {
            let options = read(text).unwrap();
            let again = Options::from_json(&options.to_json()).unwrap();
            assert_eq!(again, options);
        }
        assert!(read("{}").unwrap().mode.follow_fork);
        assert!(!read(r#"{"follow_fork":0}"#).unwrap().mode.follow_fork);
        assert!(read(r#"{"follow_fork":2}"#).is_err());
        assert!(read(r#"{"mod":"exact"}"#).unwrap_err().contains("\"mod\""));
        assert!(read("[]").is_err());
        assert!(read(r#"{"interval_ms":0}"#).is_err());
    }

    #[test]
    fn contradictory_mode_and_sample_size_are_refused() {
        for mode in ["exact", "objects"] {
            let text = format!(r#"{{"mode":"{mode}","sample_bytes":4096}}"#);
            let expected = format!("sample_bytes needs mode sampled, not {mode}");
            assert_eq!(read(&text), Err(expected.clone()));
            let change = ModeOptions::from_json(&serde_json::from_str(&text).unwrap());
            assert_eq!(change, Err(expected));
            let zero = read(&format!(r#"{{"sample_bytes":0,"mode":"{mode}"}}"#)).unwrap();
            assert_eq!((zero.mode_name(), zero.mode.sample_bytes), (mode, 0));
        }
        assert!(read(r#"{"mode":"sampled","sample_bytes":0}"#).is_err());
        let sampled = read(r#"{"sample_bytes":4096,"mode":"sampled"}"#).unwrap();
        assert_eq!(sampled.mode.sample_bytes, 4096);
        let default = read(r#"{"mode":"sampled"}"#).unwrap();
        assert_eq!(default.mode.sample_bytes, DEFAULT_SAMPLE_BYTES);
    }
}
