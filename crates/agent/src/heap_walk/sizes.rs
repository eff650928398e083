//! Sizes of objects: the value of `sys.getsizeof`, computed from the object's fields. The walk never calls a type's
//! `__sizeof__`: that creates objects, and may be Python code of the program.

use super::attributes::cached_keys;
use super::reader::{Reader, byte_at, half_at, word_at};
use super::types::TypeEntry;
use crate::cpython::heap_layout::DictKeys;
use crate::cpython::offsets::{
    HEAP_TYPE_TABLES, TypeField, dict_keys, numpy_array, object, plain_dict_keys, type_flag,
};
use crate::cpython::references::{Object, Type};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRule {
    /// The basic size.
    Fixed,
    /// The basic size and the items.
    Items,
    /// The same, rounded up to whole words.
    Code,
    Long,
    Unicode,
    List,
    Dict,
    /// `collections.OrderedDict`.
    OrderedDict,
    Set,
    ByteArray,
    /// `io.BytesIO`, with its buffer if no other object refers to the buffer.
    BytesIO,
    TypedArray,
    Deque,
    Type,
    /// A numpy array.
    Array,
}

/// The maximum valid length.
const MAX_ITEMS: usize = 1 << 40;

impl SizeRule {
    pub fn of(reader: &Reader, type_: Type, flags: usize, is_set: bool) -> SizeRule {
        let has = |flag| flags & flag != 0;
        if has(type_flag::LONG) {
            SizeRule::Long
        } else if has(type_flag::UNICODE) {
            SizeRule::Unicode
        } else if has(type_flag::LIST) {
            SizeRule::List
        } else if has(type_flag::DICT) {
            SizeRule::Dict
        } else if has(type_flag::TYPE) {
            SizeRule::Type
        } else if is_set {
            SizeRule::Set
        } else if reader.type_field(type_, TypeField::ItemSize) != 0 {
            SizeRule::Items
        } else {
            SizeRule::Fixed
        }
    }
}

/// Returns the bytes of an object, including the headers before it. `collected` is true if it has a collector's header.
///
/// # Safety
/// `entry` describes the object's type.
#[inline(always)]
pub unsafe fn bytes_of(reader: &Reader, entry: &TypeEntry, object: Object, collected: bool) -> u64 {
    let basic = entry.basic_size;
    // SAFETY: the rule is that of the object's type, so the object has the fields that are read for it.
    let bytes = unsafe {
        match entry.size {
            SizeRule::Fixed => basic,
            SizeRule::Items => basic + items(reader.size(object)).min(MAX_ITEMS) * entry.item_size,
            SizeRule::Code => {
                (basic + items(reader.size(object)) * entry.item_size).next_multiple_of(8)
            }
            SizeRule::Long => {
                object::LONG_DIGITS + digits(reader, object).max(reader.heap.least_digits) * 4
            }
            SizeRule::Unicode => unicode_bytes(reader, object),
            SizeRule::List => basic + reader.word(object, object::LIST_ALLOCATED) * 8,
            SizeRule::Dict => basic + dict_bytes(reader, object),
            SizeRule::OrderedDict => {
                basic + dict_bytes(reader, object) + order_bytes(reader, object)
            }
            SizeRule::BytesIO => basic + buffer_bytes(reader, object),
            SizeRule::Set => basic + set_bytes(reader, object),
            SizeRule::ByteArray => match reader.word(object, object::BYTE_ARRAY_ALLOCATED) {
                0 => basic,
                allocated => basic + allocated + reader.heap.byte_array_header,
            },
            SizeRule::TypedArray => {
                let description = reader.word(object, object::ARRAY_DESCRIPTION);
                let item = half_at(description + object::ARRAY_ITEM_SIZE) as usize;
                basic + reader.word(object, object::ARRAY_ALLOCATED) * item
            }
            SizeRule::Deque => {
                let used = reader.word(object, object::DEQUE_LEFT_INDEX) + reader.size(object);
                let blocks = used.div_ceil(object::DEQUE_BLOCK_ITEMS).max(1);
                basic + blocks * object::DEQUE_BLOCK
            }
            SizeRule::Type => return type_bytes(reader, Type::from_object(object), collected),
            SizeRule::Array => {
                // A length and a stride for each dimension.
                let n_dimensions = reader.half(object, numpy_array::N_DIMENSIONS) as usize;
                basic + array_bytes(reader, object).unwrap_or(0) + n_dimensions * 16
            }
        }
    };
    (bytes + entry.header_bytes(collected)) as u64
}

