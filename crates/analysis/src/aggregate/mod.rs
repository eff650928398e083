//! Shapes sums into the structs of reports.

mod arenas;
mod flame;
mod jobs;
mod lifetimes;
mod lines;
mod processes;
mod quality;
mod stacks;
mod stats;
mod summary;
mod timeline;
mod tree;

pub use arenas::arenas;
pub use flame::{FlameLimits, FlameTree};
pub use jobs::{JobGroups, jobs};
pub use lifetimes::lifetimes;
pub use lines::{LineChoice, lines};
pub use processes::{ProcessGrouping, process_groups};
pub(crate) use quality::clock_difference;
pub use quality::quality;
pub use stacks::{stacks, stacks_with_index};
pub use stats::{stats, stats_of};
pub use summary::{GroupBy, summary};
pub(crate) use timeline::BinnedProcess;
pub use tree::{TreeLimits, TreeShape, tree};

use heaptide_tally::{Amount, SiteSums};

use crate::load::Session;
use crate::model::Measure;

/// The bytes alive at the peak of the session: at the common peak of its processes, or the sum of each process's own
/// peak.
pub(crate) fn peak_bytes(session: &Session) -> u64 {
    let processes = session.processes.iter();
    processes
        .map(|process| process.sums.peak.bytes)
        .fold(0, u64::saturating_add)
}

/// The site's amount of a measure.
fn amount(measure: Measure, site: &SiteSums) -> Amount {
    match measure {
        Measure::Peak => site.peak,
        Measure::Leaked => site.live,
        Measure::Total => site.total,
        Measure::Temporary => site.temporary,
    }
}
