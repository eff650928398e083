//! Reads files of job records into runs. Lines may come in any order, and copies of a file count once.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, Read};

use heaptide_capture::{Identity, Outcome};
use rustc_hash::FxHashMap;

use super::lines::{Event, Line, Skipped};
use super::run::{JobRun, JobRuns, RunNumbers};

/// A longer line is skipped: Heaptide writes none.
const MAX_LINE_BYTES: usize = 1 << 20;
/// The begin and the end of a run agree about its start, except for rounding.
const ROUNDING_SECONDS: f64 = 0.001;

/// Counts of lines, for the notes of a report about its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordNotes {
    pub n_lines: u64,
    /// Lines in an unknown format: cut by a kill or a full disk, or of another program.
    pub n_invalid: u64,
    /// Lines of a later release.
    pub n_newer: u64,
}

#[derive(Default)]
pub struct RecordReader {
    runs: JobRuns,
    notes: RecordNotes,
    /// Maps the hash of a process, an ID and the number of earlier uses of that ID to a run. With a million runs, two
    /// equal hashes have a probability of one in thirty million.
    by_id: FxHashMap<u64, u32>,
    hashes: RandomState,
    processes: FxHashMap<String, u32>,
}

impl RecordReader {
    /// Reads files for a report that groups runs by the label with this key.
    pub fn with_label(key: Option<String>) -> RecordReader {
        let mut reader = RecordReader::default();
        reader.runs.label = key;
        reader
    }

    /// Reads all lines of a file.
    pub fn read(&mut self, mut file: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let n_read = file
                .by_ref()
                .take(MAX_LINE_BYTES as u64)
                .read_until(b'\n', &mut line)?;
            if n_read == 0 {
                return Ok(());
            }
            if n_read == MAX_LINE_BYTES && line.last() != Some(&b'\n') {
                self.notes.n_lines += 1;
                self.notes.n_invalid += 1;
                skip_line(&mut file)?;
                continue;
            }
            let text = line.trim_ascii();
            if !text.is_empty() {
                self.line(text);
            }
        }
    }

    fn line(&mut self, text: &[u8]) {
        self.notes.n_lines += 1;
        match Line::parse(text, self.runs.label.as_deref()) {
            Ok(line) => self.take(line),
            Err(Skipped::Invalid) => self.notes.n_invalid += 1,
            Err(Skipped::Newer) => self.notes.n_newer += 1,
        }
    }

    fn take(&mut self, line: Line) {
        let process = self.process(&line);
        let described = &mut self.runs.processes[process as usize];
        if line.time >= described.last_seen && !line.title.is_empty() {
            described.title.clone_from(&line.title);
        }
        described.last_seen = described.last_seen.max(line.time);
        let started = line.started();
        // A process that executes another program may reuse an ID.
        for n_before in 0.. {
            let hash = self.hashes.hash_one((process, &line.id, n_before));
            let Some(&at) = self.by_id.get(&hash) else {
                self.by_id.insert(hash, self.runs.runs.len() as u32);
                let run = self.run(process, line);
                self.runs.runs.push(run);
                return;
            };
            let known = &self.runs.runs[at as usize];
            let is_same_start = (known.started - started).abs() < ROUNDING_SECONDS;
            // An end without a duration does not contain the start, so it belongs to the running job.
            let is_its_end = line.event == Event::End
                && line.seconds.is_none()
                && known.outcome == Outcome::Running;
            if is_same_start || is_its_end {
                let other = self.run(process, line);
                self.runs.runs[at as usize].update(other);
                return;
            }
        }
    }

    fn process(&mut self, line: &Line) -> u32 {
        let identity = &line.identity;
        // Job records have all parts of an identity, so equal texts mean the same process.
        let key = format!(
            "{}\n{}\n{}\n{}\n{}",
            identity.host, identity.boot_id, identity.pid_namespace, identity.pid, identity.start
        );
        if let Some(&number) = self.processes.get(&key) {
            return number;
        }
        let number = self.runs.process_number(identity, &line.run);
        self.processes.insert(key, number);
        number
    }

    fn run(&mut self, process: u32, line: Line) -> JobRun {
        let started = line.started();
        let texts = &mut self.runs;
        let sites = texts.add_sites(line.sites.into_iter());
        JobRun {
            name: texts.names.number(line.name),
            process,
            number: line.number.into(),
            key: texts.add_key(line.key.as_deref()),
            started,
            seconds: line.seconds.into(),
            outcome: line.outcome,
            error: line.error.map(|error| texts.errors.number(error)).into(),
            label: line
                .label
                .map(|value| texts.label_values.number(value))
                .into(),
            capture: line.capture.map(|path| texts.captures.number(path)).into(),
            numbers: RunNumbers {
                resident_before: line.resident_before.into(),
                resident_after: line.resident_after.into(),
                resident_peak: line.resident_peak.into(),
                peak_bytes: line.peak_bytes.into(),
                retained_bytes: line.retained_bytes.into(),
                name_bytes: line.name_bytes.into(),
                is_sampled: false,
                peak_error: 0.0,
                sites,
                are_sites_of_peak: false,
            },
        }
    }

    /// Returns the runs. A run without an end is still running if `is_alive` is true for its process; otherwise it was
    /// killed. `is_alive` gets the identity of the process and the time of its latest record.
    pub fn finish(
        mut self,
        mut is_alive: impl FnMut(&Identity, f64) -> bool,
    ) -> (JobRuns, RecordNotes) {
        let mut alive: Vec<Option<bool>> = vec![None; self.runs.processes.len()];
        for run in &mut self.runs.runs {
            if run.outcome == Outcome::Running {
                let at = run.process as usize;
                let process = &self.runs.processes[at];
                let is_alive = *alive[at]
                    .get_or_insert_with(|| is_alive(&process.identity, process.last_seen));
                if !is_alive {
                    run.outcome = Outcome::Killed;
                }
            }
        }
        (self.runs, self.notes)
    }
}

impl JobRun {
    /// Applies another line about the same run. Its values replace earlier ones, since a job may be measured again after its
    /// end.
    fn update(&mut self, other: JobRun) {
        if other.outcome == Outcome::Running {
            // This is the begin of a run whose end was read first, or a copy.
            self.started = other.started;
            self.fill_in(other);
            return;
        }
        let before = std::mem::replace(self, other);
        self.started = before.started;
        self.fill_in(before);
    }
}

/// Skips the rest of a line without storing it.
fn skip_line(file: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = file.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        match buffer.iter().position(|&byte| byte == b'\n') {
            Some(at) => {
                file.consume(at + 1);
                return Ok(());
            }
            None => {
                let n_bytes = buffer.len();
                file.consume(n_bytes);
            }
        }
    }
}