/// Returns the bytes of objects of one type.
///
/// # Safety
/// `entry` describes the objects' type.
#[inline(always)]
pub unsafe fn bytes_of_all(reader: &Reader, entry: &TypeEntry, objects: &[Object]) -> u64 {
    let same_header = entry.is_gc == 0;
    let header = entry.header_bytes(entry.flags & type_flag::HAVE_GC != 0);
    match entry.size {
        SizeRule::Fixed if same_header => ((entry.basic_size + header) * objects.len()) as u64,
        SizeRule::Unicode if same_header => {
            // SAFETY: the rule says that the objects are strings.
            let bytes = |object: &Object| unsafe { unicode_bytes(reader, *object) } + header;
            objects.iter().map(bytes).sum::<usize>() as u64
        }
        _ => {
            // SAFETY: passed on from the caller.
            let bytes = |object: &Object| unsafe {
                let collected = reader.is_collected(*object, entry.flags, entry.is_gc);
                bytes_of(reader, entry, *object, collected)
            };
            objects.iter().map(bytes).sum()
        }
    }
}

/// Returns a length that may be stored as a negative number.
fn items(size: usize) -> usize {
    (size as isize).unsigned_abs()
}

/// # Safety
/// The object is an `int`.
unsafe fn digits(reader: &Reader, object: Object) -> usize {
    // SAFETY: an `int` has its length here.
    let size = unsafe { reader.size(object) };
    if reader.heap.tagged_numbers {
        size >> 3
    } else {
        items(size)
    }
}

fn type_bytes(reader: &Reader, type_: Type, collected: bool) -> u64 {
    if reader.is_heap_type(type_) {
        // SAFETY: `cached_keys` returns the keys object of a live class.
        let keys = cached_keys(reader, type_).map_or(0, |keys| unsafe { keys_bytes(reader, keys) });
        return (reader.basic_size(reader.known.type_type) + object::GC_HEADER + keys) as u64;
    }
    let header = collected || reader.heap.static_types_have_header;
    let basic = reader.heap.heap_type_name - HEAP_TYPE_TABLES;
    (basic + usize::from(header) * object::GC_HEADER) as u64
}

/// # Safety
/// The object is a string.
unsafe fn unicode_bytes(reader: &Reader, object: Object) -> usize {
    let layout = &reader.layout.unicode;
    // SAFETY: a string has these fields. One that is not compact ASCII also has a UTF-8 form, with its length and
    // address; one that is not compact has the address of its characters.
    unsafe {
        let state = reader.half(object, layout.state);
        let length = reader.word(object, layout.length);
        let width = ((state & layout.kind_mask) >> layout.kind_mask.trailing_zeros()) as usize;
        let compact = state & layout.compact_mask != 0;
        if compact && state & layout.ascii_mask != 0 {
            return layout.ascii_data + length + 1;
        }
        let (data, start) = if compact {
            (object.address() + layout.compact_data, layout.compact_data)
        } else {
            let data = reader.word(object, layout.compact_data);
            (data, layout.compact_data + 8)
        };
        // The UTF-8 form counts if it is a separate block.
        let (utf8_length, utf8) = layout.utf8();
        let utf8 = match reader.word(object, utf8) {
            0 => 0,
            pointer if pointer == data => 0,
            _ => reader.word(object, utf8_length) + 1,
        };
        start + (length + 1) * width.max(1) + utf8
    }
}

/// Returns the number of entries that a table of this many slots holds.
fn usable(slots: usize) -> usize {
    (slots << 1) / 3
}

/// Returns the bytes of a dict's keys object.
///
/// # Safety
/// At the address is a live keys object.
unsafe fn keys_bytes(reader: &Reader, keys: usize) -> usize {
    // SAFETY: a keys object has these fields, by version.
    unsafe {
        match reader.heap.dict_keys {
            DictKeys::Compact => {
                let entry = match byte_at(keys + dict_keys::KIND) {
                    0 => dict_keys::ENTRY,
                    _ => dict_keys::STRING_ENTRY,
                };
                let slots = 1 << byte_at(keys + dict_keys::SIZE_LOG);
                let index = 1 << byte_at(keys + dict_keys::INDEX_LOG);
                dict_keys::INDICES + index + usable(slots) * entry
            }
            DictKeys::Plain => {
                let slots = word_at(keys + plain_dict_keys::N_SLOTS);
                let index = match slots {
                    0..=0xff => 1,
                    0x100..=0xffff => 2,
                    0x1_0000..=0xffff_ffff => 4,
                    _ => 8,
                };
                plain_dict_keys::INDICES + slots * index + usable(slots) * plain_dict_keys::ENTRY
            }
        }
    }
}

