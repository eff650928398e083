//! Offsets in CPython's structs that are the same in all supported versions.
//!
//! `heap_layout` holds those that differ, and its tests compare both with the headers of each version.

/// Fields of `PyTypeObject` by their offset. Every type has all of them.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeField {
    Name = 24,
    BasicSize = 32,
    ItemSize = 40,
    Dealloc = 48,
    Flags = 168,
    Traverse = 184,
    WeakListOffset = 208,
    Methods = 232,
    Members = 240,
    Base = 256,
    Dict = 264,
    DictOffset = 288,
    IsGc = 328,
    Bases = 336,
    Mro = 344,
    Cache = 352,
    Subclasses = 360,
    Finalize = 392,
}

/// Fields of `PyHeapTypeObject` by their offset from `ht_name`.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapTypeField {
    Name = 0,
    Slots = 8,
    Qualname = 16,
    CachedKeys = 24,
    Module = 32,
}

/// Bytes of `PyHeapTypeObject` from the end of its `PyTypeObject` to `ht_name`: the tables of functions.
pub const HEAP_TYPE_TABLES: usize = 440;

/// Bits of `tp_flags`.
pub mod type_flag {
    /// The interpreter's own static type (3.12 and later).
    pub const STATIC_BUILTIN: usize = 1 << 1;
    /// Values are stored after the fields of the instance (3.13 and later).
    pub const INLINE_VALUES: usize = 1 << 2;
    pub const MANAGED_WEAK: usize = 1 << 3;
    pub const MANAGED_DICT: usize = 1 << 4;
    pub const HEAP_TYPE: usize = 1 << 9;
    #[cfg(test)]
    pub const READY: usize = 1 << 12;
    pub const HAVE_GC: usize = 1 << 14;
    pub const LONG: usize = 1 << 24;
    pub const LIST: usize = 1 << 25;
    pub const TUPLE: usize = 1 << 26;
    pub const BYTES: usize = 1 << 27;
    pub const UNICODE: usize = 1 << 28;
    pub const DICT: usize = 1 << 29;
    pub const EXCEPTION: usize = 1 << 30;
    pub const TYPE: usize = 1 << 31;
}

/// Returns the bytes of the pointers to `__dict__` and weak references before instances of a type with these flags.
/// The collector's header, if there is one, lies before them.
pub fn managed_bytes(version: (u8, u8), flags: usize) -> usize {
    let managed = match version {
        (3, ..=10) => 0,
        (3, 11) => type_flag::MANAGED_DICT,
        _ => type_flag::MANAGED_DICT | type_flag::MANAGED_WEAK,
    };
    if flags & managed != 0 { 16 } else { 0 }
}

/// `PyMemberDef`.
pub mod member {
    pub const TYPE: usize = 8;
    pub const OFFSET: usize = 16;
    pub const LEN: usize = 40;
    /// Values of the type field for members that are references.
    pub const OBJECT_TYPES: [u32; 2] = [6, 16];
}

/// Bytes of a `PyMethodDef`, which starts with its name.
pub const METHOD_LEN: usize = 32;

/// The collector's lists in `PyInterpreterState` up to 3.13, as offsets from the first.
pub mod collector {
    /// Heads of three generations and of the frozen objects. A head holds two links, a threshold and a count.
    pub const HEADS: [usize; 4] = [0, 24, 48, 80];
    /// The pointer to the youngest generation, between the third head and the last.
    pub const YOUNGEST: usize = 72;
    /// The link to the previous header, in a header.
    pub const PREVIOUS: usize = 8;
    /// Bits of a link that are flags.
    pub const FLAG_BITS: usize = 3;
}

/// `PyDictKeysObject` of 3.11 and later.
pub mod dict_keys {
    /// Logarithm of the number of slots.
    pub const SIZE_LOG: usize = 8;
    /// Logarithm of the bytes of the index.
    pub const INDEX_LOG: usize = 9;
    /// 0 if keys may be of any type, other values if all are strings.
    pub const KIND: usize = 10;
    pub const N_USABLE: usize = 16;
    pub const N_ENTRIES: usize = 24;
    /// The index; the entries follow it.
    pub const INDICES: usize = 32;
    /// Bytes of an entry that has a hash before its key and value, and of one without.
    pub const ENTRY: usize = 24;
    pub const STRING_ENTRY: usize = 16;
}

/// `PyDictKeysObject` of 3.10.
pub mod plain_dict_keys {
    pub const N_SLOTS: usize = 8;
    /// The index; the entries follow it.
    pub const INDICES: usize = 40;
    pub const ENTRY: usize = 24;
}

