//! Counts, by type, the tracked objects that a garbage collection would leave, without running one.
//!
//! The count is exact. It leaves out garbage: the objects that [`super::garbage`] does not mark. A collection also stops
//! tracking tuples, and before 3.14 dicts, that contain nothing tracked. These are left out of the count in the same way.
//! Where the result of a collection depends on its order, or where it would run finalizers, the count gives up, and the
//! caller runs the collection.

use super::Proof;
use super::arena::ArenaScope;
use super::column::Column;
use super::garbage::{GARBAGE_SHARE, Marker};
use super::known::Known;
use super::proof;
use super::reader::{Reader, word_at};
use super::roots;
use crate::cpython::heap_layout::{HeapLayout, collection_untracks_dicts};
use crate::cpython::interpreter;
use crate::cpython::offsets::TypeField;
use crate::cpython::references::{Object, Type};

/// Slots of a new index of types; always a power of two.
const FIRST_SLOTS: usize = 1 << 12;

/// Types by address, and the number of their tracked objects, in the order of their first objects.
pub type Counts = Vec<(usize, u64)>;

/// Counts all tracked objects, garbage included. Returns `None` if the interpreter does not list them.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn count_all() -> Option<Counts> {
    // SAFETY: passed on from the caller; nothing below runs Python code.
    let reader = unsafe { reader()? };
    let mut counter = Counter::new();
    roots::read_tracked(&reader, |object| {
        counter.add(reader.type_of(object));
        true
    })
    .then_some(counter.counts)
}

/// Counts all tracked objects except tuples that contain nothing tracked: a collection stops tracking these. So no
/// count is less than after a collection. Takes a fraction of the time of [`count_live`], and returns `None` like
/// [`count_all`].
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn count_at_most() -> Option<Counts> {
    // SAFETY: passed on from the caller; nothing below runs Python code.
    let reader = unsafe { reader()? };
    let mut counter = Counter::new();
    roots::read_tracked(&reader, |object| {
        let type_ = reader.type_of(object);
        // SAFETY: the second part is evaluated only for tuples.
        let is_left_out =
            type_ == reader.known.tuple && unsafe { has_only_untracked_items(&reader, object) };
        if !is_left_out {
            counter.add(type_);
        }
        true
    })
    .then_some(counter.counts)
}

/// Counts the tracked objects that a collection would leave. Returns `None` if only a collection can determine them, or if
/// so much is garbage that a collection is worthwhile.
///
/// # Safety
/// The calling thread holds the GIL and was called from a Python function; the objects of `proof` are alive.
pub unsafe fn count_live(proof: Proof) -> Option<Counts> {
    // SAFETY: passed on from the caller; nothing below runs Python code.
    let reader = unsafe { reader()? };
    let _arena = ArenaScope::enter();
    // SAFETY: the caller keeps the objects of the proof alive.
    let (_, token) = unsafe { proof.objects()? };
    let mut marker = Marker::new(&reader)?;
    marker
        .mark_roots(proof::locals(&reader, token).is_some())
        .ok()?;
    let mut counter = Counter::new();
    let mut rest: Column<Object> = Column::new();
    // Only objects in the collector's lists: some tuples from the start of the interpreter seem to be tracked but are in no
    // list.
    let mut plain: Column<Object> = Column::new();
    let is_container = |type_: Type| type_ == reader.known.tuple || type_ == reader.known.dict;
    let all_read = roots::read_tracked(&reader, |object| {
        let type_ = reader.type_of(object);
        counter.add(type_);
        rest.push_if(object, !marker.is_marked(object))
            && (!is_container(type_) || plain.push_if(object, marker.is_plain(object)))
    });
    if !all_read {
        return None;
    }
    marker.mark_held(&rest).ok()?;
    for object in rest.iter() {
        plain
            .push_if(*object, marker.is_plain(*object))
            .then_some(())?;
    }
    let n_tracked: u64 = counter.counts.iter().map(|(_, count)| count).sum();
    let garbage = rest.iter().filter(|object| !marker.is_marked(**object));
    let mut n_garbage = 0;
    for object in garbage {
        let type_ = reader.type_of(*object);
        if reader.type_field(type_, TypeField::Finalize) != 0 {
            return None;
        }
        counter.remove(type_);
        n_garbage += 1;
    }
    if n_garbage * GARBAGE_SHARE as u64 > n_tracked {
        return None;
    }
    for object in untracked_by_collection(&reader, &plain)? {
        counter.remove(reader.type_of(object));
    }
    counter.counts.retain(|(_, count)| *count > 0);
    Some(counter.counts)
}

/// # Safety
/// The calling thread holds the GIL and runs no Python code as long as the value is used.
unsafe fn reader() -> Option<Reader> {
    let layout = *interpreter::layout()?;
    let heap = HeapLayout::of(layout.version)?;
    // SAFETY: passed on from the caller. The layout was proved when the interpreter was prepared, and `heap` is that of
    // the same version.
    let reader = unsafe { Reader::new(layout, heap, Known::resolve().ok()?) };
    (reader.basic_size(reader.known.type_type) == heap.heap_type_size).then_some(reader)
}

