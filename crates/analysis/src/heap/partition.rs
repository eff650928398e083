//! Partitions of sets: objects of a set with a common property form a row.

use std::hash::Hash;

use heaptide_capture::heap::{EdgeType, Label};
use rustc_hash::FxHashMap;

use super::labels;
use super::set::ObjectSet;
use super::view::Heap;
use crate::interner::Interner;

/// The property that objects of a row share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The type; for dicts also the owner.
    Kind,
    Type,
    /// The size of the object.
    Size,
    /// The module of the type.
    Module,
    /// The references to them.
    Via,
    /// The kinds of their referrers.
    Referrers,
    /// None: every object is a row.
    Identity,
    /// All objects are one row.
    Unity,
    /// The line that allocated them.
    Producer,
}

impl By {
    pub const ALL: [(&'static str, By); 9] = [
        ("kind", By::Kind),
        ("type", By::Type),
        ("size", By::Size),
        ("module", By::Module),
        ("via", By::Via),
        ("referrers", By::Referrers),
        ("id", By::Identity),
        ("unity", By::Unity),
        ("producer", By::Producer),
    ];

    pub fn from_name(name: &str) -> Option<By> {
        // These are heapy's names of the properties.
        let name = match name {
            "clodo" => "kind",
            "rcs" => "referrers",
            "prod" => "producer",
            other => other,
        };
        let known = By::ALL.iter().find(|(known, _)| *known == name);
        known.map(|&(_, by)| by)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub label: String,
    pub count: u64,
    pub bytes: u64,
}

/// A set in rows, the largest first; ties are sorted by name.
#[derive(Clone, Debug)]
pub struct Partition {
    pub by: By,
    pub rows: Vec<Row>,
    pub count: u64,
    pub bytes: u64,
    /// The row of each object, by position in the set.
    row_of: Vec<u32>,
}

impl Partition {
    pub fn of(heap: &Heap, set: &ObjectSet, by: By) -> Partition {
        let (groups, names) = classify(heap, set, by);
        Partition::assemble(heap, set, by, groups, names)
    }

    /// Rows without their objects, the largest first.
    pub fn of_rows(by: By, mut rows: Vec<Row>) -> Partition {
        rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)));
        Partition {
            by,
            count: rows.iter().map(|row| row.count).sum(),
            bytes: rows
                .iter()
                .map(|row| row.bytes)
                .fold(0, u64::saturating_add),
            rows,
            row_of: Vec::new(),
        }
    }

    fn assemble(
        heap: &Heap,
        set: &ObjectSet,
        by: By,
        groups: Vec<u32>,
        names: Vec<String>,
    ) -> Partition {
        let mut sums = vec![(0u64, 0u64); names.len()];
        for (object, &group) in set.iter().zip(&groups) {
            let sum = &mut sums[group as usize];
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(heap.bytes(object));
        }
        let mut order: Vec<u32> = (0..names.len() as u32)
            .filter(|&group| sums[group as usize].0 > 0)
            .collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (a as usize, b as usize);
            sums[b]
                .1
                .cmp(&sums[a].1)
                .then_with(|| names[a].cmp(&names[b]))
        });
        let mut row_of_group = vec![0u32; names.len()];
        for (row, &group) in order.iter().enumerate() {
            row_of_group[group as usize] = row as u32;
        }
        let mut names = names;
        let rows = order.iter().map(|&group| Row {
            label: std::mem::take(&mut names[group as usize]),
            count: sums[group as usize].0,
            bytes: sums[group as usize].1,
        });
        Partition {
            by,
            rows: rows.collect(),
            count: set.len() as u64,
            bytes: sums.iter().map(|sum| sum.1).fold(0, u64::saturating_add),
            row_of: groups
                .iter()
                .map(|&group| row_of_group[group as usize])
                .collect(),
        }
    }

    /// The objects of a row; `set` is the partitioned set.
    pub fn members(&self, set: &ObjectSet, row: usize) -> ObjectSet {
        let of_row = set.iter().zip(&self.row_of);
        of_row
            .filter(|&(_, &of)| of as usize == row)
            .map(|(object, _)| object)
            .collect()
    }

    /// The row of each object, in the order of the set.
    pub fn rows_of_objects(&self) -> &[u32] {
        &self.row_of
    }
}

