//! pprof's `profile.proto`, gzipped: every site as one sample with eight values.
//!
//! Four values are those of heap profiles of other languages: `alloc_*` and `inuse_*` (alive at the end). `peak_*` and
//! `temporary_*` are Heaptide's own. Values of sampled captures are already scaled to estimates. Field numbers are those of
//! the published `profile.proto`.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use heaptide_analysis::Measure;
use heaptide_analysis::interner::Interner;
use heaptide_analysis::model::{ProcessStacks, ProcessSummary, SiteSum, StackModel, ThreadName};

use super::protobuf::Message;
use super::{NO_FRAMES, merged};
use crate::shell::command_line;
use crate::text::notes::{asides, peak_heading, remarks, warnings};

const SAMPLE_TYPES: [(&str, &str); 8] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
    ("temporary_objects", "count"),
    ("temporary_space", "bytes"),
];

/// Field numbers of the profile.
mod field {
    pub const SAMPLE_TYPE: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const MAPPING: u32 = 3;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING: u32 = 6;
    pub const TIME_NANOS: u32 = 9;
    pub const DURATION_NANOS: u32 = 10;
    pub const PERIOD_TYPE: u32 = 11;
    pub const PERIOD: u32 = 12;
    pub const COMMENT: u32 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// The only mapping: native functions are not assigned to their libraries.
const INTERPRETER: u64 = 1;

/// The texts of a profile without duplicates; the first is empty, as the format requires.
struct Texts(Interner<String>);

impl Texts {
    fn new() -> Texts {
        let mut texts = Texts(Interner::default());
        texts.intern("");
        texts
    }

