//! Heaptide's line-based format, which `docs/reference/timeline-format.md` describes.
//!
//! Values are written when they change and stay valid until the next change, so that an idle run of many processes takes
//! almost no space.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::model::{Backend, Call, Ending, Header, Memory, Point, Process, Timeline};
use crate::record::{NewProcess, Tick};
use crate::text::{self, bytes_of_kib, escape, seconds, unescape};

/// The first line of every file. A version that old readers cannot read gets another number.
pub const MAGIC: &str = "heaptide timeline 1";

/// The beginning of the second line, in every version of the format: the version of Heaptide that wrote the file.
pub const WRITTEN_BY: &str = "version ";

/// An idle run gets a line at least this often.
const MAX_SILENCE_S: f64 = 1.0;

/// The reader restores omitted samples at the sampling interval, but at least this far apart, so that a small file does
/// not become a large timeline.
const MIN_DISTANCE_S: f64 = 0.01;

/// The values written so far: only changes are written.
#[derive(Default)]
pub struct Written {
    memory: HashMap<usize, Memory>,
    group: Option<u64>,
    /// The outer `None`: nothing was written yet.
    pub limit: Option<Option<u64>>,
    last_s: f64,
}

// Writing into a string cannot fail, so the results are ignored.

pub fn header(line: &mut String, header: &Header) {
    let _ = writeln!(line, "{MAGIC}");
    let _ = writeln!(line, "{WRITTEN_BY}{}", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(line, "started {:.4}", header.started_s);
    let _ = writeln!(line, "command {}", escape(&header.command, true));
    if let Some(host) = &header.host {
        let _ = writeln!(line, "host {}", escape(host, true));
    }
    for (key, value) in &header.facts {
        let _ = writeln!(line, "fact {key}={}", escape(value, true));
    }
    if let Some(rank) = header.rank {
        let _ = writeln!(line, "rank {rank}");
    }
    let _ = writeln!(line, "interval {}", header.interval_s);
    let _ = writeln!(line, "backend {}", header.backend.name());
}

pub fn appeared(line: &mut String, since_s: f64, process: &NewProcess<'_>) {
    let _ = writeln!(
        line,
        "new {since_s:.4} {} {} {} {} {}",
        process.number,
        process.pid,
        process.parent,
        escape(process.name, false),
        escape(process.command, true)
    );
    // A program that ended before the first sample has no start.
    if !process.start.is_empty() {
        let start = escape(process.start, false);
        let _ = writeln!(line, "start {} {start}", process.number);
    }
}

pub fn ended(line: &mut String, written: &mut Written, since_s: f64, number: usize) {
    written.memory.remove(&number);
    let _ = writeln!(line, "end {since_s:.4} {number}");
}

pub fn tick(line: &mut String, written: &mut Written, header: &Header, tick: &Tick) {
    let since_s = tick.time_s - header.started_s;
    let start = line.len();
    let _ = write!(line, "at {since_s:.4}");
    let bare = line.len();
    for &(number, _, memory) in &tick.processes {
        let known = written.memory.get(&number).copied();
        if known.map(|known| known.resident) != Some(memory.resident) {
            let _ = write!(line, " {number}={}", memory.resident / 1024);
        }
        let expensive = |memory: Memory| (memory.proportional, memory.unique, memory.swap);
        let is_changed = known.is_none_or(|known| expensive(known) != expensive(memory));
        if let (true, (Some(proportional), Some(unique), Some(swap))) =
            (is_changed, expensive(memory))
        {
            let (proportional, unique, swap) = (proportional / 1024, unique / 1024, swap / 1024);
            let _ = write!(line, " {number}~{proportional},{unique},{swap}");
        }
        written.memory.insert(number, memory);
    }
    if tick.group.is_some() && tick.group != written.group {
        let _ = write!(line, " group={}", tick.group.unwrap_or(0) / 1024);
        written.group = tick.group;
    }
    if written.limit != Some(tick.limit) && (tick.limit.is_some() || written.limit.is_some()) {
        match tick.limit {
            Some(limit) => _ = write!(line, " limit={}", limit / 1024),
            None => line.push_str(" limit=none"),
        }
        written.limit = Some(tick.limit);
    }
    if line.len() == bare && since_s - written.last_s < MAX_SILENCE_S {
        line.truncate(start);
        return;
    }
    written.last_s = since_s;
    line.push('\n');
}

pub fn call(line: &mut String, started_s: f64, call: &Call) {
    let _ = writeln!(
        line,
        "call {} {:.4} {} {:.4} {} {}",
        escape(&call.function, false),
        call.begin.time_s - started_s,
        call.begin.bytes / 1024,
        call.end.time_s - started_s,
        call.end.bytes / 1024,
        call.level.unwrap_or(0)
    );
}

/// Reads everything after the first line, complete lines only.
pub fn read(text: &str) -> Timeline {
    let mut reader = Reader::default();
    let mut n_unknown = 0;
    for line in text.lines() {
        if reader.line(line).is_none() {
            n_unknown += 1;
        }
    }
    let mut timeline = reader.timeline;
    if n_unknown > 0 {
        timeline.damage.push(text::invalid_lines(n_unknown));
    }
    if timeline.ending.is_none() {
        timeline.damage.push(
            "it has no end: the recording is still running or was killed; all earlier samples are shown".into(),
        );
    }
    timeline
}

#[derive(Default)]
struct Reader {
    timeline: Timeline,
    /// Current memory of each process; `None` if it has ended or not started.
    now: Vec<Option<Memory>>,
    /// Last usage of the control group.
    group: Option<u64>,
    /// Maps numbers in the file to indices in the list.
    indices: HashMap<usize, usize>,
    /// The time of the last point.
    last_s: Option<f64>,
}

impl Reader {
    /// Returns `None` if the line is invalid.
    fn line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let header = &mut self.timeline.header;
        match word {
            // Only a reader that cannot read the format shows the version of Heaptide.
            "version" => {}
            "started" => header.started_s = seconds(rest)?,
            "command" => header.command = unescape(rest),
            "host" => header.host = Some(unescape(rest)),
            "fact" => header.facts.push(fact(rest)?),
            "rank" => header.rank = Some(rest.parse().ok()?),
            "interval" => header.interval_s = seconds(rest)?,
            "backend" => header.backend = Backend::parse(rest)?,
            "new" => self.appeared(rest)?,
            "start" => self.started(rest)?,
            "end" => self.ended(rest)?,
            "at" => self.tick(rest)?,
            "call" => self.call(rest)?,
            "oom" => self.timeline.n_oom_kills = rest.parse().ok()?,
            "over" => self.over(rest)?,
            _ => return None,
        }
        Some(())
    }

    fn time(&self, text: &str) -> Option<f64> {
        Some(self.timeline.header.started_s + seconds(text)?)
    }

    fn appeared(&mut self, rest: &str) -> Option<()> {
        let mut words = rest.splitn(6, ' ');
        let began_s = self.time(words.next()?)?;
        let number: usize = words.next()?.parse().ok()?;
        let process = Process {
            pid: words.next()?.parse().ok()?,
            parent: words.next()?.parse().ok()?,
            name: unescape(words.next()?),
            command: unescape(words.next().unwrap_or("")),
            began_s: Some(began_s),
            ..Process::default()
        };
        // A second line for the same process has its new name.
        if let Some(known) = self
            .indices
            .get(&number)
            .map(|&index| &mut self.timeline.processes[index])
        {
            (known.name, known.command) = (process.name, process.command);
            return Some(());
        }
        self.timeline.has_root |= number == 0 && self.timeline.processes.is_empty();
        self.indices.insert(number, self.timeline.processes.len());
        self.timeline.processes.push(process);
        self.now.push(None);
        Some(())
    }

    fn started(&mut self, rest: &str) -> Option<()> {
        let (number, start) = rest.split_once(' ')?;
        let index = *self.indices.get(&number.parse().ok()?)?;
        self.timeline.processes[index].start = Some(unescape(start));
        Some(())
    }

    fn ended(&mut self, rest: &str) -> Option<()> {
        let (time, number) = rest.split_once(' ')?;
        let time_s = self.time(time)?;
        let index = *self.indices.get(&number.parse().ok()?)?;
        self.hold_until(time_s);
        self.now[index] = None;
        self.timeline.processes[index].ended_s = Some(time_s);
        Some(())
    }

    fn tick(&mut self, rest: &str) -> Option<()> {
        let mut words = rest.split(' ');
        let time_s = self.time(words.next()?)?;
        self.hold_until(time_s);
        let mut is_whole = true;
        for word in words {
            is_whole &= self.value(time_s, word).is_some();
        }
        self.sample(time_s);
        self.point(time_s);
        is_whole.then_some(())
    }

    /// Restores the samples before `time_s` that were omitted because nothing changed. A gap that is longer than a
    /// recorder leaves has no samples.
    fn hold_until(&mut self, time_s: f64) {
        let Some(last_s) = self.last_s else { return };
        let interval_s = self.timeline.header.interval_s.max(MIN_DISTANCE_S);
        let n_missing = ((time_s - last_s) / interval_s).round() - 1.0;
        if !(n_missing >= 1.0 && time_s - last_s <= MAX_SILENCE_S + 2.0 * interval_s) {
            return;
        }
        let n_missing = n_missing as u32;
        for n in 1..=n_missing {
            self.point(last_s + f64::from(n) * interval_s);
        }
        // One sample at the end of the gap is enough per process: its sizes did not change.
        self.sample(last_s + f64::from(n_missing) * interval_s);
    }

    fn sample(&mut self, time_s: f64) {
        for (process, now) in self.timeline.processes.iter_mut().zip(&self.now) {
            process.samples.extend(now.map(|memory| (time_s, memory)));
        }
    }

    fn point(&mut self, time_s: f64) {
        let backend = self.timeline.header.backend;
        let held = self.now.iter().flatten().map(|memory| memory.by(backend));
        let bytes = held.fold(0, u64::saturating_add);
        self.timeline.total.push(Point { time_s, bytes });
        let group = self.group.map(|bytes| Point { time_s, bytes });
        self.timeline.group.extend(group);
        self.last_s = Some(time_s);
    }

    fn value(&mut self, time_s: f64, word: &str) -> Option<()> {
        if let Some((number, values)) = word.split_once('~') {
            let index = *self.indices.get(&number.parse().ok()?)?;
            let mut values = values.split(',').map(bytes_of_kib);
            let memory = self.now[index].get_or_insert_default();
            memory.proportional = Some(values.next()??);
            memory.unique = Some(values.next()??);
            memory.swap = Some(values.next()??);
            return Some(());
        }
        match word.split_once('=')? {
            ("group", value) => self.group = Some(bytes_of_kib(value)?),
            ("limit", "none") => self.timeline.limits.push((time_s, None)),
            ("limit", value) => {
                let limit = Some(bytes_of_kib(value)?);
                self.timeline.limits.push((time_s, limit));
            }
            (number, value) => {
                let index = *self.indices.get(&number.parse().ok()?)?;
                self.now[index].get_or_insert_default().resident = bytes_of_kib(value)?;
            }
        }
        Some(())
    }

    fn call(&mut self, rest: &str) -> Option<()> {
        let mut words = rest.split(' ');
        let function = unescape(words.next()?);
        let mut point = || {
            Some(Point {
                time_s: self.timeline.header.started_s + seconds(words.next()?)?,
                bytes: bytes_of_kib(words.next()?)?,
            })
        };
        let (begin, end) = (point()?, point()?);
        let level = words.next().and_then(|word| word.parse().ok());
        self.timeline.calls.push(Call {
            function,
            begin,
            end,
            level,
        });
        Some(())
    }

    fn over(&mut self, rest: &str) -> Option<()> {
        let (time, how) = rest.split_once(' ')?;
        let ending = ending(how)?;
        let time_s = self.time(time)?;
        // Processes that ended with the run have an earlier line and no longer hold memory.
        if self.now.iter().any(Option::is_some) {
            self.hold_until(time_s);
        }
        self.timeline.ending = Some(ending);
        Some(())
    }
}

/// `key=value`.
pub fn fact(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    Some((key.to_owned(), unescape(value)))
}

pub fn ending(how: &str) -> Option<Ending> {
    match how.split_once(' ') {
        Some(("exit", code)) => Some(Ending::Exit(code.parse().ok()?)),
        Some(("signal", number)) => Some(Ending::Signal(number.parse().ok()?)),
        None if how == "running" => Some(Ending::StillRunning),
        None if how == "ended" => Some(Ending::Unknown),
        _ => None,
    }
}
