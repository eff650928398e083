//! Wasted memory: unused capacity of containers, empty containers, duplicate texts, and dicts of instances that could use
//! `__slots__`.
//!
//! The size of a container is compared with the size that the interpreter needs for its content. A dict that shares its
//! keys with others is not sparse, because its size does not include these keys. Subclasses of containers are left out.
//! So are the program text and the import system, which users cannot change.

use heaptide_capture::heap::{EdgeType, Label, Objects, TypeInfo};
use rustc_hash::FxHashMap;

use super::program_text::ProgramText;
use super::view::Heap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WasteCategory {
    /// Several copies of one text.
    DuplicateText,
    /// Lists with more capacity than items.
    SpareList,
    /// Dicts and sets with much more capacity than items.
    SparseDict,
    SparseSet,
    /// Containers without items.
    Empty,
    /// Instances with a dict, whose class could use `__slots__`.
    NoSlots,
}

impl WasteCategory {
    pub fn name(self) -> &'static str {
        match self {
            WasteCategory::DuplicateText => "duplicate_text",
            WasteCategory::SpareList => "spare_list",
            WasteCategory::SparseDict => "sparse_dict",
            WasteCategory::SparseSet => "sparse_set",
            WasteCategory::Empty => "empty",
            WasteCategory::NoSlots => "no_slots",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waste {
    pub category: WasteCategory,
    /// The text, the type, or the reference to the containers.
    pub what: String,
    pub count: u64,
    /// Bytes that could be saved.
    pub bytes: u64,
    /// One of the objects.
    pub example: u32,
}

#[derive(Clone, Debug, Default)]
pub struct WasteReport {
    /// The most bytes first.
    pub rows: Vec<Waste>,
    /// Whether texts could be compared: a snapshot has values only on request.
    pub has_values: bool,
}

/// The size of an empty list, including the collector's header.
const LIST_BYTES: u64 = 56;
/// The sizes of an empty dict, of a set without a separate table, and of one slot in a separate table.
const DICT_BYTES: u64 = 64;
const SET_BYTES: u64 = 216;
const SET_SLOT_BYTES: u64 = 16;
/// Fewer instances are not worth changing their class.
const MIN_INSTANCES: u64 = 100;
/// Fewer copies of a text are a coincidence.
const MIN_COPIES: u64 = 2;

pub fn waste(heap: &Heap) -> WasteReport {
    let mut sums = Sums::default();
    let has_values = !heap.snapshot.values.is_empty();
    let text = ProgramText::new(heap);
    containers(heap, &text, &mut sums);
    slots(heap, &text, &mut sums);
    if has_values {
        duplicates(heap, &text, &mut sums);
    }
    let mut rows: Vec<Waste> = sums.rows.into_values().collect();
    rows.retain(|row| row.bytes > 0);
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.what.cmp(&b.what)));
    WasteReport { rows, has_values }
}

#[derive(Default)]
struct Sums {
    rows: FxHashMap<(u8, String), Waste>,
}

impl Sums {
    fn add(&mut self, category: WasteCategory, what: String, bytes: u64, example: u32) {
        let row = self
            .rows
            .entry((category as u8, what.clone()))
            .or_insert(Waste {
                category,
                what,
                count: 0,
                bytes: 0,
                example,
            });
        row.count += 1;
        row.bytes += bytes;
    }
}

fn containers(heap: &Heap, text: &ProgramText, sums: &mut Sums) {
    let referrers = FirstReferrers::new(heap);
    for object in 0..heap.n_objects() as u32 {
        let one = heap.snapshot.type_of(object);
        if one.module != "builtins"
            || text.contains(object)
            || referrers.is_part_of_text(heap, text, object)
        {
            continue;
        }
        let size = heap.snapshot.objects.sizes[object as usize];
        let n_items = match one.name.as_str() {
            "list" | "dict" | "set" => heap.n_items(object).unwrap_or(0),
            _ => continue,
        };
        if n_items == 0 {
            sums.add(
                WasteCategory::Empty,
                referrers.text(heap, object),
                size,
                object,
            );
            continue;
        }
        let (category, spare) = match one.name.as_str() {
            "list" => {
                let slots = size.saturating_sub(LIST_BYTES) / 8;
                (WasteCategory::SpareList, 8 * slots.saturating_sub(n_items))
            }
            "dict" => {
                let texts = heap.n_references(object, EdgeType::Key) as u64 == n_items;
                let needed = dict_bytes(n_items, texts && is_3_11_or_later(heap));
                (WasteCategory::SparseDict, sparse(size, needed))
            }
            _ => {
                let slots = size.saturating_sub(SET_BYTES) / SET_SLOT_BYTES;
                let needed = SET_BYTES + SET_SLOT_BYTES * set_slots(n_items);
                let spare = if slots == 0 { 0 } else { sparse(size, needed) };
                (WasteCategory::SparseSet, spare)
            }
        };
        if spare > 0 {
            sums.add(category, referrers.text(heap, object), spare, object);
        }
    }
}

/// A growing table has up to half of its slots free; more free slots mean that items were removed.
fn sparse(size: u64, needed: u64) -> u64 {
    if size > 2 * needed { size - needed } else { 0 }
}

fn is_3_11_or_later(heap: &Heap) -> bool {
    heap.snapshot.header.python_version >= 0x030b_0000
}

/// The size that a dict of this many items needs. The number of slots is a power of two, and at most two thirds are
/// used.
fn dict_bytes(n_items: u64, texts_only: bool) -> u64 {
    let mut slots = 8u64;
    while slots * 2 / 3 < n_items {
        slots *= 2;
    }
    let index_bytes = match slots {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    };
    let entry_bytes = if texts_only { 16 } else { 24 };
    DICT_BYTES + 32 + slots * index_bytes + slots * 2 / 3 * entry_bytes
}

