//! The table of kinds: each with its own bytes, and the bytes it retains as a group.

use super::partition::{By, Partition};
use super::retained::retained_by_groups;
use super::sites::{self, Site};
use super::view::Heap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeRow {
    pub label: String,
    pub count: u64,
    pub bytes: u64,
    /// Bytes of the objects of this row and of all objects that only these keep alive.
    pub retained: u64,
    /// The line that allocated most of its bytes, if the lines of most objects are known.
    pub site: Option<Site>,
}

#[derive(Clone, Debug)]
pub struct KindsTable {
    pub by: By,
    pub count: u64,
    pub bytes: u64,
    pub rows: Vec<TypeRow>,
}

/// The number that rows are sorted by, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Bytes,
    Retained,
    Count,
}

impl Order {
    pub const ALL: [(&'static str, Order); 3] = [
        ("size", Order::Bytes),
        ("retained", Order::Retained),
        ("count", Order::Count),
    ];
}

pub fn kinds_table(heap: &Heap, by: By, order: Order) -> KindsTable {
    let all = heap.all();
    let partition = Partition::of(heap, &all, by);
    let row_of = partition.rows_of_objects();
    let retained = retained_by_groups(
        &heap.graph,
        &heap.roots,
        partition.rows.len(),
        |object| row_of.get(object as usize).copied(),
        |object| heap.bytes(object),
    );
    let sites = sites::of_groups(heap, partition.rows.len(), row_of);
    let rows = partition.rows.iter().zip(retained).zip(sites);
    let mut rows: Vec<TypeRow> = rows
        .map(|((row, retained), site)| TypeRow {
            label: row.label.clone(),
            count: row.count,
            bytes: row.bytes,
            retained,
            site,
        })
        .collect();
    // The sort is stable: ties stay in the order of their bytes and names.
    rows.sort_by_key(|row| {
        std::cmp::Reverse(match order {
            Order::Bytes => row.bytes,
            Order::Retained => row.retained,
            Order::Count => row.count,
        })
    });
    KindsTable {
        by,
        count: partition.count,
        bytes: partition.bytes,
        rows,
    }
}
