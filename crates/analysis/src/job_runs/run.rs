//! One run of a job, and the set of all runs that a report covers.

use heaptide_capture::Outcome;
use heaptide_capture::identity::{self, Identity};

use super::maybe::Maybe;
use crate::filter::shown_name;
use crate::interner::Interner;
use crate::model::Stopped;

/// How runs can end, in the order of the columns of reports.
pub const OUTCOMES: [Outcome; 7] = [
    Outcome::Ok,
    Outcome::Failed,
    Outcome::Skipped,
    Outcome::Deferred,
    Outcome::Retried,
    Outcome::Killed,
    Outcome::Running,
];

/// The memory of a run. Numbers that the source does not have are unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunNumbers {
    /// Resident size of the process.
    pub resident_before: Maybe<u64>,
    pub resident_after: Maybe<u64>,
    pub resident_peak: Maybe<u64>,
    /// The peak of the job's own blocks.
    pub peak_bytes: Maybe<u64>,
    /// Bytes that the job allocated and left, minus bytes of earlier jobs that it freed.
    pub retained_bytes: Maybe<i64>,
    /// Live bytes of this run and of earlier runs of its name in its process, at its end. Unlike the sum of `retained_bytes`,
    /// it excludes memory that was freed after a run, such as its result.
    pub name_bytes: Maybe<u64>,
    /// Allocation sites of the bytes that it left; if it left none, those of its peak. See [`JobRuns::sites_of`].
    pub sites: SiteRange,
    /// Whether `sites` are those of its peak.
    pub are_sites_of_peak: bool,
    /// Whether the numbers of the job's blocks are estimates.
    pub is_sampled: bool,
    /// The error (95%) of `peak_bytes` in bytes; 0 if it is exact.
    pub peak_error: f32,
}

/// A range of the sites of all runs. A separate list for each run would take twice the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteRange {
    first: u32,
    n_sites: u32,
}

/// The range of a key in the keys of all runs; empty if the run has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    first: u32,
    end: u32,
}

/// One run. There may be very many, so texts are stored once, in [`JobRuns`].
#[derive(Clone, Debug, PartialEq)]
pub struct JobRun {
    /// Index of [`JobRuns::names`].
    pub name: u32,
    /// Index of [`JobRuns::processes`].
    pub process: u32,
    /// Number of the job in its process, as in captures; unknown if it has none.
    pub number: Maybe<u64>,
    /// See [`JobRuns::key_of`].
    pub key: KeyRange,
    /// Seconds since 1970.
    pub started: f64,
    /// Unknown if the end of the run is unknown.
    pub seconds: Maybe<f64>,
    /// Index of [`JobRuns::errors`].
    pub error: Maybe<u32>,
    /// Index of [`JobRuns::label_values`]: the value of the label by which the report groups.
    pub label: Maybe<u32>,
    /// Index of [`JobRuns::captures`]: the file that recorded the run.
    pub capture: Maybe<u32>,
    pub outcome: Outcome,
    pub numbers: RunNumbers,
}

/// A process that ran jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobProcess {
    pub identity: Identity,
    /// Name of its run; empty if unknown.
    pub run: String,
    /// Its role or program; empty if unknown.
    pub title: String,
    /// Time of its latest record, in seconds since 1970.
    pub last_seen: f64,
    /// Why and when its recording failed before the program ended; `None` if it did not.
    pub stopped: Option<Stopped>,
}

/// All runs that a report covers, from any number of sources.
#[derive(Clone, Debug, Default)]
pub struct JobRuns {
    pub runs: Vec<JobRun>,
    /// Runs that the report leaves out. They also change the resident size of their process.
    pub left_out: Vec<JobRun>,
    pub processes: Vec<JobProcess>,
    pub names: Interner<String>,
    pub errors: Interner<String>,
    /// The key of the label by which the report groups; other labels are not stored.
    pub label: Option<String>,
    pub label_values: Interner<String>,
    pub captures: Interner<String>,
    /// `function at file:line`.
    pub sites: Interner<String>,
    /// Keys of all runs, one after the other.
    keys: String,
    /// Sites of all runs, with their bytes.
    site_bytes: Vec<(u32, u64)>,
}

