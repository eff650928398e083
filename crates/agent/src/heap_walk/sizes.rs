//! How large an object is: what `sys.getsizeof` would say, computed from the object itself. A type's own `__sizeof__` is
//! never called: it makes objects, and may be anybody's Python code.

use super::reader::Reader;
use super::types::{TypeEntry, cached_keys_bytes};
use crate::cpython::heap_layout::{DictKeys, dict_keys, object, type_flag, type_object};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRule {
    /// The basic size.
    Fixed,
    /// The basic size and items.
    Items,
    /// The same in whole words.
    Code,
    Long,
    Unicode,
    List,
    Dict,
    /// `collections.OrderedDict`.
    OrderedDict,
    Set,
    ByteArray,
    /// `io.BytesIO`, with its text if nobody else has that.
    BytesIO,
    TypedArray,
    Deque,
    Type,
    /// numpy's.
    Array,
}

/// A length beyond this is not one.
const MAX_ITEMS: usize = 1 << 40;
/// A block of a deque: 64 items and two links.
const DEQUE_BLOCK: usize = 66 * 8;

impl SizeRule {
    pub fn of(reader: &Reader, address: usize, flags: usize, is_set: bool) -> SizeRule {
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
        } else if reader.word(address + type_object::ITEM_SIZE) != 0 {
            SizeRule::Items
        } else {
            SizeRule::Fixed
        }
    }
}

/// Bytes of an object, with what stands in front of it.
#[inline(always)]
pub fn bytes_of(reader: &Reader, entry: &TypeEntry, at: usize, collected: bool) -> u64 {
    let basic = entry.basic_size;
    let bytes = match entry.size {
        SizeRule::Fixed => basic,
        SizeRule::Items => basic + items(reader.size(at)).min(MAX_ITEMS) * entry.item_size,
        SizeRule::Code => (basic + items(reader.size(at)) * entry.item_size).next_multiple_of(8),
        SizeRule::Long => 24 + digits(reader, at).max(reader.heap.least_digits) * 4,
        SizeRule::Unicode => unicode_bytes(reader, at),
        SizeRule::List => basic + reader.word(at + object::LIST_ALLOCATED) * 8,
        SizeRule::Dict => basic + dict_bytes(reader, at),
        SizeRule::OrderedDict => basic + dict_bytes(reader, at) + order_bytes(reader, at),
        SizeRule::BytesIO => basic + buffer_bytes(reader, at),
        SizeRule::Set => basic + set_bytes(reader, at),
        SizeRule::ByteArray => match reader.word(at + object::BYTE_ARRAY_ALLOCATED) {
            0 => basic,
            allocated => basic + allocated + reader.heap.byte_array_header,
        },
        SizeRule::TypedArray => {
            let description = reader.word(at + object::ARRAY_DESCRIPTION);
            let item = reader.half(description + 4) as usize;
            basic + reader.word(at + object::ARRAY_ALLOCATED) * item
        }
        SizeRule::Deque => {
            let used = reader.word(at + object::DEQUE_LEFT_INDEX) + reader.size(at);
            basic + used.div_ceil(64).max(1) * DEQUE_BLOCK
        }
        SizeRule::Type => return type_bytes(reader, at, collected),
        SizeRule::Array => {
            basic + array_bytes(reader, at).unwrap_or(0) + reader.half(at + 24) as usize * 16
        }
    };
    (bytes + entry.header_bytes(collected)) as u64
}

/// Bytes of objects of one type.
#[inline(always)]
pub fn bytes_of_all(reader: &Reader, entry: &TypeEntry, objects: &[usize]) -> u64 {
    let same_header = entry.is_gc == 0;
    let header = entry.header_bytes(entry.flags & type_flag::HAVE_GC != 0);
    match entry.size {
        SizeRule::Fixed if same_header => ((entry.basic_size + header) * objects.len()) as u64,
        SizeRule::Unicode if same_header => {
            let texts = objects.iter().map(|at| unicode_bytes(reader, *at) + header);
            texts.sum::<usize>() as u64
        }
        _ => {
            let bytes = |at: &usize| {
                let collected = reader.is_collected(*at, entry.flags, entry.is_gc);
                bytes_of(reader, entry, *at, collected)
            };
            objects.iter().map(bytes).sum()
        }
    }
}

/// A length that may be stored as a negative number.
fn items(size: usize) -> usize {
    (size as isize).unsigned_abs()
}

fn digits(reader: &Reader, at: usize) -> usize {
    let size = reader.size(at);
    if reader.heap.tagged_numbers {
        size >> 3
    } else {
        items(size)
    }
}

fn type_bytes(reader: &Reader, at: usize, collected: bool) -> u64 {
    let basic = reader.heap.heap_type_name;
    if reader.is_heap_type(at) {
        let heap_type = reader.word(reader.known.type_type + 32) as u64;
        return heap_type + 16 + cached_keys_bytes(reader, at);
    }
    // The struct of a static type ends where the tables of a heap type begin.
    let header = collected || reader.heap.static_types_have_header;
    (basic - 440 + usize::from(header) * 16) as u64
}

