//! Sets divided into rows, and tables of rows whose objects are no longer available.

use std::sync::OnceLock;

use heaptide_analysis::heap::{self, Partition, diff};
use heaptide_report::text::heap::{self as text, More};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use super::{HeapSet, rendered};

/// Count, bytes, name.
type Row = (u64, u64, String);

/// A set in rows, the largest first.
#[pyclass(frozen, module = "heaptide._native")]
pub struct HeapPartition {
    set: HeapSet,
    partition: Partition,
    /// The partition with the row of each object. Computed when it is first needed, if `partition` has only sums.
    full: OnceLock<Partition>,
}

impl HeapPartition {
    pub(super) fn new(set: HeapSet, partition: Partition) -> HeapPartition {
        HeapPartition {
            set,
            partition,
            full: OnceLock::new(),
        }
    }

    /// Rows with their objects.
    fn full(&self) -> &Partition {
        if self.partition.rows_of_objects().len() as u64 == self.partition.count {
            return &self.partition;
        }
        self.full
            .get_or_init(|| Partition::of(&self.set.heap, self.set.objects(), self.partition.by))
    }
}

#[pymethods]
impl HeapPartition {
    fn __len__(&self) -> usize {
        self.partition.rows.len()
    }

    /// Count, bytes and name of rows from `first` on, no more than `limit`.
    #[pyo3(signature = (first=0, limit=None))]
    fn rows(&self, first: usize, limit: Option<usize>) -> Vec<Row> {
        let rows = self.partition.rows.iter().skip(first);
        let rows = rows.take(limit.unwrap_or(usize::MAX));
        rows.map(|row| (row.count, row.bytes, row.label.clone()))
            .collect()
    }

    /// The objects of one row.
    fn members(&self, row: usize) -> PyResult<HeapSet> {
        if row >= self.partition.rows.len() {
            return Err(PyIndexError::new_err(format!(
                "there is no row {row}: the table has {}",
                self.partition.rows.len()
            )));
        }
        let members = self.full().members(self.set.objects(), row);
        Ok(self.set.with(members))
    }

    /// The objects of rows from `first` up to and excluding `end`.
    fn members_between(&self, first: usize, end: usize) -> HeapSet {
        let rows = self.set.objects().iter();
        let rows = rows.zip(self.full().rows_of_objects());
        let wanted = rows.filter(|&(_, &row)| (first..end).contains(&(row as usize)));
        self.set.with(wanted.map(|(object, _)| object).collect())
    }

    /// Heapy's table: rows from `first` on, `n_rows` of them, or all if that is 0.
    #[pyo3(signature = (first=0, n_rows=10))]
    fn table(&self, first: usize, n_rows: usize) -> PyResult<String> {
        rendered(|out| text::partition(out, &self.partition, first, n_rows, More::Session))
    }

    /// The title of the column with names.
    #[getter]
    fn heading(&self) -> &'static str {
        text::heading(self.partition.by)
    }
}

fn heap_rows(rows: Vec<Row>) -> Vec<heap::Row> {
    let rows = rows.into_iter();
    rows.map(|(count, bytes, label)| heap::Row {
        label,
        count,
        bytes,
    })
    .collect()
}

/// Heapy's table of rows without objects: count, bytes and name of each.
#[pyfunction]
#[pyo3(signature = (by, rows, first=0, n_rows=10))]
pub fn heap_rows_table(by: &str, rows: Vec<Row>, first: usize, n_rows: usize) -> PyResult<String> {
    let table = Partition::of_rows(super::by(by)?, heap_rows(rows));
    rendered(|out| text::partition(out, &table, first, n_rows, More::Session))
}

/// Heapy's table of the differences between two lists of rows.
#[pyfunction]
#[pyo3(signature = (by, before, after, n_rows=10))]
pub fn heap_rows_difference(
    by: &str,
    before: Vec<Row>,
    after: Vec<Row>,
    n_rows: usize,
) -> PyResult<String> {
    let found = diff::diff_of_rows(heap_rows(before), heap_rows(after));
    let by = super::by(by)?;
    rendered(|out| text::difference(out, &found, by, n_rows, More::Session))
}