/// The group number of each object of the set, and the names of the groups.
fn classify(heap: &Heap, set: &ObjectSet, by: By) -> (Vec<u32>, Vec<String>) {
    let snapshot = &heap.snapshot;
    let type_of = |object: u32| snapshot.objects.types[object as usize];
    match by {
        By::Kind => group_by_key(
            set.iter().map(|object| heap.kinds.of(object)),
            |kind: &u32| heap.kinds.label(*kind).to_owned(),
        ),
        By::Type => group_by_key(
            set.iter().map(|object| heap.kinds.of_type(type_of(object))),
            |kind| heap.kinds.label(*kind).to_owned(),
        ),
        By::Size => group_by_key(set.iter().map(|object| heap.bytes(object)), |size| {
            // Heapy right-aligns sizes, so that rows sort by size.
            format!("{size:>9}")
        }),
        By::Module => group_by_key(
            set.iter().map(|object| {
                let one = snapshot.type_of(object);
                if one.module.is_empty() {
                    "builtins"
                } else {
                    one.module.as_str()
                }
            }),
            |module| (*module).to_owned(),
        ),
        By::Via => incoming(
            heap,
            set,
            |_, label| label.to_word(),
            |&word| {
                let label = Label::from_word(word);
                let text = label.map(|label| labels::reference(snapshot, label));
                labels::quoted(&text.unwrap_or_default())
            },
        ),
        By::Referrers => incoming(
            heap,
            set,
            |from, _| heap.kinds.of(from),
            |&kind| heap.kinds.label(kind).to_owned(),
        ),
        By::Identity => {
            let groups = (0..set.len() as u32).collect();
            let names = set.iter().map(|object| describe(heap, object)).collect();
            (groups, names)
        }
        By::Unity => (vec![0; set.len()], vec!["<Anything>".to_owned()]),
        By::Producer => group_by_key(
            set.iter().map(|object| heap.site(object)),
            |site| match site {
                Some((file, line)) => format!("{file}:{line}"),
                None => "<unknown>".to_owned(),
            },
        ),
    }
}

/// Returns the number of each object's group, and the names of the groups.
fn group_by_key<K: Clone + Hash + Eq>(
    keys: impl Iterator<Item = K>,
    name: impl Fn(&K) -> String,
) -> (Vec<u32>, Vec<String>) {
    let mut known = Interner::default();
    let groups = keys.map(|key| known.number(key)).collect();
    (groups, known.values.iter().map(name).collect())
}

