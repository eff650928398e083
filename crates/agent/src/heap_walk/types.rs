//! The properties of a type that a walk needs, determined once per type: how to scan its instances, the names of their
//! fields, and the rule for their size.

use heaptide_capture::heap::TypeInfo;

use super::attributes::shared_attributes;
use super::fields::{Field, MAX_MEMBERS, fields_of};
use super::names::NameTable;
use super::reader::{Reader, word_at};
use super::sizes::SizeRule;
use crate::cpython::offsets::{
    HeapTypeField, METHOD_LEN, TypeField, managed_bytes, numpy_array, object, type_flag,
};
use crate::cpython::references::{Object, Type};

/// The maximum number of bases of a valid type.
const MAX_BASES: usize = 256;

/// How to scan instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// They have no references.
    Leaf,
    List,
    Tuple,
    Dict,
    /// They are types themselves.
    Type,
    /// By their known fields: the collector does not follow them.
    Fields,
    /// They are instances of a class written in Python, whose bases are also written in Python. They refer to their slots,
    /// their attributes and the class.
    Instance,
    /// By the type's own `tp_traverse`.
    Traverse,
}

/// Types whose instances need additional reads or labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    None,
    /// A subclass of dict: its entries are read like those of a dict.
    DictEntries,
    /// A subclass of list or tuple, or a deque: items are reported in order.
    Sequence,
    Set,
    Weak,
    Generator,
    Frame,
    /// A numpy array or a subclass.
    Array,
}

pub struct TypeEntry {
    pub type_: Type,
    pub flags: usize,
    pub scan: Scan,
    pub special: Special,
    /// A static type: instances are complete even while they are not tracked.
    pub is_static: bool,
    pub traverse: usize,
    pub is_gc: usize,
    pub basic_size: usize,
    pub item_size: usize,
    /// Offset of the `__dict__`: positive from the start, negative from the end, 0 without one.
    pub dict_offset: isize,
    pub size: SizeRule,
    pub estimated: bool,
    pub fields: Vec<Field>,
    /// Names of attributes that instances store without a dict, in the order of their values.
    pub attributes: Vec<u32>,
    /// Bytes of the values of such an instance; the first instances of a class may have more.
    pub values_bytes: u64,
    /// Bytes of the pointers before an instance.
    managed_bytes: usize,
    pub info: TypeInfo,
}

impl TypeEntry {
    pub fn of(reader: &Reader, names: &mut NameTable, type_: Type) -> TypeEntry {
        let flags = reader.flags(type_);
        let chain = bases(reader, type_);
        let has = |flag| flags & flag != 0;
        let known = &reader.known;
        let is_named = |wanted: &str| chain.iter().any(|base| reader.type_is_named(*base, wanted));
        let basic_size = reader.basic_size(type_);
        let is_array = is_named("numpy.ndarray") && basic_size >= numpy_array::LEN;
        let is_deque = is_named("collections.deque");
        let is_typed_array = is_named("array.array");
        let is_ordered = has(type_flag::DICT)
            && is_named("collections.OrderedDict")
            && basic_size >= object::ORDERED_SLOTS + 8;
        let is_bytes_io = is_named("_io.BytesIO") && basic_size >= object::BYTES_IO_BUFFER + 8;
        let is_one_of = |types: &[Type]| chain.iter().any(|base| types.contains(base));
        let has_frame = [
            known.generator,
            known.coroutine,
            known.async_generator,
            known.frame,
        ]
        .contains(&type_);
        let traverse = reader.type_field(type_, TypeField::Traverse);
        let collected = has(type_flag::HAVE_GC) && traverse != 0;

        let fields = fields_of(reader, names, &chain, flags);
        let special = if is_array {
            Special::Array
        } else if is_one_of(&known.weak) {
            Special::Weak
        } else if [known.generator, known.coroutine, known.async_generator].contains(&type_) {
            Special::Generator
        } else if type_ == known.frame {
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
        let scan = if type_ == known.list {
            Scan::List
        } else if type_ == known.tuple {
            Scan::Tuple
        } else if type_ == known.dict {
            Scan::Dict
        } else if has(type_flag::TYPE) {
            Scan::Type
        } else if collected && is_plain_class(reader, &chain) {
            Scan::Instance
        } else if collected {
            Scan::Traverse
        } else if !fields.is_empty() || is_array || type_ == known.code {
            Scan::Fields
        } else {
            Scan::Leaf
        };

        let is_set = is_one_of(&[known.set, known.frozen_set]);
        let mut size = SizeRule::of(reader, type_, flags, is_set);
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
            // From 3.11 on these have items, but no length at the usual offset.
            size = SizeRule::Fixed;
        } else if type_ == known.code {
            size = SizeRule::Code;
        }
        let is_estimated = (has_frame && size == SizeRule::Fixed) || {
            // For these types, the rule gives the result of their own `__sizeof__`, so the search ends at them.
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
            !by_name && defines_sizeof(reader, above)
        };
        let (attributes, values_bytes) = shared_attributes(reader, names, type_, flags);
        TypeEntry {
            type_,
            flags,
            scan,
            special,
            is_static: !has(type_flag::HEAP_TYPE) && size != SizeRule::Array,
            traverse,
            is_gc: reader.type_field(type_, TypeField::IsGc),
            basic_size,
            item_size: reader.type_field(type_, TypeField::ItemSize),
            dict_offset: if has(type_flag::MANAGED_DICT) {
                0
            } else {
                reader.type_field(type_, TypeField::DictOffset) as isize
            },
            estimated: is_estimated,
            size,
            fields,
            attributes,
            values_bytes,
            managed_bytes: managed_bytes(reader.layout.version, flags),
            info: describe(reader, type_, flags),
        }
    }

