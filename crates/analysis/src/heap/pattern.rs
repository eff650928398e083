//! The reference pattern of a set: its referrers by kind, their referrers, and so on, as a small tree.

use rustc_hash::FxHashMap;

use super::partition::{By, Partition};
use super::set::ObjectSet;
use super::view::Heap;

/// Heapy's default depth.
pub const DEPTH: usize = 7;
/// A pattern with more rows is unreadable.
const MAX_ROWS: usize = 1000;

/// Whether rows follow below a row, or the reason why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    Expanded,
    /// The depth limit was reached.
    Deep,
    /// Modules, types, code and frames: their referrers would explain nothing.
    Stopped,
    /// No object outside `avoid` refers to it: only roots do, if anything.
    Root,
    /// The row with this index has the same objects.
    Seen(usize),
}

#[derive(Clone, Debug)]
pub struct PatternRow {
    /// The child numbers from the set down; empty for the set itself.
    pub path: Vec<usize>,
    pub flag: Flag,
    pub label: String,
    pub objects: ObjectSet,
}

/// The rows from top to bottom. Objects in `avoid` do not count as referrers.
pub fn reference_pattern(
    heap: &Heap,
    set: &ObjectSet,
    depth: usize,
    avoid: &ObjectSet,
) -> Vec<PatternRow> {
    let mut rows: Vec<PatternRow> = Vec::new();
    let mut seen: FxHashMap<Vec<u32>, usize> = FxHashMap::default();
    let mut open = vec![(Vec::new(), set.clone())];
    while let Some((path, objects)) = open.pop() {
        if rows.len() >= MAX_ROWS || objects.is_empty() {
            break;
        }
        let kinds = Partition::of(heap, &objects, By::Kind);
        let names: Vec<&str> = kinds.rows.iter().map(|row| row.label.as_str()).collect();
        let label = match names.as_slice() {
            [one] => (*one).to_owned(),
            several => format!("({})", several.join(" | ")),
        };
        let at = rows.len();
        let mut below = Vec::new();
        let flag = if let Some(&row) = seen.get(objects.numbers()) {
            Flag::Seen(row)
        } else if !path.is_empty() && names.iter().all(|name| is_stop(name)) {
            Flag::Stopped
        } else {
            let referrers = heap.referrers_of(&objects).difference(avoid);
            if referrers.is_empty() {
                Flag::Root
            } else if path.len() >= depth {
                Flag::Deep
            } else {
                let parts = Partition::of(heap, &referrers, By::Kind);
                below = (0..parts.rows.len())
                    .map(|row| parts.members(&referrers, row))
                    .collect();
                Flag::Expanded
            }
        };
        seen.entry(objects.numbers().to_vec()).or_insert(at);
        for (child, members) in below.into_iter().enumerate().rev() {
            let mut longer = path.clone();
            longer.push(child);
            open.push((longer, members));
        }
        rows.push(PatternRow {
            path,
            flag,
            label,
            objects,
        });
    }
    rows
}

fn is_stop(kind: &str) -> bool {
    matches!(
        kind,
        "module"
            | "type"
            | "dict of module"
            | "dict of type"
            | "types.CodeType"
            | "types.FrameType"
    )
}
