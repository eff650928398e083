//! The time span that a report covers, and its bins: in nanoseconds since the session's start, and in the clock units of
//! each process.

use heaptide_capture::{Capture, Registry};
use heaptide_tally::halved;

use crate::filter::Filter;

/// Enough for a chart: in a run of one hour a bin is 18 seconds wide.
const MAX_BINS: u64 = 200;
/// Finer than the resolution of a capture's clock.
const MIN_BIN_NS: u64 = 1_000;

/// The edges between bins on the session's time axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub start_unix_ns: u64,
    /// Nanoseconds since the start, ascending; empty if the whole time is one bin.
    pub edges_ns: Vec<u64>,
    /// Whether there is no end, so that the last bin contains everything after its start.
    pub is_open: bool,
}

impl Window {
    /// If `is_divided`, the span is divided into bins; otherwise it is one bin, or none if the filter chooses no time.
    pub fn new(captures: &[Capture], filter: &Filter, is_divided: bool) -> Window {
        let starts = captures
            .iter()
            .map(|capture| capture.header.started_unix_ns);
        let start_unix_ns = starts.min().unwrap_or(0);
        let mut window = Window {
            start_unix_ns,
            edges_ns: Vec::new(),
            is_open: filter.to_ns.is_none(),
        };
        if !is_divided && !filter.chooses_time() {
            return window;
        }
        let ends = captures.iter().map(|capture| {
            let start = capture.header.started_unix_ns - start_unix_ns;
            start.saturating_add(capture.registry.elapsed_ns(last_units(capture)))
        });
        let from = filter.from_ns.unwrap_or(0);
        let to = filter.to_ns.unwrap_or_else(|| ends.max().unwrap_or(0));
        let to = to.max(from.saturating_add(1));
        let max_bins = if is_divided { MAX_BINS } else { 1 };
        let bin_ns = (to - from).div_ceil(max_bins).max(MIN_BIN_NS);
        let inner = (0..max_bins).map(|bin| from.saturating_add(bin_ns.saturating_mul(bin)));
        window.edges_ns = inner.take_while(|&edge| edge < to).collect();
        window.edges_ns.push(to);
        window
    }

    /// The edges in the clock units of one process.
    pub fn edges(&self, capture: &Capture) -> Vec<u64> {
        let started = capture.header.started_unix_ns;
        let start = started.saturating_sub(self.start_unix_ns);
        let registry = &capture.registry;
        let units = |ns: u64| match ns.saturating_sub(start) {
            0 => 0,
            elapsed => units_at(registry, elapsed),
        };
        let mut edges: Vec<u64> = self.edges_ns.iter().map(|&ns| units(ns)).collect();
        if let Some(last) = edges.last_mut().filter(|_| self.is_open) {
            *last = u64::MAX;
        }
        edges
    }

    /// The edges of `n_bins` bins, if bins were merged in pairs.
    pub fn coarse(&self, n_bins: usize) -> Vec<u64> {
        let mut edges = self.edges_ns.clone();
        while edges.len() > n_bins + 1 && edges.len() > 2 {
            edges = halved(&edges);
        }
        edges
    }
}

/// The latest time that is known before the events of a capture are read.
pub(crate) fn last_units(capture: &Capture) -> u64 {
    let registry = &capture.registry;
    let resident = registry.resident.last().map(|sample| sample.time);
    let chunks = capture.chunks.iter().map(|chunk| chunk.head.time).max();
    let known = [registry.end, resident, chunks];
    known.into_iter().flatten().max().unwrap_or(0)
}

/// The first clock unit that is at least this many nanoseconds after the start.
fn units_at(registry: &Registry, elapsed_ns: u64) -> u64 {
    let (mut low, mut high) = (0u64, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if registry.elapsed_ns(middle) < elapsed_ns {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
