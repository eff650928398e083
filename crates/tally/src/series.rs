//! The size of the heap over time, in a bounded number of points.

use crate::encoding::{Decoder, Encoder};

/// Enough for any screen; each point is the highest value within its bin.
pub const MAX_POINTS: usize = 4096;

/// The highest number of live bytes in each bin of time. Bins are equally wide; if there are too many, they are merged
/// in pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapSeries {
    /// Clock units at which the first bin begins.
    pub start_units: u64,
    /// Width of a bin in the capture's clock units.
    pub bin_units: u64,
    pub highest: Vec<u64>,
}

impl Default for HeapSeries {
    fn default() -> Self {
        HeapSeries {
            start_units: 0,
            bin_units: 1,
            highest: Vec::new(),
        }
    }
}

impl HeapSeries {
    /// Returns the clock units at which a bin begins.
    pub fn bin_start(&self, bin: usize) -> u64 {
        let elapsed = self.bin_units.saturating_mul(bin as u64);
        self.start_units.saturating_add(elapsed)
    }

    /// Adds values: the heap had `before` bytes from the time of the previous call until `time`, and up to `highest` at
    /// `time`.
    pub fn add(&mut self, time: u64, before: u64, highest: u64) {
        if self.highest.is_empty() {
            self.start_units = time;
        }
        let time = time.saturating_sub(self.start_units);
        while time / self.bin_units >= MAX_POINTS as u64 {
            self.halve();
        }
        let bin = (time / self.bin_units) as usize;
        // A thread's clock may be slightly earlier than the last one seen: its events belong to the newest bin.
        let bin = bin.max(self.highest.len().saturating_sub(1));
        if bin >= self.highest.len() {
            self.highest.resize(bin + 1, before);
        }
        self.highest[bin] = self.highest[bin].max(highest);
    }

    pub(crate) fn write(&self, out: &mut Encoder) {
        out.number(self.start_units);
        out.number(self.bin_units);
        out.number(self.highest.len() as u64);
        let mut previous = 0;
        for &highest in &self.highest {
            out.difference(highest, previous);
            previous = highest;
        }
    }

    pub(crate) fn read(input: &mut Decoder) -> Option<HeapSeries> {
        let (start_units, bin_units) = (input.number()?, input.number()?);
        let n_points = input.length(1)?;
        if bin_units == 0 || n_points > MAX_POINTS {
            return None;
        }
        let mut previous = 0;
        let mut highest = Vec::with_capacity(n_points);
        for _ in 0..n_points {
            previous = input.difference(previous)?;
            highest.push(previous);
        }
        Some(HeapSeries {
            start_units,
            bin_units,
            highest,
        })
    }

    fn halve(&mut self) {
        let pairs = self.highest.chunks(2);
        self.highest = pairs
            .map(|pair| pair.iter().copied().max().unwrap_or(0))
            .collect();
        self.bin_units = self.bin_units.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_without_events_keep_the_last_value() {
        let mut series = HeapSeries::default();
        series.add(0, 0, 100);
        series.add(3, 60, 70);
        assert_eq!(series.highest, [100, 60, 60, 70]);
    }

    #[test]
    fn first_bin_begins_with_the_first_event() {
        let mut series = HeapSeries::default();
        series.add(1 << 50, 0, 100);
        series.add((1 << 50) + 2, 60, 70);
        assert_eq!(series.highest, [100, 60, 70]);
        assert_eq!(series.bin_start(2), (1 << 50) + 2);
    }

    #[test]
    fn long_runs_stay_bounded_and_keep_their_highest_point() {
        let mut series = HeapSeries::default();
        for time in 0..1_000_000 {
            series.add(time, 5, if time == 777_777 { 99 } else { 5 });
        }
        assert!(series.highest.len() <= MAX_POINTS);
        let at = 777_777 / series.bin_units as usize;
        assert_eq!(series.highest[at], 99);
        series.add(u64::MAX, 5, 5);
        assert!(series.highest.len() <= MAX_POINTS);
    }
}
