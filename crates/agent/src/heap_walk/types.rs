//! What a walk has to know of a type, found out once per type: how its instances are looked through, what their fields
//! are called, and how large they are.

use heaptide_capture::heap::{EdgeType, Label, TypeInfo};

use super::names::NameTable;
use super::reader::{Field, Reader};
use super::sizes::{SizeRule, keys_bytes};
use crate::cpython::heap_layout::{
    DictKeys, InlineValues, dict_keys, object, type_flag, type_object,
};

/// `PyMemberDef`: name, type and offset, and its length.
const MEMBER_TYPE: usize = 8;
const MEMBER_OFFSET: usize = 16;
const MEMBER_LEN: usize = 40;
/// Types of members that are references.
const MEMBER_OBJECT: [u32; 2] = [6, 16];
/// Members and bases beyond this are a broken type.
const MAX_MEMBERS: usize = 4096;
const MAX_BASES: usize = 256;

/// How instances are looked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// They refer to nothing.
    Leaf,
    List,
    Tuple,
    Dict,
    /// They are types themselves.
    Type,
    /// By the fields that are known of them: the collector does not follow them.
    Fields,
    /// They are instances of a class written in Python that is based on nothing else: slots, attributes and the class.
    Instance,
    /// By the type's own `tp_traverse`.
    Traverse,
}

/// Parts that are named or looked at in a way of their own, after `tp_traverse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    None,
    /// A subclass of dict: its entries are read as those of a dict.
    DictEntries,
    /// Elements come in order: of a subclass of list or tuple, or a deque.
    Sequence,
    Set,
    Weak,
    Generator,
    Frame,
    /// A numpy array, or a subclass.
    Array,
}

pub struct TypeEntry {
    pub address: usize,
    pub flags: usize,
    pub scan: Scan,
    pub special: Special,
    /// The interpreter's own static type: instances are whole even while they are not tracked.
    pub own: bool,
    pub traverse: usize,
    pub is_gc: usize,
    pub basic_size: usize,
    pub item_size: usize,
    /// Where the `__dict__` is: positive from the start, negative from the end, 0 none.
    pub dict_offset: isize,
    pub size: SizeRule,
    pub estimated: bool,
    pub fields: Vec<Field>,
    /// Names of attributes that are kept in instances, in the order of their values.
    pub attributes: Vec<u32>,
    /// Bytes of the values of an instance that keeps them without a dict; the first ones of a class may have more.
    pub values_bytes: u64,
    pub info: TypeInfo,
}

