//! Where objects keep what a heap walk names and measures, as plain data; one constant per version, from its headers.
//!
//! A walk finds references through the interpreter's own `tp_traverse`. What is here only gives them names and objects
//! their sizes; the parts that lead to memory of their own (frames, values kept in instances, the collector's lists) are
//! proved by `heap_walk::proof` before the first walk, and left out where the proof fails.

/// Offsets in `PyTypeObject`, the same in all supported versions.
pub mod type_object {
    pub const NAME: usize = 24;
    pub const BASIC_SIZE: usize = 32;
    pub const ITEM_SIZE: usize = 40;
    pub const DEALLOC: usize = 48;
    pub const FLAGS: usize = 168;
    pub const TRAVERSE: usize = 184;
    pub const WEAK_LIST_OFFSET: usize = 208;
    pub const METHODS: usize = 232;
    pub const MEMBERS: usize = 240;
    pub const BASE: usize = 256;
    pub const DICT: usize = 264;
    pub const DICT_OFFSET: usize = 288;
    pub const IS_GC: usize = 328;
    pub const BASES: usize = 336;
    pub const MRO: usize = 344;
    pub const CACHE: usize = 352;
    pub const SUBCLASSES: usize = 360;
}

/// Bits of `tp_flags`.
pub mod type_flag {
    /// A static type of the interpreter's own (3.12 and later).
    pub const STATIC_BUILTIN: usize = 1 << 1;
    /// Values are kept behind the instance (3.13 and later).
    pub const INLINE_VALUES: usize = 1 << 2;
    pub const MANAGED_WEAK: usize = 1 << 3;
    pub const MANAGED_DICT: usize = 1 << 4;
    pub const HEAP_TYPE: usize = 1 << 9;
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

/// How instances keep attributes without a dict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlineValues {
    /// They do not (3.10).
    None,
    /// A pointer to the values four words before the instance, the dict three words before it (3.11).
    TwoPointers,
    /// One word, three words before the instance: a dict, or values if the lowest bit is set (3.12).
    TaggedPointer,
    /// Behind the instance, valid while a byte says so; the dict three words before it (3.13 and later).
    Behind,
}

/// What differs from version to version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapLayout {
    /// `PyInterpreterState`: the first of the collector's three lists; `None` where there are other
    /// lists, and only the interpreter walks them (3.14 and later).
    pub generations: Option<usize>,
    /// `_PyInterpreterFrame.localsplus`; 3.10 has it in the frame object.
    pub frame_locals: usize,
    /// `_PyInterpreterFrame`: how many locals and stack values are valid (an i32), or the pointer behind the last.
    pub frame_stack: FrameStack,
    pub frame_function: Option<usize>,
    pub frame_namespace: usize,
    pub frame_object: Option<usize>,
    /// Bits of a local variable's word that are no address.
    pub frame_tag_bits: usize,
    /// `PyCodeObject`: how many locals, an i32.
    pub code_n_locals: usize,
    /// `PyCodeObject`: tuples that together name all locals, in order.
    pub code_local_names: &'static [usize],
    /// `PyHeapTypeObject.ht_name`; slots, qualified name and cached keys follow.
    pub heap_type_name: usize,
    /// `sizeof(PyHeapTypeObject)`, by which the offsets in it are confirmed.
    pub heap_type_size: usize,
    pub dict_keys: DictKeys,
    pub inline_values: InlineValues,
    /// `PyBaseExceptionObject`: its references by name.
    pub exception_fields: &'static [(usize, &'static str)],
    /// Whether the size of a static type counts a collector's header that it does not have.
    pub static_types_have_header: bool,
    /// Whether a whole number keeps its length in a tag (3.12 and later).
    pub tagged_numbers: bool,
    /// Digits that a zero is counted with.
    pub least_digits: usize,
    /// Bytes in front of the content of a bytearray that has any (3.15).
    pub byte_array_header: usize,
    /// Counts of references from here on mean "immortal" (3.12 and later).
    pub immortal: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStack {
    /// Pointer in the frame object (3.10): not read.
    Unknown,
    Count(usize),
    Pointer(usize),
}

/// `PyDictKeysObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DictKeys {
    /// 3.10: sizes are written out, every entry has three words.
    Plain,
    /// 3.11 and later: sizes are logarithms, entries under texts have two words.
    Compact,
}

