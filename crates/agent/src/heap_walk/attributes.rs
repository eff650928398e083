//! Attributes of instances: the location of the `__dict__`, and the storage of attributes without one.
//!
//! From 3.11 on most instances have no dict. Their class has the names of the attributes (its shared keys), and each
//! instance has an array of the values.

use heaptide_capture::heap::{EdgeType, Label, Objects};

use super::names::NameTable;
use super::reader::{Reader, byte_at, entries_of, word_at};
use super::types::TypeEntry;
use crate::cpython::heap_layout::{DictKeys, InlineValues};
use crate::cpython::offsets::{HeapTypeField, dict_keys, inline_values, type_flag};
use crate::cpython::references::{Object, Type};

/// The maximum number of shared keys of a class.
const MAX_SHARED: usize = 64;

/// Returns the names of the attributes that instances store without a dict, and the bytes of their values.
pub fn shared_attributes(
    reader: &Reader,
    names: &mut NameTable,
    type_: Type,
    flags: usize,
) -> (Vec<u32>, u64) {
    let managed = flags & type_flag::MANAGED_DICT != 0;
    if !managed || reader.heap.inline_values == InlineValues::None {
        return (Vec::new(), 0);
    }
    let Some(keys) = cached_keys(reader, type_) else {
        return (Vec::new(), 0);
    };
    let attributes: Vec<u32> = shared_keys(reader, type_)
        .map(|key| key.map_or(0, |key| names.of_object(reader, key)))
        .collect();
    // SAFETY: `keys` is the keys object of a live class, of a version that has this field.
    let n_usable = unsafe { word_at(keys + dict_keys::N_USABLE) }.min(MAX_SHARED);
    let capacity = (attributes.len() + n_usable) as u64;
    (
        attributes,
        values_bytes(reader.heap.inline_values, capacity),
    )
}

/// Returns the strings that name attributes, in the order of their values; `None` where there is none.
pub fn shared_keys(reader: &Reader, type_: Type) -> impl Iterator<Item = Option<Object>> {
    let keys = cached_keys(reader, type_).filter(|_| reader.heap.dict_keys == DictKeys::Compact);
    // SAFETY: `keys` is the keys object of a live class.
    let (entries, n_entries) = keys.map_or((0, 0), |keys| unsafe {
        let n_entries = word_at(keys + dict_keys::N_ENTRIES);
        (entries_of(keys), n_entries.min(MAX_SHARED))
    });
    // SAFETY: all shared keys are strings, so an entry is a key and a value; the class has a reference to the key.
    (0..n_entries).map(move |number| unsafe {
        Object::at(word_at(entries + number * dict_keys::STRING_ENTRY))
    })
}

/// Returns the address of the keys object that a class shares with its instances (`ht_cached_keys`).
pub fn cached_keys(reader: &Reader, type_: Type) -> Option<usize> {
    Some(reader.heap_type_field(type_, HeapTypeField::CachedKeys)).filter(|keys| *keys != 0)
}

/// Returns the bytes of the values of `capacity` attributes: a word each, a byte each for their order, and a header.
pub fn values_bytes(storage: InlineValues, capacity: u64) -> u64 {
    capacity * 8
        + match storage {
            InlineValues::None => 0,
            InlineValues::TwoPointers | InlineValues::TaggedPointer => {
                (capacity + 2).next_multiple_of(8)
            }
            InlineValues::AfterFields => {
                inline_values::HEADER as u64 + capacity.next_multiple_of(8)
            }
        }
}

/// Returns the `__dict__` of an object; `None` if it has none or none yet.
///
/// # Safety
/// `entry` describes the object's type.
#[inline(always)]
pub unsafe fn dict_of(reader: &Reader, entry: &TypeEntry, object: Object) -> Option<Object> {
    // SAFETY: the type gives the offset of the reference to the dict: before the object, in it, or at its end.
    unsafe {
        if entry.flags & type_flag::MANAGED_DICT != 0 {
            let word = word_at(object.address() - inline_values::DICT_BEFORE);
            return match reader.heap.inline_values {
                InlineValues::None => None,
                InlineValues::TaggedPointer if word & 1 != 0 => None,
                _ => Object::at(word),
            };
        }
        match entry.dict_offset {
            0 => None,
            offset @ 1.. => reader.reference(object, offset as usize),
            // An `int` of 3.12 and later has no `ob_size` that gives the end of the object, so its dict gets no label.
            _ if entry.flags & type_flag::LONG != 0 || entry.item_size == 0 => None,
            offset => {
                let items = (reader.size(object) as isize).unsigned_abs();
                let end = (entry.basic_size + items * entry.item_size).next_multiple_of(8);
                reader.reference(object, end - offset.unsigned_abs())
            }
        }
    }
}

/// Returns the address of the values of an instance without a dict; 0 if it has none.
///
/// # Safety
/// As for [`dict_of`].
#[inline(always)]
pub unsafe fn values_of(reader: &Reader, entry: &TypeEntry, object: Object) -> usize {
    if entry.flags & type_flag::MANAGED_DICT == 0 || entry.attributes.is_empty() {
        return 0;
    }
    // SAFETY: the flag says that the words before the instance, or the values after its fields, exist.
    unsafe {
        let before = |distance| word_at(object.address() - distance);
        match reader.heap.inline_values {
            InlineValues::None => 0,
            InlineValues::TwoPointers => before(inline_values::VALUES_BEFORE),
            InlineValues::TaggedPointer => match before(inline_values::DICT_BEFORE) {
                word if word & 1 != 0 => word + 1,
                _ => 0,
            },
            InlineValues::AfterFields => {
                let header = object.address() + entry.basic_size;
                if entry.flags & type_flag::INLINE_VALUES == 0
                    || byte_at(header + inline_values::VALID) == 0
                {
                    return 0;
                }
                header + inline_values::HEADER
            }
        }
    }
}

/// Returns the bytes that the values of an instance without a dict take.
///
/// # Safety
/// As for [`dict_of`], and [`values_of`] is not 0.
#[inline(always)]
pub unsafe fn values_bytes_of(reader: &Reader, entry: &TypeEntry, object: Object) -> u64 {
    match reader.heap.inline_values {
        // A class learns the number of attributes from its first instances, so these have a larger capacity.
        InlineValues::AfterFields => {
            // SAFETY: the values follow the fields, and start with their capacity.
            let capacity =
                unsafe { byte_at(object.address() + entry.basic_size + inline_values::CAPACITY) };
            values_bytes(InlineValues::AfterFields, u64::from(capacity))
        }
        _ => entry.values_bytes,
    }
}

/// Appends the addresses and labels of the attributes of an instance without a dict. Returns flags of the object.
///
/// # Safety
/// As for [`dict_of`].
pub unsafe fn attributes_of(
    reader: &Reader,
    entry: &TypeEntry,
    object: Object,
    labels: &mut Vec<(usize, Label)>,
) -> u8 {
    // SAFETY: passed on from the caller.
    let values = unsafe { values_of(reader, entry, object) };
    if values == 0 {
        return 0;
    }
    for (number, name) in entry.attributes.iter().enumerate() {
        // SAFETY: the instance has at least as many values as its class has names.
        let value = unsafe { word_at(values + number * 8) };
        if value != 0 {
            labels.push((value, Label::new(EdgeType::Attribute, *name)));
        }
    }
    Objects::INLINE_VALUES
}
