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
use super::index::Index;
use super::known::Known;
use super::proof;
use super::reader::{Reader, word_at};
use super::roots;
use crate::cpython::heap_layout::{HeapLayout, collection_untracks_dicts};
use crate::cpython::interpreter;
use crate::cpython::offsets::TypeField;
use crate::cpython::references::{Object, Type};

/// Types by address, and the number of their tracked objects, in the order of their first objects.
pub type Counts = Vec<(usize, u64)>;

/// Counts all tracked objects, garbage included. Returns `None` if the interpreter does not list them.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn count_all() -> Option<Counts> {
    // SAFETY: passed on from the caller; nothing below runs Python code.
    let reader = unsafe { reader()? };
    let mut counter = Counter::new()?;
    roots::read_tracked(&reader, |object| {
        counter.add(reader.type_of(object));
        true
    })
    .then_some(counter)?
    .into_counts()
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
    let mut counter = Counter::new()?;
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
    .then_some(counter)?
    .into_counts()
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
    let mut counter = Counter::new()?;
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
    let n_tracked = counter.total();
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
    counter.into_counts()
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

/// Counts objects by type.
struct Counter {
    /// The types, in the order of their first objects.
    addresses: Column<u64>,
    index: Index,
    counts: Column<u64>,
    /// Whether memory was missing.
    failed: bool,
}

impl Counter {
    fn new() -> Option<Counter> {
        Some(Counter {
            addresses: Column::new(),
            index: Index::new()?,
            counts: Column::new(),
            failed: false,
        })
    }

    #[inline(always)]
    fn add(&mut self, type_: Type) {
        let address = type_.address() as u64;
        let position = self.index.find(&self.addresses, address);
        match position.and_then(|position| self.counts.get_mut(position as usize)) {
            Some(count) => *count += 1,
            None => self.add_first(address),
        }
    }

    #[cold]
    fn add_first(&mut self, address: u64) {
        let added = self.index.find_or_add(&self.addresses, address);
        self.failed |= added.is_none() || !self.addresses.push(address) || !self.counts.push(1);
    }

    fn remove(&mut self, type_: Type) {
        let position = self.index.find(&self.addresses, type_.address() as u64);
        if let Some(count) = position.and_then(|position| self.counts.get_mut(position as usize)) {
            *count = count.saturating_sub(1);
        }
    }

    fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the types that have objects; `None` if memory was missing.
    fn into_counts(self) -> Option<Counts> {
        let types = self.addresses.iter().map(|address| *address as usize);
        let all = types.zip(self.counts.iter().copied());
        (!self.failed).then(|| all.filter(|(_, count)| *count > 0).collect())
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
