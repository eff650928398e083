//! Shapes sums into the structs of reports.

mod arenas;
mod flame;
mod lifetimes;
mod lines;
mod quality;
mod stacks;
mod stats;
mod summary;
mod timeline;
mod tree;

pub use arenas::arenas;
pub use flame::{FlameLimits, FlameTree};
pub use lifetimes::lifetimes;
pub use lines::{LineChoice, lines};
pub use quality::quality;
pub use stacks::stacks;
pub use stats::stats;
pub use summary::{GroupBy, summary};
pub(crate) use timeline::Line;
pub use tree::{TreeLimits, TreeShape, tree};

use heaptide_tally::{Amount, SiteSums};

use crate::load::Session;
use crate::model::Measure;

/// The bytes alive at the peak of the session: at the common peak of its processes, or each at its own.
pub(crate) fn peak_bytes(session: &Session) -> u64 {
    let processes = session.processes.iter();
    processes.map(|process| process.sums.peak.bytes).sum()
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