fn unicode_bytes(reader: &Reader, at: usize) -> usize {
    let layout = &reader.layout.unicode;
    let state = reader.half(at + layout.state);
    let length = reader.word(at + layout.length);
    let width = ((state & layout.kind_mask) >> layout.kind_mask.trailing_zeros()) as usize;
    let compact = state & layout.compact_mask != 0;
    if compact && state & layout.ascii_mask != 0 {
        return layout.ascii_data + length + 1;
    }
    let (data, start) = if compact {
        (at + layout.compact_data, layout.compact_data)
    } else {
        (
            reader.word(at + layout.compact_data),
            layout.compact_data + 8,
        )
    };
    // The UTF-8 form stands right behind the fields of an ASCII string; it counts if it is memory of its own.
    let utf8 = match reader.word(at + layout.ascii_data + 8) {
        0 => 0,
        pointer if pointer == data => 0,
        _ => reader.word(at + layout.ascii_data) + 1,
    };
    start + (length + 1) * width.max(1) + utf8
}

/// Two thirds: what a table of this many places holds.
fn usable(slots: usize) -> usize {
    (slots << 1) / 3
}

/// Bytes of a dict's keys object.
pub fn keys_bytes(reader: &Reader, keys: usize) -> u64 {
    let bytes = match reader.heap.dict_keys {
        DictKeys::Compact => {
            let any_key = reader.byte(keys + dict_keys::KIND) == 0;
            let entry = if any_key { 24 } else { 16 };
            let slots = 1 << reader.byte(keys + dict_keys::SIZE_LOG);
            let index = 1 << reader.byte(keys + dict_keys::INDEX_LOG);
            dict_keys::INDICES + index + usable(slots) * entry
        }
        DictKeys::Plain => {
            let slots = reader.word(keys + 8);
            let index = match slots {
                0..=0xff => 1,
                0x100..=0xffff => 2,
                0x1_0000..=0xffff_ffff => 4,
                _ => 8,
            };
            40 + slots * index + usable(slots) * 24
        }
    };
    bytes as u64
}

fn dict_bytes(reader: &Reader, at: usize) -> usize {
    let keys = reader.word(at + object::DICT_KEYS);
    let mut bytes = 0;
    if reader.word(at + object::DICT_VALUES) != 0 {
        bytes += match reader.heap.dict_keys {
            DictKeys::Compact => {
                (reader.word(keys + dict_keys::N_ENTRIES) + reader.word(keys + dict_keys::N_USABLE))
                    * 8
            }
            DictKeys::Plain => usable(reader.word(keys + 8)) * 8,
        };
    }
    // Keys that several dicts share count as the type's.
    if reader.word(keys) == 1 {
        bytes += keys_bytes(reader, keys) as usize;
    }
    bytes
}

/// The order of an ordered dict: a table, and a node of four words for each entry.
fn order_bytes(reader: &Reader, at: usize) -> usize {
    let slots = reader.word(at + object::ORDERED_SLOTS);
    if reader.word(at + object::ORDERED_NODES) == 0 || !slots.is_power_of_two() || slots > MAX_ITEMS
    {
        return 0;
    }
    // Its number of entries stands where others have a length.
    slots * 8 + reader.size(at).min(slots) * 32
}

fn buffer_bytes(reader: &Reader, at: usize) -> usize {
    let buffer = reader.word(at + object::BYTES_IO_BUFFER);
    // One reference: what the object was made from and somebody else has, too, is that one's.
    if buffer == 0 || reader.half(buffer) != 1 {
        return 0;
    }
    let kind = reader.type_of(buffer);
    if reader.flags(kind) & type_flag::BYTES == 0 {
        return 0;
    }
    reader.word(kind + type_object::BASIC_SIZE) + items(reader.size(buffer)).min(MAX_ITEMS)
}

fn set_bytes(reader: &Reader, at: usize) -> usize {
    if reader.word(at + object::SET_TABLE) == at + object::SET_SMALL_TABLE {
        0
    } else {
        (reader.word(at + object::SET_MASK) + 1) * 16
    }
}

/// numpy's `PyArrayObject`.
pub mod array {
    pub const DATA: usize = 16;
    pub const N_DIMENSIONS: usize = 24;
    pub const DIMENSIONS: usize = 32;
    pub const STRIDES: usize = 40;
    pub const BASE: usize = 48;
    pub const DESCRIPTION: usize = 56;
    pub const FLAGS: usize = 64;
    pub const CONTIGUOUS: u32 = 3;
    pub const OWNS_DATA: u32 = 4;
    /// In the description: the number of the element type, and that of Python objects.
    pub const TYPE_NUMBER: usize = 28;
    pub const OBJECTS: u32 = 17;
    pub const MAX_DIMENSIONS: usize = 64;
}

/// Bytes of the elements of an array that owns them: the largest of length times step over all dimensions.
pub fn array_bytes(reader: &Reader, at: usize) -> Option<usize> {
    let n_dimensions = reader.half(at + array::N_DIMENSIONS) as usize;
    if reader.half(at + array::FLAGS) & array::OWNS_DATA == 0
        || n_dimensions > array::MAX_DIMENSIONS
    {
        return None;
    }
    if n_dimensions == 0 {
        return Some(8);
    }
    let (dimensions, strides) = (
        reader.word(at + array::DIMENSIONS),
        reader.word(at + array::STRIDES),
    );
    if dimensions == 0 || strides == 0 {
        return None;
    }
    let mut largest = 0;
    for number in 0..n_dimensions {
        let length = reader.word(dimensions + number * 8);
        let step = items(reader.word(strides + number * 8));
        if length == 0 {
            return Some(0);
        }
        largest = length.checked_mul(step)?.max(largest);
    }
    Some(largest)
}
