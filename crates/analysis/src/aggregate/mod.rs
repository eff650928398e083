//! From sums to what a report shows.

mod quality;
mod stats;
mod summary;
mod together;
mod tree;

pub use quality::quality;
pub use stats::stats;
pub use summary::summary;
pub use together::peak_together;
pub use tree::{TreeLimits, tree};

use heaptide_capture::tally::{Amount, SiteSums};

/// Which blocks a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Alive when the heap was largest; of several processes, each at its own peak.
    Peak,
    /// Alive at the end.
    Leaked,
    /// Ever allocated.
    Total,
}

impl View {
    pub fn amount(self, site: &SiteSums) -> Amount {
        match self {
            View::Peak => site.peak,
            View::Leaked => site.live,
            View::Total => site.total,
        }
    }
}
