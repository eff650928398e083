//! The source of a function, line by line, with the memory of each line.

use super::Quality;

/// Functions of a capture, the largest first.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    pub tables: Vec<LineTable>,
    /// The number of all functions, shown or not.
    pub n_functions: usize,
    pub quality: Quality,
}

/// One function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTable {
    pub file: String,
    pub function: String,
    pub rows: Vec<LineRow>,
}

/// One line of source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineRow {
    pub number: u32,
    /// With its indentation, without the line end.
    pub text: String,
    /// `None` if the line was not run, or line events were not recorded.
    pub visits: Option<LineVisits>,
    /// `None` if the line allocated nothing, or if there is no recording.
    pub heap: Option<LineHeap>,
}

/// Measured by line events: the size of the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineVisits {
    pub n_visits: u64,
    /// The largest resident size after the line.
    pub most_bytes: i64,
    /// The growth of the process while the line ran, summed over all visits.
    pub increment_bytes: i64,
}

/// From a recording: blocks allocated by the line and its callees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineHeap {
    pub total_bytes: u64,
    pub n_allocations: u64,
    /// Live at the peak.
    pub peak_bytes: u64,
    /// Live when the recording ended.
    pub leaked_bytes: u64,
}

impl LineTable {
    /// The largest resident size at any line.
    pub fn most_bytes(&self) -> i64 {
        let rows = self.rows.iter().filter_map(|row| row.visits);
        rows.map(|visits| visits.most_bytes).max().unwrap_or(0)
    }
}