    /// Returns whether this is the type `dict` itself.
    pub fn is_dict(&self) -> bool {
        self.scan == Scan::Dict
    }

    /// Returns the bytes before an instance.
    pub fn header_bytes(&self, collected: bool) -> usize {
        usize::from(collected) * object::GC_HEADER + self.managed_bytes
    }
}

/// Returns the type and its first bases, up to `object`.
fn bases(reader: &Reader, type_: Type) -> Vec<Type> {
    std::iter::successors(Some(type_), |type_| reader.base(*type_))
        .take(MAX_BASES)
        .collect()
}

/// Returns whether instances refer only to their slots, attributes and class. All bases must be classes written in Python,
/// and no instance may have a length at the offset of the first slot.
fn is_plain_class(reader: &Reader, chain: &[Type]) -> bool {
    let Some((last, classes)) = chain.split_last() else {
        return false;
    };
    let traverse = |type_: &Type| reader.type_field(*type_, TypeField::Traverse);
    traverse(last) == 0
        && reader.basic_size(*last) == object::SIZE
        && classes.iter().all(|class| {
            reader.is_heap_type(*class)
                && traverse(class) == reader.class_traverse
                && reader.type_field(*class, TypeField::ItemSize) == 0
        })
}

/// Returns whether one of these types defines `__sizeof__`, which a walk does not run.
fn defines_sizeof(reader: &Reader, types: &[Type]) -> bool {
    types.iter().any(|base| {
        has_method(reader, *base, "__sizeof__")
            || (reader.is_heap_type(*base)
                && class_attribute(reader, *base, "__sizeof__").is_some())
    })
}

fn has_method(reader: &Reader, type_: Type, wanted: &str) -> bool {
    let methods = reader.type_field(type_, TypeField::Methods);
    if methods == 0 {
        return false;
    }
    (0..MAX_MEMBERS)
        // SAFETY: the field is the address of a list of methods, which ends with one that has no name.
        .map(|number| unsafe { word_at(methods + number * METHOD_LEN) })
        .take_while(|name_at| *name_at != 0)
        // SAFETY: the name of a method is a C string.
        .any(|name_at| unsafe { reader.c_text_is(name_at, wanted) })
}

/// Returns the value under a name in a type's own dict.
fn class_attribute(reader: &Reader, type_: Type, wanted: &str) -> Option<Object> {
    let dict = reader.dict_of_type(type_)?;
    let mut value_found = None;
    let mut buffer = [0; 16];
    let with = |key, value| {
        if value_found.is_none()
            && reader.type_of(key) == reader.known.unicode
            // SAFETY: the key is a string, which has its length here.
            && unsafe { reader.word(key, reader.layout.unicode.length) } == wanted.len()
            && reader
                .text(key, &mut buffer)
                .is_some_and(|(text, _)| text == wanted)
        {
            value_found = Some(value);
        }
    };
    // SAFETY: a type's dict is a dict.
    unsafe { reader.dict_entries(dict, with) };
    value_found
}

fn describe(reader: &Reader, type_: Type, flags: usize) -> TypeInfo {
    let mut name = String::new();
    reader.type_name(type_, &mut name);
    let mut module = String::new();
    if flags & type_flag::HEAP_TYPE != 0 {
        let mut buffer = [0; 512];
        let qualname = reader.heap_type_field(type_, HeapTypeField::Qualname);
        // SAFETY: the field is null or a reference that the type owns.
        let qualname = unsafe { Object::at(qualname) };
        if let Some((text, _)) = qualname.and_then(|object| reader.text(object, &mut buffer)) {
            name = text.to_owned();
        }
        let value = class_attribute(reader, type_, "__module__");
        if let Some((text, _)) = value.and_then(|object| reader.text(object, &mut buffer)) {
            module = text.to_owned();
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
    for (field, bit) in [
        (TypeField::DictOffset, TypeInfo::DICT),
        (TypeField::WeakListOffset, TypeInfo::WEAK),
    ] {
        if reader.type_field(type_, field) != 0 {
            bits |= bit;
        }
    }
    TypeInfo {
        name,
        module,
        address: type_.address() as u64,
        object: 0,
        flags: bits,
    }
}
