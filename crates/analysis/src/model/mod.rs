//! What reports show: plain data with names resolved and bytes as bytes. No behaviour, no rounding, no colours.

pub mod chart;
pub mod diff;
pub mod findings;
pub mod flame;
pub mod lines;
pub mod live;
pub mod quality;
pub mod stacks;
pub mod stats;
pub mod summary;
pub mod tree;

pub use diff::{Change, Diff, DiffSide, DiffStack, Estimate};
pub use findings::Finding;
pub use flame::Flame;
pub use lines::{LineHeap, LineRow, LineTable, LineVisits, Lines};
pub use live::Live;
pub use quality::{ProcessSummary, Quality, Sampling};
pub use stacks::{ProcessStacks, Reading, SiteSum, StackModel, StackNode, ThreadName};
pub use stats::{Histogram, LifetimeClass, LocationSum, Metadata, ModuleSum, SizeBin, Stats};
pub use summary::{FunctionSum, Summary};
pub use tree::{NodeKind, Tree, TreeNode};

pub use crate::symbols::Location;

/// Which blocks a report is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Alive when the heap was largest; of several processes, each at its own peak.
    #[default]
    Peak,
    /// Alive at the end.
    Leaked,
    /// Ever allocated.
    Total,
    /// Released at once.
    Temporary,
}
