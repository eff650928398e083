//! A timeline in memory. Times are Unix seconds, sizes are bytes.

/// The meaning of the sizes in the main curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Resident: all pages, shared ones counted in every process.
    #[default]
    Rss,
    /// Proportional: a shared page is divided among the processes that share it, so that sums are right.
    Pss,
    /// Unique: bytes that would be freed if this process ended.
    Uss,
}

impl Backend {
    pub const NAMES: [(&'static str, Backend); 3] = [
        ("rss", Backend::Rss),
        ("pss", Backend::Pss),
        ("uss", Backend::Uss),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Backend::Rss => "rss",
            Backend::Pss => "pss",
            Backend::Uss => "uss",
        }
    }

    /// Parses Heaptide's names and those of mprof.
    pub fn parse(name: &str) -> Option<Backend> {
        match name {
            "rss" | "psutil" | "posix" => Some(Backend::Rss),
            "pss" | "psutil_pss" => Some(Backend::Pss),
            "uss" | "psutil_uss" => Some(Backend::Uss),
            _ => None,
        }
    }
}

/// Facts about a run that are known when it begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// The command line, as mprof writes it.
    pub command: String,
    pub host: Option<String>,
    /// Facts that distinguish processes of this run from others with the same IDs, as in the header of a capture.
    pub facts: Vec<(String, String)>,
    /// The rank that a launcher assigned.
    pub rank: Option<u32>,
    pub started_s: f64,
    pub interval_s: f64,
    pub backend: Backend,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub time_s: f64,
    pub bytes: u64,
}

/// The sizes of a process, as far as they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub resident: u64,
    /// This size and the next two are expensive, so they are read less often.
    pub proportional: Option<u64>,
    pub unique: Option<u64>,
    pub swap: Option<u64>,
}

impl Memory {
    /// Returns the size for a backend; the resident size until the other one is known.
    pub fn by(&self, backend: Backend) -> u64 {
        match backend {
            Backend::Rss => self.resident,
            Backend::Pss => self.proportional.unwrap_or(self.resident),
            Backend::Uss => self.unique.unwrap_or(self.resident),
        }
    }
}

/// One process of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    pub name: String,
    pub command: String,
    /// Its start in seconds since boot, as in the facts of a capture: `83456.12s`.
    pub start: Option<String>,
    pub began_s: Option<f64>,
    /// `None` if it outlived the recording, or if the file does not contain the time.
    pub ended_s: Option<f64>,
    /// In order of time.
    pub samples: Vec<(f64, Memory)>,
}

impl Process {
    pub fn curve(&self, backend: Backend) -> Vec<Point> {
        let point = |&(time_s, memory): &(f64, Memory)| Point {
            time_s,
            bytes: memory.by(backend),
        };
        self.samples.iter().map(point).collect()
    }
}

/// One call of a decorated function.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Dotted, from the module on. A `with` block of code has no module, so its name begins with a dot.
    pub function: String,
    pub begin: Point,
    pub end: Point,
    /// Nesting depth among decorated functions. Missing in old files.
    pub level: Option<u32>,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exit(i32),
    Signal(i32),
    /// The program ended, and its exit status is known only to its parent.
    Unknown,
    /// The program continued after the recording.
    StillRunning,
}

/// A recorded run, or the part of it that the file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    pub header: Header,
    /// The main curve: the sum of all processes, or the curve that mprof wrote.
    pub total: Vec<Point>,
    /// In a file of mprof, the first process is only in the total and not in this list.
    pub processes: Vec<Process>,
    /// Usage of the control group that the run was in.
    pub group: Vec<Point>,
    /// The limits, each from a time on; `None` is no limit.
    pub limits: Vec<(f64, Option<u64>)>,
    pub calls: Vec<Call>,
    /// Out-of-memory kills in the run's control group during the run.
    pub n_oom_kills: u64,
    pub ending: Option<Ending>,
    /// `processes` begins with the program itself.
    pub has_root: bool,
    /// One sentence for each part that could not be read.
    pub damage: Vec<String>,
}

impl Timeline {
    /// Returns the limit at the end.
    pub fn limit(&self) -> Option<u64> {
        self.limits.last().and_then(|&(_, limit)| limit)
    }

    /// Returns the processes that the program started.
    pub fn children(&self) -> &[Process] {
        let first = usize::from(self.has_root).min(self.processes.len());
        &self.processes[first..]
    }

    /// Returns the times of the first and the last sample.
    pub fn span(&self) -> Option<(f64, f64)> {
        Some((self.total.first()?.time_s, self.total.last()?.time_s))
    }
}