impl TypeEntry {
    pub fn of(reader: &Reader, names: &mut NameTable, address: usize) -> TypeEntry {
        let flags = reader.flags(address);
        let chain = bases(reader, address);
        let has = |flag| flags & flag != 0;
        let known = &reader.known;
        let mut tp_name = String::new();
        let mut is_named = |wanted: &str| {
            chain.iter().any(|base| {
                reader.c_text(reader.word(base + type_object::NAME), &mut tp_name);
                tp_name == wanted
            })
        };
        let basic_size = reader.word(address + type_object::BASIC_SIZE);
        let is_array = is_named("numpy.ndarray") && basic_size >= 72;
        let is_deque = is_named("collections.deque");
        let is_typed_array = is_named("array.array");
        let is_ordered = has(type_flag::DICT)
            && is_named("collections.OrderedDict")
            && basic_size >= object::ORDERED_SLOTS + 8;
        let is_bytes_io = is_named("_io.BytesIO") && basic_size >= object::BYTES_IO_BUFFER + 8;
        let is_one_of = |types: &[usize]| chain.iter().any(|base| types.contains(base));
        let has_frame = [
            known.generator,
            known.coroutine,
            known.async_generator,
            known.frame,
        ]
        .contains(&address);
        let traverse = reader.word(address + type_object::TRAVERSE);
        let collected = has(type_flag::HAVE_GC) && traverse != 0;

        let mut fields = Vec::new();
        collect_fields(reader, names, &chain, flags, &mut fields);
        let special = if is_array {
            Special::Array
        } else if is_one_of(&known.weak) {
            Special::Weak
        } else if [known.generator, known.coroutine, known.async_generator].contains(&address) {
            Special::Generator
        } else if address == known.frame {
            Special::Frame
        } else if has(type_flag::DICT) {
            Special::DictEntries
        } else if has(type_flag::LIST) || has(type_flag::TUPLE) || is_deque {
            Special::Sequence
        } else if is_one_of(&[known.set, known.frozen_set]) {
            Special::Set
        } else {
            Special::None
        };
        let scan = if address == known.list {
            Scan::List
        } else if address == known.tuple {
            Scan::Tuple
        } else if address == known.dict {
            Scan::Dict
        } else if has(type_flag::TYPE) {
            Scan::Type
        } else if collected && is_plain_class(reader, &chain) {
            Scan::Instance
        } else if collected {
            Scan::Traverse
        } else if !fields.is_empty() || is_array || address == known.code {
            Scan::Fields
        } else {
            Scan::Leaf
        };

        let mut size = SizeRule::of(
            reader,
            address,
            flags,
            is_one_of(&[known.set, known.frozen_set]),
        );
        if is_array {
            size = SizeRule::Array;
        } else if is_deque {
            size = SizeRule::Deque;
        } else if is_typed_array {
            size = SizeRule::TypedArray;
        } else if is_ordered {
            size = SizeRule::OrderedDict;
        } else if is_bytes_io {
            size = SizeRule::BytesIO;
        } else if is_one_of(&[known.byte_array]) {
            size = SizeRule::ByteArray;
        } else if has_frame && reader.heap.frame_function.is_some() {
            // From 3.11 on these have items, but no length where others have it.
            size = SizeRule::Fixed;
        } else if address == known.code {
            size = SizeRule::Code;
        }
        let says_more = (has_frame && size == SizeRule::Fixed) || {
            // Types whose own `__sizeof__` is what the rule computes end the search.
            let measured = [
                known.list,
                known.dict,
                known.long,
                known.unicode,
                known.set,
                known.frozen_set,
                known.type_type,
                known.code,
            ];
            let until = chain.iter().position(|base| measured.contains(base));
            let above = &chain[..until.unwrap_or(chain.len().saturating_sub(1))];
            let by_name = is_array
                || is_deque
                || is_typed_array
                || is_ordered
                || is_bytes_io
                || size == SizeRule::ByteArray;
            !by_name && says_its_own_size(reader, above)
        };
        let (attributes, values_bytes) = shared_attributes(reader, names, address, flags);
        TypeEntry {
            address,
            flags,
            scan,
            special,
            own: !has(type_flag::HEAP_TYPE) && size != SizeRule::Array,
            traverse,
            is_gc: reader.word(address + type_object::IS_GC),
            basic_size,
            item_size: reader.word(address + type_object::ITEM_SIZE),
            dict_offset: if has(type_flag::MANAGED_DICT) {
                0
            } else {
                reader.word(address + type_object::DICT_OFFSET) as isize
            },
            estimated: says_more,
            size,
            fields,
            attributes,
            values_bytes,
            info: describe(reader, address, flags),
        }
    }

    /// Bytes in front of an instance.
    pub fn header_bytes(&self, collected: bool) -> usize {
        let managed = self.flags & (type_flag::MANAGED_DICT | type_flag::MANAGED_WEAK) != 0;
        usize::from(collected) * 16 + usize::from(managed) * 16
    }
}

/// The type and its first bases, up to `object`.
fn bases(reader: &Reader, address: usize) -> Vec<usize> {
    let base =
        |address: &usize| Some(reader.word(*address + type_object::BASE)).filter(|base| *base != 0);
    std::iter::successors(Some(address), base)
        .take(MAX_BASES)
        .collect()
}

/// Whether instances refer to nothing but their slots, attributes and class: all bases are classes written in Python, and
/// no length stands where others have a slot.
fn is_plain_class(reader: &Reader, chain: &[usize]) -> bool {
    let Some((last, classes)) = chain.split_last() else {
        return false;
    };
    let traverse = |address: usize| reader.word(address + type_object::TRAVERSE);
    traverse(*last) == 0
        && reader.word(last + type_object::BASIC_SIZE) == object::SIZE
        && classes.iter().all(|class| {
            reader.is_heap_type(*class)
                && traverse(*class) == reader.class_traverse
                && reader.word(class + type_object::ITEM_SIZE) == 0
        })
}

