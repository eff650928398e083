//! The layout of the parts of objects that a heap walk names and measures, for each version of Python. Tests compare it
//! with Python's headers.
//!
//! A walk finds references through the interpreter's own `tp_traverse`. The data here only names references and measures
//! objects. Each walk first verifies the parts that refer to separate memory: frames and values stored in instances
//! (`heap_walk::proof`), and the collector's lists (`heap_walk::roots`). It does not read a part whose check fails.

/// The storage of an instance's attributes without a dict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlineValues {
    /// None: all instances have a dict (3.10).
    None,
    /// A pointer to the values four words before the instance, the dict three words before it (3.11).
    TwoPointers,
    /// One word, three words before the instance: a dict, or values if the lowest bit is set (3.12).
    TaggedPointer,
    /// After the fields of the instance, with a byte that marks them as valid; the dict three words before it (3.13 and
    /// later).
    AfterFields,
}

/// The offsets and rules that differ between versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapLayout {
    /// `PyInterpreterState`: the first of the collector's lists ([`super::offsets::collector`]). `None` where only the
    /// interpreter can walk them (3.14 and later).
    pub generations: Option<usize>,
    /// `_PyInterpreterFrame.localsplus`; in the frame object in 3.10.
    pub frame_locals: usize,
    /// `_PyInterpreterFrame`: the number of valid locals and stack values (an i32), or the pointer after the last.
    pub frame_stack: FrameStack,
    pub frame_function: Option<usize>,
    pub frame_namespace: usize,
    pub frame_object: Option<usize>,
    /// Bits of a local variable's word that are not part of the address.
    pub frame_tag_bits: usize,
    /// `PyCodeObject`: the number of locals, an i32.
    pub code_n_locals: usize,
    /// `PyCodeObject`: tuples that together name all locals, in order.
    pub code_local_names: &'static [usize],
    /// `PyHeapTypeObject.ht_name`, which the fields of [`super::offsets::HeapTypeField`] follow.
    pub heap_type_name: usize,
    /// `sizeof(PyHeapTypeObject)`. If the running interpreter has another size, offsets in the struct are not used.
    pub heap_type_size: usize,
    pub dict_keys: DictKeys,
    pub inline_values: InlineValues,
    /// `PyBaseExceptionObject`: its references by name.
    pub exception_fields: &'static [(usize, &'static str)],
    /// Whether the size of a static type includes a collector's header that it does not have.
    pub static_types_have_header: bool,
    /// Whether an `int` stores its length in a tag (3.12 and later).
    pub tagged_numbers: bool,
    /// The number of digits in the size of the `int` 0.
    pub least_digits: usize,
    /// Bytes before the content of a bytearray that is not empty (3.15).
    pub byte_array_header: usize,
    /// Reference counts from this value on mark an immortal object (3.12 and later).
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
    /// 3.10: sizes are plain numbers, every entry has three words.
    Plain,
    /// 3.11 and later: sizes are logarithms, entries with string keys have two words.
    Compact,
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

/// Returns whether a collection stops tracking dicts that contain nothing tracked. From 3.14 on, all dicts are tracked.
pub fn collection_untracks_dicts(version: (u8, u8)) -> bool {
    version < (3, 14)
}

impl HeapLayout {
    pub fn of(version: (u8, u8)) -> Option<HeapLayout> {
        let v3_13 = HeapLayout {
            generations: Some(7400 + 24),
            heap_type_size: 928,
            inline_values: InlineValues::AfterFields,
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

#[cfg(test)]
mod tests {
    use super::super::offsets::{HeapTypeField, TypeField, dict_keys, object, type_flag};
    use super::*;

    /// Offsets that `tests/layout/generate` printed from the headers of each version.
    const PRINTED: &[((u8, u8), &str)] = &[
        ((3, 10), include_str!("tables/heap_v3_10.txt")),
        ((3, 11), include_str!("tables/heap_v3_11.txt")),
        ((3, 12), include_str!("tables/heap_v3_12.txt")),
        ((3, 13), include_str!("tables/heap_v3_13.txt")),
        ((3, 14), include_str!("tables/heap_v3_14.txt")),
        ((3, 15), include_str!("tables/heap_v3_15.txt")),
    ];

    /// The numbers of a layout under the names of the printed lists.
    fn numbers_of(layout: &HeapLayout) -> Vec<(String, usize)> {
        let mut all = Vec::new();
        let mut line = |name: &str, number: usize| all.push((name.to_owned(), number));
        macro_rules! constants {
            ($module:ident: $($name:ident)*) => {
                $(line(concat!(stringify!($module), ".", stringify!($name)), $module::$name);)*
            };
        }
        for (name, field) in [
            ("NAME", TypeField::Name),
            ("BASIC_SIZE", TypeField::BasicSize),
            ("ITEM_SIZE", TypeField::ItemSize),
            ("DEALLOC", TypeField::Dealloc),
            ("FLAGS", TypeField::Flags),
            ("TRAVERSE", TypeField::Traverse),
            ("WEAK_LIST_OFFSET", TypeField::WeakListOffset),
            ("METHODS", TypeField::Methods),
            ("MEMBERS", TypeField::Members),
            ("BASE", TypeField::Base),
            ("DICT", TypeField::Dict),
            ("DICT_OFFSET", TypeField::DictOffset),
            ("IS_GC", TypeField::IsGc),
            ("BASES", TypeField::Bases),
            ("MRO", TypeField::Mro),
            ("CACHE", TypeField::Cache),
            ("SUBCLASSES", TypeField::Subclasses),
            ("FINALIZE", TypeField::Finalize),
        ] {
            line(&format!("type_object.{name}"), field as usize);
        }
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
        line("ht_slots - ht_name", HeapTypeField::Slots as usize);
        line("ht_qualname - ht_name", HeapTypeField::Qualname as usize);
        line(
            "ht_cached_keys - ht_name",
            HeapTypeField::CachedKeys as usize,
        );
        line("ht_module - ht_name", HeapTypeField::Module as usize);
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
    fn layouts_match_the_headers_of_each_version() {
        for (version, printed) in PRINTED {
            let numbers = numbers_of(&HeapLayout::of(*version).unwrap());
            assert!(printed.lines().count() > 60, "{version:?}");
            for line in printed.lines() {
                let (name, number) = line.rsplit_once(' ').unwrap();
                let number: usize = number.parse().unwrap();
                assert!(
                    numbers.contains(&(name.to_owned(), number)),
                    "{version:?}: {name} is {number} in the headers"
                );
            }
        }
    }
}