/// Groups objects by the keys of all references to them, in one pass over the references.
fn incoming(
    heap: &Heap,
    set: &ObjectSet,
    key: impl Fn(u32, Label) -> u32,
    name: impl Fn(&u32) -> String,
) -> (Vec<u32>, Vec<String>) {
    const NOT_IN_SET: u32 = u32::MAX;
    let mut position = vec![NOT_IN_SET; heap.n_objects()];
    for (at, object) in set.iter().enumerate() {
        position[object as usize] = at as u32;
    }
    let edges = &heap.snapshot.edges;
    let mut starts = vec![0u32; set.len() + 1];
    let each = |visit: &mut dyn FnMut(u32, u32, Label)| {
        for from in 0..heap.n_objects() as u32 {
            for (to, label) in edges.of(from) {
                let at = position.get(to as usize).copied().unwrap_or(NOT_IN_SET);
                if at != NOT_IN_SET && label.edge_type() != EdgeType::Weak {
                    visit(at, from, label);
                }
            }
        }
    };
    each(&mut |at, _, _| starts[at as usize + 1] += 1);
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut keys = vec![0u32; starts.last().copied().unwrap_or(0) as usize];
    let mut next = starts.clone();
    each(&mut |at, from, label| {
        let to = &mut next[at as usize];
        keys[*to as usize] = key(from, label);
        *to += 1;
    });
    // The keys of an object are sorted, so that equal sets of keys get the same number.
    let mut numbers: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
    let mut groups = Vec::with_capacity(set.len());
    let mut own = Vec::new();
    for at in 0..set.len() {
        own.clear();
        own.extend_from_slice(&keys[starts[at] as usize..starts[at + 1] as usize]);
        own.sort_unstable();
        own.dedup();
        let number = match numbers.get(own.as_slice()) {
            Some(&number) => number,
            None => {
                let number = numbers.len() as u32;
                numbers.insert(own.clone(), number);
                number
            }
        };
        groups.push(number);
    }
    let mut names = vec![String::new(); numbers.len()];
    for (keys, number) in numbers {
        let mut texts: Vec<String> = keys.iter().map(&name).collect();
        texts.sort();
        texts.dedup();
        names[number as usize] = if texts.is_empty() {
            "<Nothing>".to_owned()
        } else {
            texts.join(", ")
        };
    }
    merge_names(groups, names)
}

/// Different keys with the same text form one row.
fn merge_names(groups: Vec<u32>, names: Vec<String>) -> (Vec<u32>, Vec<String>) {
    let (merged, unique) = group_by_key(names.iter(), |name| (*name).clone());
    let groups = groups.into_iter().map(|group| merged[group as usize]);
    (groups.collect(), unique)
}

/// A short description of one object, with its value if known.
pub fn describe(heap: &Heap, object: u32) -> String {
    let kind = heap.kind(object);
    match heap.snapshot.value_of(object) {
        Some(value) => format!("{kind}: {value}"),
        None => format!(
            "{kind}: {}{}",
            heap.address(object),
            heap.length_mark(object)
        ),
    }
}

impl Heap {
    /// The line that allocated an object, if known.
    pub fn site(&self, object: u32) -> Option<(&str, u32)> {
        let frame = self.allocation(object).last()?;
        Some((frame.file.as_str(), frame.line))
    }

    /// `*3` after a container of three items, as in heapy.
    fn length_mark(&self, object: u32) -> String {
        match self.n_items(object) {
            Some(n_items) => format!("*{n_items}"),
            None => String::new(),
        }
    }

    /// The number of items of a built-in container.
    pub fn n_items(&self, object: u32) -> Option<u64> {
        let one = self.snapshot.type_of(object);
        let counted: fn(EdgeType) -> bool = match (one.module.as_str(), one.name.as_str()) {
            ("builtins", "list" | "tuple") | ("collections", "deque") => {
                |edge_type| edge_type == EdgeType::Index
            }
            ("builtins", "dict") | ("collections", "OrderedDict" | "defaultdict") => {
                |kind| matches!(kind, EdgeType::Key | EdgeType::NumberKey | EdgeType::Item)
            }
            ("builtins", "set" | "frozenset") => |edge_type| edge_type == EdgeType::Element,
            _ => return None,
        };
        let labels = self.snapshot.edges.labels_of(object).iter();
        Some(labels.filter(|label| counted(label.edge_type())).count() as u64)
    }

    /// The allocation stack of an object, outermost first; empty if not known.
    pub fn allocation(
        &self,
        object: u32,
    ) -> impl DoubleEndedIterator<Item = &heaptide_capture::heap::AllocationFrame> {
        let stacks = self.stacks();
        let frames = stacks.and_then(|stacks| {
            let number = stacks.of_objects.get(object as usize)?;
            let stack = stacks.stacks.get(*number as usize)?;
            Some(
                stack
                    .iter()
                    .filter_map(|&frame| stacks.frames.get(frame as usize)),
            )
        });
        frames.into_iter().flatten()
    }
}