/// Slots beyond those inside the set object.
fn set_slots(n_items: u64) -> u64 {
    let mut slots = 8u64;
    while slots * 3 / 5 <= n_items {
        slots *= 2;
    }
    if slots == 8 { 0 } else { slots }
}

/// For each object its first referrer and the reference. One pass over all references finds both. Searching all
/// references of the referrer once for each object would take quadratic time for a wide dict.
struct FirstReferrers {
    from: Vec<Option<(u32, Label)>>,
}

impl FirstReferrers {
    fn new(heap: &Heap) -> FirstReferrers {
        let mut from = vec![None; heap.n_objects()];
        for object in 0..heap.n_objects() as u32 {
            for (target, label) in heap.snapshot.edges.of(object) {
                let is_weak = label.edge_type() == EdgeType::Weak;
                if let Some(first @ None) = from.get_mut(target as usize) {
                    if !is_weak && !heap.only_runs_in(object, target) {
                        *first = Some((object, label));
                    }
                }
            }
        }
        FirstReferrers { from }
    }

    /// Whether the interpreter made the container for a function or a class, such as `__annotations__`.
    fn is_part_of_text(&self, heap: &Heap, text: &ProgramText, object: u32) -> bool {
        self.from[object as usize].is_some_and(|(holder, _)| {
            let is_function = matches!(
                heap.kind(holder),
                "function" | "classmethod" | "staticmethod"
            );
            is_function || text.is_class(holder)
        })
    }

    /// A container and its owner as text: `list .items of job.Order`. Containers with the same text form a row.
    fn text(&self, heap: &Heap, object: u32) -> String {
        let kind = heap.kind(object);
        let Some((holder, label)) = self.from[object as usize] else {
            return kind.to_owned();
        };
        let names = &heap.snapshot.names;
        let name = label.edge_type().has_name();
        let name = name.then(|| names.get(label.number()));
        let owner = heap.kind(holder);
        // A key in an instance's dict is an attribute of the instance.
        let owner = owner.strip_prefix("dict of ").unwrap_or(owner);
        match name.filter(|name| !name.is_empty()) {
            Some(name) => format!("{kind} {name} of {owner}"),
            None if kind.starts_with("dict of") => kind.to_owned(),
            None => format!("{kind} in {owner}"),
        }
    }
}

/// Adds classes whose instances have a dict.
fn slots(heap: &Heap, text: &ProgramText, sums: &mut Sums) {
    let mut classes: FxHashMap<u32, (u64, u64, u32)> = FxHashMap::default();
    for object in 0..heap.n_objects() as u32 {
        let number = heap.snapshot.objects.types[object as usize];
        let Some(one) = heap.snapshot.types.get(number as usize) else {
            continue;
        };
        if !one.is(TypeInfo::HEAP) || !one.is(TypeInfo::DICT) || text.contains(object) {
            continue;
        }
        let saved = saved_by_slots(heap, object);
        let sum = classes.entry(number).or_insert((0, 0, object));
        sum.0 += 1;
        sum.1 += saved;
    }
    for (number, (count, bytes, example)) in classes {
        if count >= MIN_INSTANCES && bytes > 0 && !text.is_class(example) {
            let what = heap.kinds.label(heap.kinds.of_type(number)).to_owned();
            let row = Waste {
                category: WasteCategory::NoSlots,
                what: what.clone(),
                count,
                bytes,
                example,
            };
            sums.rows.insert((WasteCategory::NoSlots as u8, what), row);
        }
    }
}

/// With `__slots__`, an instance has a word for each attribute, but no dict and no words for dict and weak references.
fn saved_by_slots(heap: &Heap, object: u32) -> u64 {
    const WORD: u64 = 8;
    let mut dict = None;
    for (target, label) in heap.snapshot.edges.of(object) {
        if label.edge_type() == EdgeType::DictOf {
            dict = Some(target);
        }
    }
    let words = 2 * WORD;
    match dict {
        Some(dict) => {
            let n_attributes = heap.n_items(dict).unwrap_or(0);
            let size = heap.snapshot.objects.sizes[dict as usize];
            (size + words).saturating_sub(WORD * n_attributes)
        }
        None if heap.snapshot.objects.is(object, Objects::INLINE_VALUES) => words,
        None => 0,
    }
}

/// Adds duplicate texts: texts of equal size whose recorded part is equal.
fn duplicates(heap: &Heap, text: &ProgramText, sums: &mut Sums) {
    let mut copies: FxHashMap<(u32, u64, &str), (u64, u32)> = FxHashMap::default();
    for value in &heap.snapshot.values {
        let object = value.object;
        if text.contains(object) {
            continue;
        }
        let one = heap.snapshot.type_of(object);
        if one.module != "builtins" || !matches!(one.name.as_str(), "str" | "bytes") {
            continue;
        }
        let number = heap.snapshot.objects.types[object as usize];
        let key = (number, heap.bytes(object), value.text.as_str());
        let entry = copies.entry(key).or_insert((0, object));
        entry.0 += 1;
    }
    for ((_, size, text), (count, example)) in copies {
        if count >= MIN_COPIES {
            let what = format!("{} {text}", heap.kind(example));
            let row = Waste {
                category: WasteCategory::DuplicateText,
                what: what.clone(),
                count,
                bytes: size * (count - 1),
                example,
            };
            let key = (WasteCategory::DuplicateText as u8, what);
            // Long texts are cut, so texts of different sizes may have the same label: all of them count.
            sums.rows
                .entry(key)
                .and_modify(|known| {
                    known.count += row.count;
                    known.bytes += row.bytes;
                })
                .or_insert(row);
        }
    }
}