/// What is known of an instance's references: members of the type and its bases, and fields of the interpreter's own.
fn collect_fields(
    reader: &Reader,
    names: &mut NameTable,
    chain: &[usize],
    flags: usize,
    fields: &mut Vec<Field>,
) {
    let known = &reader.known;
    let mut name = String::new();
    for base in chain {
        let kind = if reader.is_heap_type(*base) {
            EdgeType::Slot
        } else {
            EdgeType::Internal
        };
        let basic_size = reader.word(base + type_object::BASIC_SIZE);
        let members = reader.word(base + type_object::MEMBERS);
        for number in 0..MAX_MEMBERS {
            let member = members + number * MEMBER_LEN;
            if members == 0 || reader.word(member) == 0 {
                break;
            }
            let offset = reader.word(member + MEMBER_OFFSET);
            if MEMBER_OBJECT.contains(&reader.half(member + MEMBER_TYPE))
                && offset >= 16
                && offset + 8 <= basic_size
            {
                reader.c_text(reader.word(member), &mut name);
                let label = Label::new(kind, names.of_text(&name));
                fields.push(Field { offset, label });
            }
        }
        let more: &[(usize, &str)] = if *base == known.function {
            object::FUNCTION
        } else if *base == known.cell {
            fields.push(Field {
                offset: object::CELL_CONTENT,
                label: Label::new(EdgeType::Cell, 0),
            });
            &[]
        } else if *base == known.traceback {
            &[(16, "tb_next"), (24, "tb_frame")]
        } else if *base == known.code && reader.heap.dict_keys == DictKeys::Compact {
            CODE_FIELDS
        } else {
            &[]
        };
        add_fields(names, more, basic_size, fields);
    }
    if flags & type_flag::EXCEPTION != 0 {
        add_fields(names, reader.heap.exception_fields, usize::MAX, fields);
    }
    // The same field may be a member and known to us.
    let mut seen = Vec::new();
    fields.retain(|field| {
        let new = !seen.contains(&field.offset);
        seen.push(field.offset);
        new
    });
}

/// Of code objects, beside their members: 3.11 and later name all locals in one tuple.
const CODE_FIELDS: &[(usize, &str)] = &[(96, "co_localsplusnames"), (104, "co_localspluskinds")];

fn add_fields(
    names: &mut NameTable,
    more: &[(usize, &str)],
    basic_size: usize,
    fields: &mut Vec<Field>,
) {
    for (offset, name) in more {
        if offset + 8 <= basic_size {
            let label = Label::new(EdgeType::Internal, names.of_text(name));
            fields.push(Field {
                offset: *offset,
                label,
            });
        }
    }
}

/// Names of the attributes that instances keep without a dict, and the bytes these take.
fn shared_attributes(
    reader: &Reader,
    names: &mut NameTable,
    address: usize,
    flags: usize,
) -> (Vec<u32>, u64) {
    let managed = flags & type_flag::MANAGED_DICT != 0;
    if !managed || reader.heap.inline_values == InlineValues::None {
        return (Vec::new(), 0);
    }
    let keys = cached_keys(reader, address);
    if keys == 0 {
        return (Vec::new(), 0);
    }
    let attributes: Vec<u32> = shared_keys(reader, keys)
        .map(|key| match key {
            0 => 0,
            key => names.of_object(reader, key),
        })
        .collect();
    let n_entries = attributes.len();
    let n_usable = reader.word(keys + dict_keys::N_USABLE).min(MAX_SHARED);
    let capacity = (n_entries + n_usable) as u64;
    (
        attributes,
        values_bytes(reader.heap.inline_values, capacity),
    )
}

/// Bytes of the values of so many attributes: a word each, a byte each for their order, and some bookkeeping.
pub fn values_bytes(kept: InlineValues, capacity: u64) -> u64 {
    capacity * 8
        + match kept {
            InlineValues::None => 0,
            InlineValues::TwoPointers | InlineValues::TaggedPointer => {
                (capacity + 2).next_multiple_of(8)
            }
            InlineValues::Behind => 8 + capacity.next_multiple_of(8),
        }
}

