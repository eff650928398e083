//! A timeline in memory. Times are Unix seconds, sizes are bytes.

/// What the sizes of a main curve mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Resident: all pages, shared ones counted in every process.
    #[default]
    Rss,
    /// Proportional: a shared page is divided among those who share it, so that sums are right.
    Pss,
    /// Unique: what would be free if this process ended.
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

    /// By our names and by those of mprof.
    pub fn parse(name: &str) -> Option<Backend> {
        match name {
            "rss" | "psutil" | "posix" => Some(Backend::Rss),
            "pss" | "psutil_pss" => Some(Backend::Pss),
            "uss" | "psutil_uss" => Some(Backend::Uss),
            _ => None,
        }
    }
}

/// What is known of a run when it begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// The command line, as mprof writes it.
    pub command: String,
    pub host: Option<String>,
    /// The rank that a launcher gave, of a run of many.
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

/// What a process holds, as far as it was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub resident: u64,
    /// These three cost much to find out, and are looked at less often.
    pub proportional: Option<u64>,
    pub unique: Option<u64>,
    pub swap: Option<u64>,
}

impl Memory {
    /// The figure that a backend stands for; resident size until the other one is known.
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
    pub began_s: Option<f64>,
    /// `None`: it outlived the recording, or the file does not tell.
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

/// One call of a function that was bracketed by the decorator.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Dotted, from the module on; a block without a module begins with a dot.
    pub function: String,
    pub begin: Point,
    pub end: Point,
    /// How many bracketed functions were around it. Old files do not say.
    pub level: Option<u32>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exit(i32),
    Signal(i32),
    /// It ended, and only its parent knows how.
    Unknown,
    /// It went on when the recording stopped.
    StillRunning,
}

/// A recorded run, or as much of it as the file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    pub header: Header,
    /// The curve that stands for the whole: all processes together, or what mprof was told to write.
    pub total: Vec<Point>,
    /// Without the first one in files of mprof, which count it in the total only.
    pub processes: Vec<Process>,
    /// Usage of the control group that the run was in.
    pub group: Vec<Point>,
    /// The limits that held, each from a moment on; none may hold.
    pub limits: Vec<(f64, Option<u64>)>,
    pub calls: Vec<Call>,
    /// How often the kernel killed for lack of memory during the run, where it was in charge of this run.
    pub n_oom_kills: u64,
    pub ending: Option<Ending>,
    /// Whether `processes` begins with the program itself.
    pub has_root: bool,
    /// Sentences about what could not be read.
    pub damage: Vec<String>,
}

impl Timeline {
    /// The tightest limit that held at the end.
    pub fn limit(&self) -> Option<u64> {
        self.limits.last().and_then(|&(_, limit)| limit)
    }

    /// The processes that the program started.
    pub fn children(&self) -> &[Process] {
        let first = usize::from(self.has_root).min(self.processes.len());
        &self.processes[first..]
    }

    /// Seconds between the first and the last sample.
    pub fn span(&self) -> Option<(f64, f64)> {
        Some((self.total.first()?.time_s, self.total.last()?.time_s))
    }
}
