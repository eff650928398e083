//! The sums at one moment, for a live view.

use super::Tally;
use crate::amount::Amount;
use crate::jobs::JobKey;
use crate::series::HeapSeries;
use crate::stacks::{StackId, Stacks};
use heaptide_capture::Allocator;

/// Live amounts at one moment, and the peak so far.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Sites with live blocks on the heap.
    pub sites: Vec<LiveSite>,
    pub live: Amount,
    pub peak: Amount,
    /// Clock units of the last event.
    pub time: u64,
    /// Allocations and frees so far.
    pub n_events: u64,
    pub heap: HeapSeries,
}

/// The live amount of one site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveSite {
    pub stack: StackId,
    pub stream: u32,
    pub job: JobKey,
    pub live: Amount,
}

impl Tally {
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// Returns the current sums. The tally can continue afterwards.
    pub fn snapshot(&mut self) -> Snapshot {
        self.mark_peak();
        if self.n_events > 0 {
            self.note_heap_size();
        }
        let weigher = self.weigher;
        let sites = self.sites.live().filter_map(|(key, live)| {
            let live = weigher.finish(live);
            let is_on_heap = key.allocator != Allocator::MmapFile as u8;
            (is_on_heap && (live.bytes > 0 || live.count > 0)).then_some(LiveSite {
                stack: key.stack,
                stream: key.stream,
                job: key.job,
                live,
            })
        });
        Snapshot {
            sites: sites.collect(),
            live: weigher.finish(self.now),
            peak: weigher.finish(self.peak),
            time: self.time,
            n_events: self.n_events,
            heap: self.series.clone(),
        }
    }
}