/// No class has more shared keys.
const MAX_SHARED: usize = 64;

/// The texts that name attributes, in the order of their values; 0 where there is none.
pub fn shared_keys(reader: &Reader, keys: usize) -> impl Iterator<Item = usize> + '_ {
    let entries = keys + dict_keys::INDICES + (1 << reader.byte(keys + dict_keys::INDEX_LOG));
    let n_entries = reader.word(keys + dict_keys::N_ENTRIES).min(MAX_SHARED);
    (0..n_entries).map(move |number| reader.word(entries + number * 16))
}

/// `ht_cached_keys` of a heap type; 0 if there are none.
pub fn cached_keys(reader: &Reader, address: usize) -> usize {
    if reader.is_heap_type(address) {
        reader.word(address + reader.heap.heap_type_name + 24)
    } else {
        0
    }
}

pub fn cached_keys_bytes(reader: &Reader, address: usize) -> u64 {
    match cached_keys(reader, address) {
        0 => 0,
        keys => keys_bytes(reader, keys),
    }
}

/// Whether one of these types has a `__sizeof__` of its own: a walk does not run it.
fn says_its_own_size(reader: &Reader, types: &[usize]) -> bool {
    let mut name = String::new();
    types.iter().any(|base| {
        let methods = reader.word(base + type_object::METHODS);
        let in_methods = methods != 0
            && (0..MAX_MEMBERS)
                .map(|number| reader.word(methods + number * 32))
                .take_while(|name| *name != 0)
                .any(|at| {
                    reader.c_text(at, &mut name);
                    name == "__sizeof__"
                });
        in_methods
            || (reader.is_heap_type(*base) && dict_text(reader, *base, "__sizeof__").is_some())
    })
}

/// The value under a name in a type's dict.
fn dict_text(reader: &Reader, address: usize, wanted: &str) -> Option<usize> {
    let dict = reader.dict_of_type(address);
    if dict == 0 {
        return None;
    }
    let mut found = None;
    let mut buffer = [0; 16];
    reader.dict_entries(dict, |key, value| {
        if found.is_none()
            && reader.type_of(key) == reader.known.unicode
            && reader.word(key + reader.layout.unicode.length) == wanted.len()
            && reader
                .text(key, &mut buffer)
                .is_some_and(|(text, _)| text == wanted)
        {
            found = Some(value);
        }
    });
    found
}

fn describe(reader: &Reader, address: usize, flags: usize) -> TypeInfo {
    let mut name = String::new();
    reader.c_text(reader.word(address + type_object::NAME), &mut name);
    let mut module = String::new();
    if flags & type_flag::HEAP_TYPE != 0 {
        let mut buffer = [0; 512];
        let qualname = reader.word(address + reader.heap.heap_type_name + 16);
        if qualname != 0 {
            if let Some((text, _)) = reader.text(qualname, &mut buffer) {
                name = text.to_owned();
            }
        }
        if let Some(value) = dict_text(reader, address, "__module__") {
            if reader.flags(reader.type_of(value)) & type_flag::UNICODE != 0 {
                if let Some((text, _)) = reader.text(value, &mut buffer) {
                    module = text.to_owned();
                }
            }
        }
    } else if let Some((before, last)) = name.rsplit_once('.') {
        (module, name) = (before.to_owned(), last.to_owned());
    } else {
        module = "builtins".to_owned();
    }
    let mut bits = 0;
    for (flag, bit) in [
        (type_flag::HEAP_TYPE, TypeInfo::HEAP),
        (type_flag::HAVE_GC, TypeInfo::COLLECTED),
        (type_flag::MANAGED_DICT, TypeInfo::DICT),
        (type_flag::MANAGED_WEAK, TypeInfo::WEAK),
    ] {
        if flags & flag != 0 {
            bits |= bit;
        }
    }
    if reader.word(address + type_object::DICT_OFFSET) != 0 {
        bits |= TypeInfo::DICT;
    }
    if reader.word(address + type_object::WEAK_LIST_OFFSET) != 0 {
        bits |= TypeInfo::WEAK;
    }
    TypeInfo {
        name,
        module,
        address: address as u64,
        object: 0,
        flags: bits,
    }
}