/// The runs of a [`JobRuns`] by process and number.
pub struct RunIndex {
    by_number: Vec<u32>,
}

/// Two sources may differ by this many seconds in the start of the same run.
const SAME_START_SECONDS: f64 = 0.5;

impl JobRuns {
    pub fn name(&self, run: &JobRun) -> &str {
        &self.names.values[run.name as usize]
    }

    pub fn process(&self, run: &JobRun) -> &JobProcess {
        &self.processes[run.process as usize]
    }

    /// Adds the key of a run. Keys beyond four gigabytes are left out.
    pub fn add_key(&mut self, key: Option<&str>) -> KeyRange {
        let first = self.keys.len();
        self.keys.push_str(key.unwrap_or_default());
        match (u32::try_from(first), u32::try_from(self.keys.len())) {
            (Ok(first), Ok(end)) => KeyRange { first, end },
            _ => KeyRange::default(),
        }
    }

    /// The key of a run; `None` if it has none.
    pub fn key_of(&self, run: &JobRun) -> Option<&str> {
        let key = self.keys.get(run.key.first as usize..run.key.end as usize);
        key.filter(|key| !key.is_empty())
    }

    /// Adds the sites of a run, with their bytes.
    pub fn add_sites(&mut self, sites: impl Iterator<Item = (String, u64)>) -> SiteRange {
        let first = self.site_bytes.len();
        for (site, bytes) in sites {
            let site = self.sites.number(site);
            self.site_bytes.push((site, bytes));
        }
        SiteRange {
            first: first as u32,
            n_sites: (self.site_bytes.len() - first) as u32,
        }
    }

    /// The sites of a run, as indices of [`JobRuns::sites`], and their bytes.
    pub fn sites_of(&self, run: &JobRun) -> &[(u32, u64)] {
        let first = run.numbers.sites.first as usize;
        let end = first + run.numbers.sites.n_sites as usize;
        self.site_bytes.get(first..end).unwrap_or(&[])
    }

    /// Returns the index of a process, which is added if it is new.
    pub fn process_number(&mut self, identity: &Identity, run: &str) -> u32 {
        let known = self
            .processes
            .iter()
            .position(|process| process.identity.is_same(identity));
        let at = known.unwrap_or_else(|| {
            self.processes.push(JobProcess {
                identity: identity.clone(),
                run: run.to_owned(),
                title: String::new(),
                last_seen: 0.0,
                stopped: None,
            });
            self.processes.len() - 1
        });
        if self.processes[at].run.is_empty() {
            run.clone_into(&mut self.processes[at].run);
        }
        at as u32
    }

    /// Indexes the runs so far, for [`JobRuns::join`].
    pub fn index(&self) -> RunIndex {
        let numbered = self.runs.iter().enumerate();
        let numbered = numbered.filter(|(_, run)| run.number.is_known());
        let mut by_number: Vec<u32> = numbered.map(|(at, _)| at as u32).collect();
        by_number.sort_unstable_by_key(|&at| self.runs[at as usize].process_and_number());
        RunIndex { by_number }
    }

    /// Adds the run of another source. If the index has the same run, only its unknown values are filled in. Two runs
    /// are the same if process, number and start are equal. The number alone is not enough: a process that executes
    /// another program numbers its jobs from 1 again.
    pub fn join(&mut self, known: &RunIndex, other: JobRun) {
        let (all, runs) = (&known.by_number, &mut self.runs);
        let wanted = other.process_and_number();
        let key = |at: u32| runs[at as usize].process_and_number();
        let candidates = all[all.partition_point(|&at| key(at) < wanted)..].iter();
        let same = candidates
            .take_while(|&&at| other.number.is_known() && key(at) == wanted)
            .find(|&&at| (runs[at as usize].started - other.started).abs() < SAME_START_SECONDS);
        match same {
            Some(&at) => runs[at as usize].fill_in(other),
            None => runs.push(other),
        }
    }