/// `PyDictKeysObject` of 3.11 and later.
pub mod dict_keys {
    /// Logarithm of the number of places.
    pub const SIZE_LOG: usize = 8;
    /// Logarithm of the bytes of the index.
    pub const INDEX_LOG: usize = 9;
    /// 0 if keys may be anything, others if all are texts.
    pub const KIND: usize = 10;
    pub const N_USABLE: usize = 16;
    pub const N_ENTRIES: usize = 24;
    /// Entries stand behind the index.
    pub const INDICES: usize = 32;
}

const EXCEPTION_3_10: &[(usize, &str)] = &[
    (16, "__dict__"),
    (24, "args"),
    (32, "__traceback__"),
    (40, "__context__"),
    (48, "__cause__"),
];
const EXCEPTION_3_11: &[(usize, &str)] = &[
    (16, "__dict__"),
    (24, "args"),
    (32, "__notes__"),
    (40, "__traceback__"),
    (48, "__context__"),
    (56, "__cause__"),
];

const V3_12: HeapLayout = HeapLayout {
    generations: Some(112 + 24),
    frame_locals: 72,
    frame_stack: FrameStack::Count(64),
    frame_function: Some(16),
    frame_namespace: 40,
    frame_object: Some(48),
    frame_tag_bits: 0,
    code_n_locals: 72,
    code_local_names: &[96],
    heap_type_name: 856,
    heap_type_size: 920,
    dict_keys: DictKeys::Compact,
    inline_values: InlineValues::TaggedPointer,
    exception_fields: EXCEPTION_3_11,
    static_types_have_header: true,
    tagged_numbers: true,
    least_digits: 1,
    byte_array_header: 0,
    immortal: Some(1 << 31),
};

impl HeapLayout {
    pub fn of(version: (u8, u8)) -> Option<HeapLayout> {
        let v3_13 = HeapLayout {
            generations: Some(7400 + 24),
            heap_type_size: 928,
            inline_values: InlineValues::Behind,
            static_types_have_header: false,
            ..V3_12
        };
        let v3_14 = HeapLayout {
            generations: None,
            frame_locals: 80,
            frame_stack: FrameStack::Pointer(64),
            frame_tag_bits: 3,
            heap_type_size: 936,
            ..v3_13
        };
        Some(match version {
            (3, 10) => HeapLayout {
                generations: Some(616 + 24),
                frame_locals: 352,
                frame_stack: FrameStack::Unknown,
                frame_function: None,
                frame_namespace: 56,
                frame_object: None,
                code_n_locals: 28,
                code_local_names: &[72, 88, 80],
                heap_type_name: 848,
                heap_type_size: 888,
                dict_keys: DictKeys::Plain,
                inline_values: InlineValues::None,
                exception_fields: EXCEPTION_3_10,
                static_types_have_header: false,
                tagged_numbers: false,
                immortal: None,
                least_digits: 0,
                ..V3_12
            },
            (3, 11) => HeapLayout {
                generations: Some(648 + 24),
                frame_function: Some(0),
                frame_namespace: 24,
                frame_object: Some(40),
                code_n_locals: 76,
                heap_type_name: 848,
                heap_type_size: 904,
                inline_values: InlineValues::TwoPointers,
                tagged_numbers: false,
                immortal: None,
                ..V3_12
            },
            (3, 12) => V3_12,
            (3, 13) => v3_13,
            (3, 14) => v3_14,
            (3, 15) => HeapLayout {
                heap_type_name: 864,
                heap_type_size: 944,
                byte_array_header: 33,
                ..v3_14
            },
            _ => return None,
        })
    }
}