/// Counts objects by type. In ordinary memory: a mapping would take longer than the count of a small heap.
struct Counter {
    counts: Counts,
    /// A hash index of `counts`: the position plus one; 0 marks a free slot.
    slots: Vec<u32>,
}

impl Counter {
    fn new() -> Counter {
        Counter {
            counts: Vec::new(),
            slots: vec![0; FIRST_SLOTS],
        }
    }

    /// Returns the slot of the type at an address, or the free slot for it.
    #[inline(always)]
    fn slot(&self, address: usize) -> usize {
        let mask = self.slots.len() - 1;
        let hash = (address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut at = (hash >> (64 - self.slots.len().trailing_zeros())) as usize;
        loop {
            let number = self.slots[at] as usize;
            if number == 0 || self.counts[number - 1].0 == address {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    #[inline(always)]
    fn add(&mut self, type_: Type) {
        let at = self.slot(type_.address());
        match self.slots[at] as usize {
            0 => self.add_first(at, type_.address()),
            number => self.counts[number - 1].1 += 1,
        }
    }

    #[cold]
    fn add_first(&mut self, at: usize, address: usize) {
        self.counts.push((address, 1));
        self.slots[at] = self.counts.len() as u32;
        if self.counts.len() * 4 >= self.slots.len() * 3 {
            self.grow();
        }
    }

    fn grow(&mut self) {
        self.slots = vec![0; self.slots.len() * 2];
        for number in 0..self.counts.len() {
            let at = self.slot(self.counts[number].0);
            self.slots[at] = number as u32 + 1;
        }
    }

    fn remove(&mut self, type_: Type) {
        if let number @ 1.. = self.slots[self.slot(type_.address())] as usize {
            let count = &mut self.counts[number - 1].1;
            *count = count.saturating_sub(1);
        }
    }
}

/// Returns whether a container of this object has to be tracked: `_PyObject_GC_MAY_BE_TRACKED`.
fn may_be_tracked(reader: &Reader, object: Object) -> bool {
    let type_ = reader.type_of(object);
    let is_gc = reader.type_field(type_, TypeField::IsGc);
    // SAFETY: the flags and the function are those of the object's type. A tuple has a collector's header.
    unsafe {
        reader.is_collected(object, reader.flags(type_), is_gc)
            && (type_ != reader.known.tuple || reader.is_tracked(object))
    }
}

/// Returns the items of a tuple; `None` for an item that is not set yet.
///
/// # Safety
/// The object is a tuple.
unsafe fn items_of(reader: &Reader, tuple: Object) -> impl Iterator<Item = Option<Object>> {
    let items = tuple.address() + reader.basic_size(reader.known.tuple);
    // SAFETY: a tuple has a length and as many references or nulls.
    (0..unsafe { reader.size(tuple) })
        .map(move |number| unsafe { Object::at(word_at(items + number * 8)) })
}

/// Returns whether a collection would stop tracking a tuple because of its items alone.
///
/// # Safety
/// The object is a tuple.
unsafe fn has_only_untracked_items(reader: &Reader, tuple: Object) -> bool {
    let is_untracked =
        |item: Option<Object>| item.is_some_and(|item| !may_be_tracked(reader, item));
    // SAFETY: passed on from the caller.
    unsafe { items_of(reader, tuple) }.all(is_untracked)
}

/// Returns whether a sorted list contains an object.
fn contains(sorted: &[Object], object: Object) -> bool {
    let position = sorted.binary_search_by_key(&object.address(), |each| each.address());
    position.is_ok()
}

/// Returns those tuples and dicts of `plain` that a collection would stop tracking. Returns `None` if the result depends on
/// the collection's order, as for a tuple whose only tracked items are such tuples.
fn untracked_by_collection(reader: &Reader, plain: &[Object]) -> Option<Vec<Object>> {
    let (tuples, dicts): (Vec<Object>, Vec<Object>) = plain
        .iter()
        .partition(|object| reader.type_of(**object) == reader.known.tuple);
    let (mut untracked, others): (Vec<Object>, Vec<Object>) = tuples
        .into_iter()
        // SAFETY: the objects are tuples.
        .partition(|tuple| unsafe { has_only_untracked_items(reader, *tuple) });
    untracked.sort_unstable_by_key(|object| object.address());
    let will_be_untracked = |item: Option<Object>| {
        item.is_some_and(|item| !may_be_tracked(reader, item) || contains(&untracked, item))
    };
    if others
        .into_iter()
        // SAFETY: the objects are tuples.
        .any(|tuple| unsafe { items_of(reader, tuple) }.all(will_be_untracked))
    {
        return None;
    }
    if collection_untracks_dicts(reader.layout.version) {
        let is_kept = |object| may_be_tracked(reader, object) && !contains(&untracked, object);
        let has_kept = |dict: &Object| {
            let mut kept = false;
            // SAFETY: the object is a dict.
            unsafe {
                reader.dict_entries(*dict, |key, value| {
                    kept = kept || is_kept(value) || is_kept(key);
                });
            }
            kept
        };
        let mut untracked_dicts: Vec<Object> =
            dicts.into_iter().filter(|dict| !has_kept(dict)).collect();
        untracked.append(&mut untracked_dicts);
    }
    Some(untracked)
}