    /// The name and title of each process, and its host if there are several hosts.
    pub fn worker_names(&self) -> Vec<String> {
        let processes = self.processes.iter();
        let identities: Vec<Identity> = processes.map(|one| one.identity.clone()).collect();
        let has_hosts = identities.windows(2).any(|two| two[0].host != two[1].host);
        let names = identity::names(&identities).into_iter();
        let described = names.zip(&self.processes);
        described
            .map(|(name, process)| {
                let host = Some(process.identity.host.as_str());
                shown_name(name, &process.title, host.filter(|_| has_hosts))
            })
            .collect()
    }

    /// Leaves out all runs whose name does not pass.
    pub fn retain_names(&mut self, passes: impl Fn(&str) -> bool) {
        let passing: Vec<bool> = self.names.values.iter().map(|name| passes(name)).collect();
        let runs = std::mem::take(&mut self.runs).into_iter();
        let (kept, left_out) = runs.partition(|run| passing[run.name as usize]);
        self.runs = kept;
        self.left_out.extend::<Vec<JobRun>>(left_out);
    }
}

impl JobRun {
    fn process_and_number(&self) -> (u32, Option<u64>) {
        (self.process, self.number.get())
    }

    /// Fills unknown values from another description of the same run.
    pub fn fill_in(&mut self, other: JobRun) {
        if self.outcome == Outcome::Running {
            self.outcome = other.outcome;
        }
        if self.key.first == self.key.end {
            self.key = other.key;
        }
        self.seconds = self.seconds.or(other.seconds);
        self.error = self.error.or(other.error);
        self.label = self.label.or(other.label);
        self.capture = self.capture.or(other.capture);
        self.numbers.fill_in(other.numbers);
    }

    /// The growth of its process while it ran.
    pub fn resident_growth(&self) -> Option<i64> {
        let numbers = &self.numbers;
        let (before, after) = (
            numbers.resident_before.get()?,
            numbers.resident_after.get()?,
        );
        Some(after as i64 - before as i64)
    }

    /// Whether the resident size was measured during the run or at its end. A killed run may have only that of its start.
    pub fn knows_resident_high(&self) -> bool {
        self.numbers.resident_after.is_known() || self.numbers.resident_peak.is_known()
    }

    /// The highest resident size of its process while it ran: the highest known one, or an estimate if that is higher.
    pub fn resident_high(&self) -> Option<u64> {
        let numbers = &self.numbers;
        let measured = [
            numbers.resident_peak,
            numbers.resident_after,
            numbers.resident_before,
        ];
        let measured = measured.into_iter().filter_map(Maybe::get).max()?;
        // Without samples of the resident size, estimate that the process grew by the peak of the job's own blocks.
        let estimated = match (numbers.resident_peak.get(), numbers.resident_before.get()) {
            (None, Some(before)) => before.saturating_add(numbers.peak_bytes.get().unwrap_or(0)),
            _ => 0,
        };
        Some(measured.max(estimated))
    }
}

impl RunNumbers {
    fn fill_in(&mut self, other: RunNumbers) {
        self.resident_before = self.resident_before.or(other.resident_before);
        self.resident_after = self.resident_after.or(other.resident_after);
        self.resident_peak = self.resident_peak.or(other.resident_peak);
        if !self.peak_bytes.is_known() && !self.retained_bytes.is_known() {
            self.is_sampled = other.is_sampled;
            self.peak_bytes = other.peak_bytes;
            self.peak_error = other.peak_error;
            self.retained_bytes = other.retained_bytes;
        }
        self.name_bytes = self.name_bytes.or(other.name_bytes);
        if self.sites.n_sites == 0 {
            self.sites = other.sites;
            self.are_sites_of_peak = other.are_sites_of_peak;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_peak_is_filled_in_only_with_that_peak() {
        let sampled = RunNumbers {
            peak_bytes: 9_000_u64.into(),
            retained_bytes: 400_i64.into(),
            is_sampled: true,
            peak_error: 800.0,
            ..RunNumbers::default()
        };
        let mut empty = RunNumbers::default();
        empty.fill_in(sampled.clone());
        assert_eq!(empty, sampled);
        // Exact numbers without a peak are not mixed with estimates.
        let exact = RunNumbers {
            retained_bytes: 500_i64.into(),
            ..RunNumbers::default()
        };
        let mut filled = exact.clone();
        filled.fill_in(sampled);
        assert_eq!(filled, exact);
    }
}