/// `PyDictObject`, `PyListObject`, `PySetObject`, …: the same in all supported versions.
pub mod object {
    pub const TYPE: usize = 8;
    pub const SIZE: usize = 16;
    pub const DICT_KEYS: usize = 32;
    pub const DICT_VALUES: usize = 40;
    pub const LIST_ITEMS: usize = 24;
    pub const LIST_ALLOCATED: usize = 32;
    pub const SET_MASK: usize = 32;
    pub const SET_TABLE: usize = 40;
    pub const SET_SMALL_TABLE: usize = 64;
    pub const BYTE_ARRAY_ALLOCATED: usize = 24;
    pub const ARRAY_ALLOCATED: usize = 32;
    pub const ARRAY_DESCRIPTION: usize = 40;
    pub const DEQUE_LEFT_INDEX: usize = 40;
    pub const DICT_SIZE: usize = 48;
    /// Of an ordered dict, behind the dict and two links: the table of its nodes, and how many places that has.
    pub const ORDERED_NODES: usize = DICT_SIZE + 16;
    pub const ORDERED_SLOTS: usize = DICT_SIZE + 24;
    pub const BYTES_IO_BUFFER: usize = 16;
    pub const WEAK_REFERENT: usize = 16;
    pub const CELL_CONTENT: usize = 16;
    pub const FRAME_OBJECT_FRAME: usize = 24;
    /// Of the collector's header, which stands in front of the object: the word that is 0 while it is not tracked.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `tests/layout/generate` printed from the headers of each version.
    const PRINTED: &[((u8, u8), &str)] = &[
        ((3, 10), include_str!("tables/heap_v3_10.txt")),
        ((3, 11), include_str!("tables/heap_v3_11.txt")),
        ((3, 12), include_str!("tables/heap_v3_12.txt")),
        ((3, 13), include_str!("tables/heap_v3_13.txt")),
        ((3, 14), include_str!("tables/heap_v3_14.txt")),
        ((3, 15), include_str!("tables/heap_v3_15.txt")),
    ];

    /// Numbers of a layout under the names that the headers are printed with.
    fn ours(layout: &HeapLayout) -> Vec<(String, usize)> {
        let mut all = Vec::new();
        let mut line = |name: &str, number: usize| all.push((name.to_owned(), number));
        macro_rules! constants {
            ($module:ident: $($name:ident)*) => {
                $(line(concat!(stringify!($module), ".", stringify!($name)), $module::$name);)*
            };
        }
        constants!(type_object: NAME BASIC_SIZE ITEM_SIZE DEALLOC FLAGS TRAVERSE WEAK_LIST_OFFSET METHODS MEMBERS BASE DICT);
        constants!(type_object: DICT_OFFSET IS_GC BASES MRO CACHE SUBCLASSES);
        constants!(type_flag: HEAP_TYPE READY HAVE_GC LONG LIST TUPLE UNICODE DICT EXCEPTION TYPE MANAGED_DICT);
        constants!(type_flag: MANAGED_WEAK STATIC_BUILTIN INLINE_VALUES);
        constants!(object: TYPE SIZE DICT_KEYS DICT_VALUES LIST_ITEMS LIST_ALLOCATED SET_MASK SET_TABLE);
        constants!(object: SET_SMALL_TABLE BYTE_ARRAY_ALLOCATED WEAK_REFERENT CELL_CONTENT GC_HEADER);
        constants!(dict_keys: SIZE_LOG INDEX_LOG KIND N_USABLE N_ENTRIES INDICES);
        for (offset, name) in object::FUNCTION {
            line(&format!("function.{name}"), *offset);
        }
        for (offset, name) in layout.exception_fields {
            line(&format!("exception.{name}"), *offset);
        }
        line("heap_type_name", layout.heap_type_name);
        line("heap_type_size", layout.heap_type_size);
        // `heap_walk` finds these behind the name.
        line("ht_slots - ht_name", 8);
        line("ht_qualname - ht_name", 16);
        line("ht_cached_keys - ht_name", 24);
        line("ht_module - ht_name", 32);
        line("frame_locals", layout.frame_locals);
        line("frame_namespace", layout.frame_namespace);
        line("code_n_locals", layout.code_n_locals);
        for offset in layout.code_local_names {
            line("code_local_names", *offset);
        }
        for (name, offset) in [
            ("generations", layout.generations),
            ("frame_function", layout.frame_function),
            ("frame_object", layout.frame_object),
        ] {
            if let Some(offset) = offset {
                line(name, offset);
            }
        }
        if let FrameStack::Count(offset) | FrameStack::Pointer(offset) = layout.frame_stack {
            line("frame_stack", offset);
        }
        all
    }

    #[test]
    fn layouts_are_what_the_headers_of_each_version_say() {
        for (version, printed) in PRINTED {
            let ours = ours(&HeapLayout::of(*version).unwrap());
            assert!(printed.lines().count() > 60, "{version:?}");
            for line in printed.lines() {
                let (name, number) = line.rsplit_once(' ').unwrap();
                let number: usize = number.parse().unwrap();
                assert!(
                    ours.contains(&(name.to_owned(), number)),
                    "{version:?}: {name} is {number} in the headers"
                );
            }
        }
    }
}
