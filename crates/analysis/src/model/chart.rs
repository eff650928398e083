//! What a chart of memory over time shows. Seconds are counted from the chart's own zero.

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub role: SeriesRole,
    /// Seconds and bytes, in order of time.
    pub points: Vec<(f64, u64)>,
    pub peak: Option<(f64, u64)>,
    pub trend: Option<Trend>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SeriesRole {
    /// All processes of a run together: the name of its file or node, and its start in local time.
    Total { name: String, started: String },
    /// The program itself, if it started others.
    Program { pid: u32, name: String },
    /// One process that the program started.
    Child { pid: u32, name: String },
    /// Several runs together.
    Sum { n_runs: usize },
    /// Usage of the control group.
    Group,
}

/// The line with the least squares, within the chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    pub bytes_per_s: f64,
    pub from: (f64, f64),
    pub to: (f64, f64),
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Bracket {
    /// As short as it can be.
    pub function: String,
    /// Which function it is, for colours.
    pub number: usize,
    pub begin: (f64, u64),
    pub end: (f64, u64),
    pub level: u32,
}

/// What there is to say besides the curves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChartNote {
    /// The kernel killed this often for lack of memory.
    OutOfMemory {
        n_kills: u64,
    },
    /// The program was ended by a signal.
    Killed {
        signal: i32,
    },
    /// If it goes on like this, or would have.
    LimitIn {
        seconds: f64,
        limit: u64,
        has_ended: bool,
    },
    /// The limit is so far above that the chart does not show it.
    LimitFarAway {
        limit: u64,
        peak: u64,
    },
    /// Processes that have no curve of their own because others are larger.
    NotDrawn {
        n_processes: usize,
    },
    /// Runs of different times, each counted from its own beginning.
    NotAligned,
    SwapAtPeak {
        bytes: u64,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    pub title: String,
    pub from_s: f64,
    pub to_s: f64,
    /// The largest of everything that is drawn.
    pub top_bytes: u64,
    pub series: Vec<Series>,
    pub brackets: Vec<Bracket>,
    /// Calls as bars on top of each other instead of brackets.
    pub is_flame: bool,
    /// Of the first series: where it is largest.
    pub peak: Option<(f64, u64)>,
    pub limit: Option<u64>,
    pub notes: Vec<ChartNote>,
    /// What the sizes are: `rss`, `pss` or `uss`.
    pub backend: String,
}