/// # Safety
/// The object is an instance of dict or of a subclass.
unsafe fn dict_bytes(reader: &Reader, dict: Object) -> usize {
    // SAFETY: a dict has these fields, and a keys object, which starts with its reference count.
    unsafe {
        let keys = reader.word(dict, object::DICT_KEYS);
        let mut bytes = 0;
        if reader.word(dict, object::DICT_VALUES) != 0 {
            bytes += match reader.heap.dict_keys {
                DictKeys::Compact => {
                    let n_entries = word_at(keys + dict_keys::N_ENTRIES);
                    (n_entries + word_at(keys + dict_keys::N_USABLE)) * 8
                }
                DictKeys::Plain => usable(word_at(keys + plain_dict_keys::N_SLOTS)) * 8,
            };
        }
        // Keys that several dicts share belong to the type.
        if word_at(keys) == 1 {
            bytes += keys_bytes(reader, keys);
        }
        bytes
    }
}

/// Returns the bytes that hold the order of an ordered dict: a table, and a node for each entry.
///
/// # Safety
/// The object is a `collections.OrderedDict`.
unsafe fn order_bytes(reader: &Reader, object: Object) -> usize {
    // SAFETY: an ordered dict has these fields; the number of its entries is at the offset of a length.
    let (slots, nodes, n_entries) = unsafe {
        (
            reader.word(object, object::ORDERED_SLOTS),
            reader.word(object, object::ORDERED_NODES),
            reader.size(object),
        )
    };
    if nodes == 0 || !slots.is_power_of_two() || slots > MAX_ITEMS {
        return 0;
    }
    slots * 8 + n_entries.min(slots) * object::ORDERED_NODE
}

/// # Safety
/// The object is an `io.BytesIO`.
unsafe fn buffer_bytes(reader: &Reader, object: Object) -> usize {
    // SAFETY: the object has at this offset null or a reference to its buffer.
    let Some(buffer) = (unsafe { reader.reference(object, object::BYTES_IO_BUFFER) }) else {
        return 0;
    };
    let type_ = reader.type_of(buffer);
    // A buffer with more references belongs to another object, from which this one was created.
    if reader.references(buffer) != Some(1) || reader.flags(type_) & type_flag::BYTES == 0 {
        return 0;
    }
    // SAFETY: the buffer is a bytes object, which has a length.
    let size = unsafe { reader.size(buffer) };
    reader.basic_size(type_) + items(size).min(MAX_ITEMS)
}

/// # Safety
/// The object is a set or a frozenset.
unsafe fn set_bytes(reader: &Reader, set: Object) -> usize {
    // SAFETY: a set has these fields.
    let (table, mask) = unsafe {
        (
            reader.word(set, object::SET_TABLE),
            reader.word(set, object::SET_MASK),
        )
    };
    if table == set.address() + object::SET_SMALL_TABLE {
        0
    } else {
        (mask + 1) * object::SET_ENTRY
    }
}

/// Returns the bytes of the elements of an array that owns them: the largest product of length and stride over all
/// dimensions.
///
/// # Safety
/// The object is a numpy array.
pub unsafe fn array_bytes(reader: &Reader, array: Object) -> Option<usize> {
    // SAFETY: an array has these fields.
    let (n_dimensions, flags, dimensions, strides) = unsafe {
        (
            reader.half(array, numpy_array::N_DIMENSIONS) as usize,
            reader.half(array, numpy_array::FLAGS),
            reader.word(array, numpy_array::DIMENSIONS),
            reader.word(array, numpy_array::STRIDES),
        )
    };
    if flags & numpy_array::OWNS_DATA == 0 || n_dimensions > numpy_array::MAX_DIMENSIONS {
        return None;
    }
    if n_dimensions == 0 {
        return Some(8);
    }
    if dimensions == 0 || strides == 0 {
        return None;
    }
    let mut largest = 0;
    for number in 0..n_dimensions {
        // SAFETY: both lists have an entry for each dimension.
        let (length, stride) = unsafe {
            (
                word_at(dimensions + number * 8),
                word_at(strides + number * 8),
            )
        };
        if length == 0 {
            return Some(0);
        }
        largest = length.checked_mul(items(stride))?.max(largest);
    }
    Some(largest)
}
