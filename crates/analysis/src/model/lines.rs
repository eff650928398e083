//! A function's source, line by line, with what is known of each line.

use super::Quality;

/// Functions of a capture, the largest first.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    pub tables: Vec<LineTable>,
    /// How many there are, shown or not.
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
    /// `None` if the line was not run, or not watched.
    pub visits: Option<LineVisits>,
    /// `None` if nothing was allocated there, or not recorded.
    pub heap: Option<LineHeap>,
}

/// What a line hook saw: the size of the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineVisits {
    pub n_visits: u64,
    /// The most that was resident when the line was left.
    pub most_bytes: i64,
    /// What the process grew by while the line ran, over all visits.
    pub increment_bytes: i64,
}

/// What a recording saw: blocks allocated by the line and by what it called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineHeap {
    pub total_bytes: u64,
    pub n_allocations: u64,
    /// Alive when the heap was largest.
    pub peak_bytes: u64,
    /// Alive when recording ended.
    pub leaked_bytes: u64,
}

impl LineTable {
    /// The most that was resident at any line.
    pub fn most_bytes(&self) -> i64 {
        let rows = self.rows.iter().filter_map(|row| row.visits);
        rows.map(|visits| visits.most_bytes).max().unwrap_or(0)
    }
}
