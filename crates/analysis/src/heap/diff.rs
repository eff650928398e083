//! Compares snapshots of one process. An object is the same if it has the same address and the same type.
//!
//! Memory is reused, so a new object may have the address of an old one of its type. Differences are therefore lower bounds
//! of the new and the freed objects.

use rustc_hash::FxHashMap;

use super::partition::{By, Partition, Row};
use super::set::ObjectSet;
use super::view::Heap;

/// The difference of two snapshots.
#[derive(Clone, Debug)]
pub struct HeapDiff {
    pub before: Amount,
    pub after: Amount,
    /// One for each label of the grouping, the largest change of bytes first.
    pub rows: Vec<HeapChange>,
    /// Objects only in the later snapshot; empty if the snapshots are of different processes.
    pub new: ObjectSet,
    /// Objects only in the earlier snapshot.
    pub gone: ObjectSet,
    /// Whether addresses identify objects in both snapshots.
    pub is_same_process: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub count: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapChange {
    pub label: String,
    pub before: Amount,
    pub after: Amount,
    pub new: Amount,
    pub gone: Amount,
}

impl HeapChange {
    pub fn count(&self) -> i64 {
        self.after.count as i64 - self.before.count as i64
    }

    pub fn bytes(&self) -> i64 {
        self.after.bytes as i64 - self.before.bytes as i64
    }
}

pub fn diff(before: &Heap, after: &Heap, by: By) -> HeapDiff {
    let is_same_process = is_same_process(before, after);
    let (new, gone) = if is_same_process {
        (only_in(after, before), only_in(before, after))
    } else {
        (ObjectSet::default(), ObjectSet::default())
    };
    let parts = [
        (before, &before.all()),
        (after, &after.all()),
        (after, &new),
        (before, &gone),
    ];
    let rows = changes(parts.map(|(heap, set)| Partition::of(heap, set, by).rows));
    let amount = |heap: &Heap| Amount {
        count: heap.n_objects() as u64,
        bytes: heap.snapshot.total_bytes(),
    };
    HeapDiff {
        before: amount(before),
        after: amount(after),
        rows,
        new,
        gone,
        is_same_process,
    }
}

/// The difference of two tables of rows.
pub fn diff_of_rows(before: Vec<Row>, after: Vec<Row>) -> HeapDiff {
    let amount = |rows: &[Row]| Amount {
        count: rows.iter().map(|row| row.count).sum(),
        bytes: rows
            .iter()
            .map(|row| row.bytes)
            .fold(0, u64::saturating_add),
    };
    HeapDiff {
        before: amount(&before),
        after: amount(&after),
        rows: changes([before, after, Vec::new(), Vec::new()]),
        new: ObjectSet::default(),
        gone: ObjectSet::default(),
        is_same_process: false,
    }
}

/// The changes by label, from rows before, after, new and gone.
fn changes(parts: [Vec<Row>; 4]) -> Vec<HeapChange> {
    let picks: [fn(&mut HeapChange) -> &mut Amount; 4] = [
        |change| &mut change.before,
        |change| &mut change.after,
        |change| &mut change.new,
        |change| &mut change.gone,
    ];
    let mut changes: FxHashMap<String, HeapChange> = FxHashMap::default();
    for (rows, pick) in parts.into_iter().zip(picks) {
        for row in rows {
            let change = changes.entry(row.label).or_default();
            *pick(change) = Amount {
                count: row.count,
                bytes: row.bytes,
            };
        }
    }
    let mut rows: Vec<HeapChange> = changes
        .into_iter()
        .map(|(label, change)| HeapChange { label, ..change })
        .filter(|change| change.before != change.after || change.new.count + change.gone.count > 0)
        .collect();
    rows.sort_by(|a, b| {
        let size = |change: &HeapChange| change.bytes().unsigned_abs();
        size(b)
            .cmp(&size(a))
            .then(b.count().unsigned_abs().cmp(&a.count().unsigned_abs()))
            .then_with(|| a.label.cmp(&b.label))
    });
    rows
}

/// Whether both snapshots are of the same process, so that addresses can be compared.
pub fn is_same_process(one: &Heap, other: &Heap) -> bool {
    let (one, other) = (&one.snapshot.header, &other.snapshot.header);
    one.identity().is_same(&other.identity())
}

/// Objects of `heap` that `other` does not have.
pub fn only_in(heap: &Heap, other: &Heap) -> ObjectSet {
    matching(heap, other, false)
}

/// Objects of `heap` that `other` also has.
pub fn also_in(heap: &Heap, other: &Heap) -> ObjectSet {
    matching(heap, other, true)
}

/// Objects that were created under load and are still alive afterwards: in `load` and `after`, but not in `baseline`.
pub fn leaked(baseline: &Heap, load: &Heap, after: &Heap) -> ObjectSet {
    only_in(after, baseline).intersection(&also_in(after, load))
}

fn matching(heap: &Heap, other: &Heap, wanted: bool) -> ObjectSet {
    // Maps type numbers of one snapshot to the other: types are the same by name and address.
    let mut numbers: FxHashMap<(u64, &str, &str), u32> = FxHashMap::default();
    for (number, one) in other.snapshot.types.iter().enumerate() {
        numbers.insert((one.address, &one.module, &one.name), number as u32);
    }
    let types = heap.snapshot.types.iter();
    let types: Vec<Option<u32>> = types
        .map(|one| {
            let key = (one.address, one.module.as_str(), one.name.as_str());
            numbers.get(&key).copied()
        })
        .collect();
    let (own, others) = (&heap.snapshot.objects, &other.snapshot.objects);
    let mut at = 0;
    let selected = own
        .addresses
        .iter()
        .enumerate()
        .filter(|&(object, address)| {
            while others
                .addresses
                .get(at)
                .is_some_and(|there| there < address)
            {
                at += 1;
            }
            let is_in_other = others.addresses.get(at) == Some(address)
                && types[own.types[object] as usize] == Some(others.types[at]);
            is_in_other == wanted
        });
    selected.map(|(object, _)| object as u32).collect()
}