    fn intern(&mut self, text: &str) -> u64 {
        self.0.number_of(text).into()
    }
}

pub fn write(model: &StackModel, measure: Measure, out: &mut dyn Write) -> io::Result<()> {
    let mut texts = Texts::new();
    // Without a creation time, so that the same capture gives the same bytes.
    let mut gzip = GzEncoder::new(out, Compression::default());
    let mut head = Message::default();
    describe(model, measure, &mut texts, &mut head);
    gzip.write_all(head.bytes())?;
    for (process, summary) in model.processes.iter().zip(&model.quality.processes) {
        let labels = Labels::new(process, summary, &mut texts);
        for site in &process.sites {
            let mut message = Message::default();
            message.message(field::SAMPLE, |inner| {
                sample(inner, model, site, &labels, &mut texts);
            });
            gzip.write_all(message.bytes())?;
        }
    }
    gzip.write_all(locations(model, &mut texts).bytes())?;
    for text in &texts.0.values {
        let mut message = Message::default();
        message.element(field::STRING, text.as_bytes());
        gzip.write_all(message.bytes())?;
    }
    gzip.finish()?;
    Ok(())
}

/// Writes all fields but samples, locations, functions and texts.
fn describe(model: &StackModel, measure: Measure, texts: &mut Texts, profile: &mut Message) {
    for (what, unit) in SAMPLE_TYPES {
        let (what, unit) = (texts.intern(what), texts.intern(unit));
        profile.message(field::SAMPLE_TYPE, |inner| {
            inner.number(1, what);
            inner.number(2, unit);
        });
    }
    let first = match measure {
        Measure::Peak => "peak_space",
        Measure::Leaked => "inuse_space",
        Measure::Total => "alloc_space",
        Measure::Temporary => "temporary_space",
    };
    profile.number(field::DEFAULT_SAMPLE_TYPE, texts.intern(first));
    let executable = model.processes.first();
    let executable = executable.map_or("", |process| &process.executable);
    let executable = texts.intern(executable);
    profile.message(field::MAPPING, |mapping| {
        mapping.number(1, INTERPRETER);
        mapping.number(5, executable);
        // Functions, files and lines are already resolved.
        for known in [7, 8, 9] {
            mapping.number(known, 1);
        }
    });
    let duration = model.end_unix_ns.saturating_sub(model.start_unix_ns);
    profile.number(field::TIME_NANOS, model.start_unix_ns);
    profile.number(field::DURATION_NANOS, duration);
    let (space, bytes) = (texts.intern("space"), texts.intern("bytes"));
    profile.message(field::PERIOD_TYPE, |inner| {
        inner.number(1, space);
        inner.number(2, bytes);
    });
    let sampling = model.quality.sampling;
    let period = sampling.map_or(1, |sampling| sampling.mean_bytes);
    profile.number(field::PERIOD, period);
    let comments: Vec<u64> = comments(model).iter().map(|it| texts.intern(it)).collect();
    profile.numbers(field::COMMENT, comments.into_iter());
}

fn comments(model: &StackModel) -> Vec<String> {
    let mut comments = vec![format!("heaptide {}", env!("CARGO_PKG_VERSION"))];
    for process in &model.quality.processes {
        let command = command_line(&process.command);
        comments.push(format!("process {}: {command}", process.shown));
    }
    comments.extend(peak_heading(&model.quality));
    comments.extend(warnings(&model.quality));
    comments.extend(remarks(&model.quality));
    comments.extend(asides(&model.quality));
    comments
}

/// Key and value as text numbers.
type Label = (u64, u64);

/// Labels of one process's samples.
struct Labels {
    pid: Label,
    /// The name of the process, if its ID is ambiguous.
    process: Option<Label>,
    /// For each thread its ID, and its name if it has one.
    threads: Vec<(Option<Label>, Label)>,
    allocator: u64,
}

impl Labels {
    fn new(process: &ProcessStacks, summary: &ProcessSummary, texts: &mut Texts) -> Labels {
        let pid = summary.pid.to_string();
        let keys = ["pid", "thread", "thread_id", "allocator"].map(|key| texts.intern(key));
        let process_name =
            (summary.name != pid).then(|| (texts.intern("process"), texts.intern(&summary.name)));
        let mut number = |thread: &ThreadName| {
            let name = thread.name.as_deref();
            let name = name.map(|name| (keys[1], texts.intern(name)));
            let id = texts.intern(&thread.os_id.to_string());
            (name, (keys[2], id))
        };
        Labels {
            threads: process.threads.iter().map(&mut number).collect(),
            pid: (keys[0], texts.intern(&pid)),
            process: process_name,
            allocator: keys[3],
        }
    }
}

fn sample(
    sample: &mut Message,
    model: &StackModel,
    site: &SiteSum,
    labels: &Labels,
    texts: &mut Texts,
) {
    // Locations are numbered from 1; the number after the last is for empty stacks.
    let no_frame = site
        .stack
        .is_none()
        .then_some(model.locations.len() as u64 + 1);
    let frames = merged::frames(model, site.stack).map(|frame| frame as u64 + 1);
    sample.numbers(1, frames.chain(no_frame));
    let values = [
        site.total.count,
        site.total.bytes,
        site.leaked.count,
        site.leaked.bytes,
        site.peak.count,
        site.peak.bytes,
        site.temporary.count,
        site.temporary.bytes,
    ];
    // The format's numbers are signed.
    let values = values.map(|value| value.min(i64::MAX as u64));
    sample.numbers(2, values.into_iter());
    let (name, id) = labels.threads[site.thread];
    let allocator = (labels.allocator, texts.intern(site.allocator.name()));
    let job = site.job.and_then(|job| model.jobs.get(job as usize));
    let job = job.map(|job| (texts.intern("job"), texts.intern(job)));
    let names = name.into_iter().chain(labels.process).chain(job);
    for (key, value) in names.chain([id, labels.pid, allocator]) {
        sample.message(3, |label| {
            label.number(1, key);
            label.number(2, value);
        });
    }
}

/// Locations and functions.
fn locations(model: &StackModel, texts: &mut Texts) -> Message {
    let mut profile = Message::default();
    let mut known: HashMap<(u64, u64), u64> = HashMap::new();
    let named = model.locations.iter();
    let named = named.map(|at| (&*at.function, &*at.file, at.line));
    for (at, (function, file, line)) in named.chain([(NO_FRAMES, "", 0)]).enumerate() {
        let key = (texts.intern(function), texts.intern(file));
        let next = known.len() as u64 + 1;
        let function = *known.entry(key).or_insert_with(|| {
            profile.message(field::FUNCTION, |message| {
                message.number(1, next);
                // No system name (3): readers would demangle it as C++ and turn "<module>" into "".
                message.number(2, key.0);
                message.number(4, key.1);
            });
            next
        });
        profile.message(field::LOCATION, |location| {
            location.number(1, at as u64 + 1);
            location.number(2, INTERPRETER);
            location.message(4, |message| {
                message.number(1, function);
                message.number(2, u64::try_from(line).unwrap_or(0));
            });
        });
    }
    profile
}