/// Values of attributes that instances store without a dict, from 3.11 on.
pub mod inline_values {
    /// Bytes from the pointer to the dict, or from the tagged pointer of 3.12, to the instance.
    pub const DICT_BEFORE: usize = 24;
    /// Bytes from the pointer to the values to the instance (3.11).
    pub const VALUES_BEFORE: usize = 32;
    /// Offsets in the header of values that follow the instance's fields, and its length (3.13 and later). The header
    /// consists of the bytes capacity, size, embedded and valid.
    pub const CAPACITY: usize = 0;
    pub const VALID: usize = 3;
    pub const HEADER: usize = 8;
}

/// `PyObject`, `PyDictObject`, `PyListObject`, `PySetObject` and others.
pub mod object {
    pub const TYPE: usize = 8;
    /// The length of a variable-size object. The header of other objects ends at this offset.
    pub const SIZE: usize = 16;
    pub const DICT_KEYS: usize = 32;
    pub const DICT_VALUES: usize = 40;
    pub const LIST_ITEMS: usize = 24;
    pub const LIST_ALLOCATED: usize = 32;
    /// The digits of an `int`, four bytes each.
    pub const LONG_DIGITS: usize = 24;
    pub const SET_MASK: usize = 32;
    pub const SET_TABLE: usize = 40;
    pub const SET_SMALL_TABLE: usize = 64;
    pub const SET_ENTRY: usize = 16;
    pub const BYTE_ARRAY_ALLOCATED: usize = 24;
    /// `array.array`: the number of items for which its buffer has room, and the description of its item type, which
    /// has the bytes of an item.
    pub const ARRAY_ALLOCATED: usize = 32;
    pub const ARRAY_DESCRIPTION: usize = 40;
    pub const ARRAY_ITEM_SIZE: usize = 4;
    pub const DEQUE_LEFT_INDEX: usize = 40;
    /// Items of a block of a deque, and its bytes: the items and two links.
    pub const DEQUE_BLOCK_ITEMS: usize = 64;
    pub const DEQUE_BLOCK: usize = 66 * 8;
    pub const DICT_SIZE: usize = 48;
    /// `collections.OrderedDict`, after the dict and two links: the table of its nodes, and the number of its slots.
    pub const ORDERED_NODES: usize = DICT_SIZE + 16;
    pub const ORDERED_SLOTS: usize = DICT_SIZE + 24;
    /// Bytes of a node.
    pub const ORDERED_NODE: usize = 32;
    pub const BYTES_IO_BUFFER: usize = 16;
    pub const WEAK_REFERENT: usize = 16;
    pub const CELL_CONTENT: usize = 16;
    pub const FRAME_OBJECT_FRAME: usize = 24;
    /// Bytes of the collector's header before the object. Its first word is 0 while the object is not tracked.
    pub const GC_HEADER: usize = 16;
    pub const FUNCTION: &[(usize, &str)] = &[
        (16, "__globals__"),
        (24, "__builtins__"),
        (32, "__name__"),
        (40, "__qualname__"),
        (48, "__code__"),
        (56, "__defaults__"),
        (64, "__kwdefaults__"),
        (72, "__closure__"),
        (80, "__doc__"),
        (104, "__module__"),
        (112, "__annotations__"),
    ];
    pub const TRACEBACK: &[(usize, &str)] = &[(16, "tb_next"), (24, "tb_frame")];
    /// Fields of code objects that are not members: 3.11 and later name all locals in one tuple.
    pub const CODE: &[(usize, &str)] = &[(96, "co_localsplusnames"), (104, "co_localspluskinds")];
}

/// numpy's `PyArrayObject`.
pub mod numpy_array {
    pub const DATA: usize = 16;
    pub const N_DIMENSIONS: usize = 24;
    pub const DIMENSIONS: usize = 32;
    pub const STRIDES: usize = 40;
    pub const BASE: usize = 48;
    pub const DESCRIPTION: usize = 56;
    pub const FLAGS: usize = 64;
    /// Bytes of the fields above; later versions have more.
    pub const LEN: usize = 72;
    /// Bits of the flags.
    pub const CONTIGUOUS: u32 = 3;
    pub const OWNS_DATA: u32 = 4;
    /// In the description: the number of the element type, and its value for Python objects.
    pub const TYPE_NUMBER: usize = 28;
    pub const OBJECTS: u32 = 17;
    pub const MAX_DIMENSIONS: usize = 64;
}
