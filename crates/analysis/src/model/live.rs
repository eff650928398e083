//! The memory of a running program at one time, by function, thread and job, and its curve until then.
//!
//! Unlike the other models, this one is sent to other threads and processes, so it owns its texts.

use heaptide_capture::{Lost, PYTHON_ARENA_FILE};

use super::quality::Stopped;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    pub pid: u32,
    pub command: Vec<String>,
    /// Nanoseconds since the recording began.
    pub elapsed_ns: u64,
    /// Whether the recording has ended normally, so that these numbers are final.
    pub is_ended: bool,
    /// Alive on the heap.
    pub heap_bytes: u64,
    pub n_blocks: u64,
    pub peak_bytes: u64,
    pub resident_bytes: Option<u64>,
    pub limit_bytes: Option<u64>,
    /// Mean bytes between two recorded allocations; 0 if every one is recorded.
    pub sample_bytes: u64,
    /// Allocations and frees so far.
    pub n_events: u64,
    pub lost: Vec<(Lost, u64)>,
    /// The recording failed, so these numbers do not change any more.
    pub stopped: Option<Stopped>,
    /// The number of damaged parts of the file.
    pub n_damaged: u64,
    pub threads: Vec<LiveThread>,
    /// Names of jobs that run or hold memory. The first one, with an empty name, is memory outside of jobs; there are no
    /// others if the program marks no jobs.
    pub jobs: Vec<LiveJob>,
    /// Largest first.
    pub functions: Vec<LiveFunction>,
    /// The number of functions that are too small to be listed.
    pub n_more: u64,
    pub curve: Curve,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveThread {
    pub os_id: u32,
    pub name: String,
}

/// All jobs of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveJob {
    pub name: String,
    pub n_running: u64,
    /// By thread; own and total bytes are equal.
    pub held: Vec<Held>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveFunction {
    pub function: String,
    pub file: String,
    /// By thread and job, without zeros.
    pub held: Vec<Held>,
}

/// The bytes that a function holds in one thread for one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Index in [`Live::threads`].
    pub thread: u32,
    /// Index in [`Live::jobs`]; 0 outside of jobs.
    pub job: u32,
    /// Allocated by the function itself.
    pub own_bytes: u64,
    /// Allocated by the function and its callees.
    pub total_bytes: u64,
    /// The number of blocks in `total_bytes`.
    pub count: u64,
}

/// Memory over time: the highest value in each of several intervals of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    pub bin_ns: u64,
    pub heap: Vec<Option<u64>>,
    pub resident: Vec<Option<u64>>,
}

/// The number that functions are sorted by, largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveOrder {
    #[default]
    Total,
    Own,
    Count,
}

/// The memory that a view shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveChoice {
    /// Index in [`Live::threads`]; `None` for all.
    pub thread: Option<u32>,
    /// Indexes in [`Live::jobs`]; `None` for all.
    pub jobs: Option<Vec<u32>>,
}

impl LiveChoice {
    fn has(&self, held: &Held) -> bool {
        self.thread.is_none_or(|thread| thread == held.thread) && self.has_job(held.job)
    }

    fn has_job(&self, job: u32) -> bool {
        self.jobs.as_ref().is_none_or(|jobs| jobs.contains(&job))
    }
}

/// The bytes that a function, or the jobs of a name, hold in the chosen threads and jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveRow<'a> {
    /// The name of the function or job.
    pub function: &'a str,
    /// Empty for jobs.
    pub file: &'a str,
    /// The number of jobs of this name that run.
    pub n_running: u64,
    pub own_bytes: u64,
    pub total_bytes: u64,
    pub count: u64,
}

impl Live {
    /// Bytes in arenas of Python's object allocator.
    pub fn python_arena_bytes(&self) -> u64 {
        let functions = self.functions.iter();
        let arenas = functions.filter(|function| function.file == PYTHON_ARENA_FILE);
        let held = arenas.flat_map(|function| &function.held);
        held.map(|held| held.own_bytes).fold(0, u64::saturating_add)
    }

    /// The functions that hold memory in the chosen threads and jobs.
    pub fn rows(&self, choice: &LiveChoice, order: LiveOrder) -> Vec<LiveRow<'_>> {
        let mut rows: Vec<LiveRow> = Vec::new();
        for function in &self.functions {
            let mut row = LiveRow {
                function: &function.function,
                file: &function.file,
                ..LiveRow::default()
            };
            row.add(&function.held, choice);
            if row.count > 0 || row.total_bytes > 0 {
                rows.push(row);
            }
        }
        sort(&mut rows, order);
        rows
    }

    /// The names of jobs that run or hold memory in the chosen threads.
    pub fn job_rows(&self, choice: &LiveChoice, order: LiveOrder) -> Vec<LiveRow<'_>> {
        let mut rows: Vec<LiveRow> = Vec::new();
        let jobs = self.jobs.iter().zip(0..);
        for (job, _) in jobs.filter(|&(_, at)| choice.has_job(at)) {
            let mut row = LiveRow {
                function: match job.name.as_str() {
                    "" => NO_JOB,
                    name => name,
                },
                n_running: job.n_running,
                ..LiveRow::default()
            };
            row.add(&job.held, choice);
            if row.count > 0 || row.total_bytes > 0 || row.n_running > 0 {
                rows.push(row);
            }
        }
        sort(&mut rows, order);
        rows
    }

    /// Indexes of the jobs whose names pass.
    pub fn jobs_named(&self, passes: impl Fn(&str) -> bool) -> Vec<u32> {
        let jobs = self.jobs.iter().zip(0..).skip(1);
        jobs.filter(|(job, _)| passes(&job.name))
            .map(|(_, at)| at)
            .collect()
    }
}

impl LiveRow<'_> {
    fn add(&mut self, held: &[Held], choice: &LiveChoice) {
        for held in held.iter().filter(|held| choice.has(held)) {
            self.own_bytes = self.own_bytes.saturating_add(held.own_bytes);
            self.total_bytes = self.total_bytes.saturating_add(held.total_bytes);
            self.count = self.count.saturating_add(held.count);
        }
    }
}

/// Memory outside of jobs, as other reports name it.
const NO_JOB: &str = "<no job>";

fn sort(rows: &mut [LiveRow<'_>], order: LiveOrder) {
    rows.sort_by_key(|row| {
        let first = match order {
            LiveOrder::Total => row.total_bytes,
            LiveOrder::Own => row.own_bytes,
            LiveOrder::Count => row.count,
        };
        let largest_first = std::cmp::Reverse((first, row.total_bytes, row.own_bytes));
        (largest_first, row.file, row.function)
    });
}
