//! A chart of memory over time. Seconds are counted from the chart's zero.

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub role: SeriesRole,
    /// Seconds and bytes, by time.
    pub points: Vec<(f64, u64)>,
    pub peak: Option<(f64, u64)>,
    pub trend: Option<Trend>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SeriesRole {
    // `process` is the process ID, with a part of the identity if others have the same ID; `name` is the title.
    /// The sum of all processes of a run: the name of its file or node, and its start in local time.
    Total { name: String, started: String },
    /// The program itself, if it has child processes.
    Program { process: String, name: String },
    /// One child process of the program.
    Child { process: String, name: String },
    /// The sum of several runs.
    Sum { n_runs: usize },
    /// The memory usage of the control group.
    Group,
}

/// The least-squares line, within the chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    pub bytes_per_s: f64,
    pub from: (f64, f64),
    pub to: (f64, f64),
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Bracket {
    /// The shortest name that no other function has.
    pub function: String,
    /// The number of the function, for colours.
    pub number: usize,
    pub begin: (f64, u64),
    pub end: (f64, u64),
    pub level: u32,
}

/// A note below the curves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChartNote {
    /// The kernel killed processes because memory ran out.
    OutOfMemory { n_kills: u64 },
    /// A signal ended the program.
    Killed { signal: i32 },
    /// The time at which memory would reach the limit at the current rate of growth.
    LimitIn {
        seconds: f64,
        limit: u64,
        has_ended: bool,
    },
    /// The limit is too far above the curves to be drawn.
    LimitFarAway { limit: u64, peak: u64 },
    /// Processes without a curve, because others are larger.
    NotDrawn { n_processes: usize },
    /// The runs do not overlap, so each begins at zero.
    NotAligned,
    /// Timelines of several hosts share a time axis. Their clocks differ by this much; `None` if it is unknown.
    SeveralHosts {
        n_hosts: usize,
        clock_difference_ns: Option<u64>,
    },
    /// The sum of the largest swap sizes of all processes. Each process may have reached its own at another time.
    LargestSwap { bytes: u64 },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    pub title: String,
    pub from_s: f64,
    pub to_s: f64,
    /// The largest value in the chart.
    pub top_bytes: u64,
    pub series: Vec<Series>,
    pub brackets: Vec<Bracket>,
    /// Whether calls are drawn as stacked bars instead of brackets.
    pub is_flame: bool,
    /// The peak of the sum, or the largest peak of a run.
    pub peak: Option<(f64, u64)>,
    pub limit: Option<u64>,
    pub notes: Vec<ChartNote>,
    /// The size that was measured: `rss`, `pss` or `uss`.
    pub backend: String,
}
