//! The data that reports show: plain structs with resolved names and sizes in bytes. No rounding, no colours.

pub mod chart;
pub mod diff;
pub mod finding;
pub mod flame;
pub mod jobs;
pub mod ledger;
pub mod lines;
pub mod live;
pub mod quality;
pub mod stacks;
pub mod stats;
pub mod summary;
pub mod tree;

pub use diff::{Change, Diff, DiffFrame, DiffSide, DiffStack, Estimate};
pub use finding::{Finding, Number, Sentence, SentenceValue};
pub use flame::Flame;
pub use jobs::{JobGroup, JobProcess, JobSiteSum, JobSums};
pub use ledger::Ledger;
pub use lines::{LineHeap, LineRow, LineTable, LineVisits, Lines};
pub use live::Live;
pub use quality::{
    ModeInterval, PeakMoment, ProcessSummary, PythonArenas, Quality, Sampling, Stopped,
};
pub use stacks::{ProcessStacks, Reading, SiteSum, StackModel, StackNode, ThreadName};
pub use stats::{
    Histogram, LifetimeClass, LocationSum, Metadata, ModuleSum, ProcessGroup, SizeBin, Stats,
};
pub use summary::{FunctionSum, Summary};
pub use tree::{NodeContent, Tree, TreeNode};

pub use crate::symbols::Location;

/// The blocks that a report or a column counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Alive when the heap was largest, at [`PeakMoment`].
    #[default]
    Peak,
    /// Alive at the end.
    Leaked,
    /// Ever allocated.
    Total,
    /// Freed shortly after the allocation.
    Temporary,
}

impl Measure {
    pub const ALL: [Measure; 4] = [
        Measure::Peak,
        Measure::Leaked,
        Measure::Total,
        Measure::Temporary,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Peak => "peak",
            Measure::Leaked => "leaked",
            Measure::Total => "total",
            Measure::Temporary => "temporary",
        }
    }
}
