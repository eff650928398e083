//! What objects say of themselves: references are asked of them (`tp_traverse`), as the collector does. Names are added
//! by comparing what came with what is known of the type, so a wrong guess costs a name, never a reference.

use std::ffi::{c_int, c_void};

use heaptide_capture::heap::{EdgeType, Label, Objects};

use super::column::Column;
use super::count::Sums;
use super::names::NameTable;
use super::output::Output;
use super::reader::Reader;
use super::types::{Special, TypeEntry, values_bytes};
use super::walk::Walk;
use crate::cpython::heap_layout::{InlineValues, type_flag};

/// Numbers of the names that are used for every type.
pub struct Internal {
    pub mro: u32,
    pub bases: u32,
    pub base: u32,
    pub cache: u32,
    pub subclasses: u32,
    pub name: u32,
    pub qualname: u32,
    pub slots: u32,
    pub module: u32,
    pub shared_key: u32,
    pub array_base: u32,
    pub dtype: u32,
}

impl Internal {
    pub fn new(names: &mut NameTable) -> Internal {
        let mut name = |text| names.of_text(text);
        Internal {
            mro: name("__mro__"),
            bases: name("__bases__"),
            base: name("__base__"),
            cache: name("tp_cache"),
            subclasses: name("tp_subclasses"),
            name: name("__name__"),
            qualname: name("__qualname__"),
            slots: name("__slots__"),
            module: name("ht_module"),
            shared_key: name("shared key"),
            array_base: name("base"),
            dtype: name("dtype"),
        }
    }
}

unsafe extern "C" fn note(target: *mut c_void, referents: *mut c_void) -> c_int {
    // SAFETY: every caller passes the column of its walk, which nobody else uses meanwhile.
    let referents = unsafe { &mut *referents.cast::<Column<usize>>() };
    if !target.is_null() {
        referents.push(target as usize);
    }
    0
}

unsafe extern "C" fn add(target: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the caller passes its walk, which it does not touch before the object has told everything.
    let walk = unsafe { &mut *walk.cast::<Walk<'_, Sums>>() };
    if !target.is_null() {
        walk.add(target as usize);
    }
    0
}

impl Walk<'_, Sums> {
    /// Has an object say what it refers to. Returns the bytes that it keeps beside it.
    #[inline(always)]
    pub(super) fn traverse_object(&mut self, type_number: u32, at: usize) -> u64 {
        let entry = &self.types[type_number as usize];
        let (function, special) = (entry.traverse, entry.special);
        let reader = self.reader;
        let dict = dict_of(reader, entry, at);
        let beside = if self.read_inline && dict == 0 && values_of(reader, entry, at) != 0 {
            values_bytes_of(reader, entry, at)
        } else {
            0
        };
        let may_omit_dict = self.may_omit_dict(type_number);
        let walk: *mut Self = self;
        reader.traverse(at, function, add, walk.cast());
        if special == Special::DictEntries {
            // Keys that are texts are not told by the object itself.
            self.dict_entries(at);
        }
        if may_omit_dict {
            self.add_if_there(dict);
        }
        beside
    }

    /// What instances of a plain class refer to, without asking. Returns the bytes that they keep beside them.
    #[inline(always)]
    pub(super) fn instances(&mut self, type_number: u32, objects: &[usize]) -> u64 {
        let reader = self.reader;
        let entry = &mut self.types[type_number as usize];
        let asked = entry.flags & type_flag::MANAGED_DICT != 0 && !self.read_inline;
        let n_values = entry.attributes.len();
        let fields = std::mem::take(&mut entry.fields);
        let mut beside = 0;
        for at in objects {
            // What is not tracked may not be whole yet.
            if !reader.is_tracked(*at) {
                continue;
            }
            if asked {
                beside += self.traverse_object(type_number, *at);
                continue;
            }
            // The class itself was found with the first of its instances.
            for field in &fields {
                self.add_if_there(reader.word(at + field.offset));
            }
            let entry = &self.types[type_number as usize];
            let dict = dict_of(reader, entry, *at);
            if dict != 0 {
                self.add(dict);
                continue;
            }
            let values = values_of(reader, entry, *at);
            if values != 0 {
                beside += values_bytes_of(reader, entry, *at);
                for number in 0..n_values {
                    self.add_if_there(reader.word(values + number * 8));
                }
            }
        }
        self.types[type_number as usize].fields = fields;
        beside
    }

    #[inline(always)]
    fn add_if_there(&mut self, target: usize) {
        if target != 0 {
            self.add(target);
        }
    }
}

impl<O: Output> Walk<'_, O> {
    /// Fills [`Walk::referents`].
    pub(super) fn collect_referents(&mut self, function: usize, at: usize) {
        self.referents.clear();
        let column: *mut Column<usize> = &mut self.referents;
        self.reader.traverse(at, function, note, column.cast());
    }

    pub(super) fn traverse_and_label(&mut self, type_number: u32, at: usize) -> u8 {
        let reader = self.reader;
        self.collect_referents(self.types[type_number as usize].traverse, at);
        let mut flags = 0;
        self.entries.clear();
        let mut entries = std::mem::take(&mut self.entries);
        let special = self.types[type_number as usize].special;
        let dict = dict_of(reader, &self.types[type_number as usize], at);
        match special {
            Special::DictEntries => {
                let mut position = 0;
                reader.dict_entries(at, |key, value| {
                    let label = self.key_label(key, position);
                    entries.push((key, Label::new(EdgeType::KeyOf, position)));
                    entries.push((value, label));
                    position = position.saturating_add(1);
                });
                // Keys that are texts are not told by the object itself.
                for (target, label) in &entries {
                    self.edge(*target, *label);
                }
            }
            Special::Generator => self.generator_locals(type_number, at, &mut entries),
            Special::Frame => self.frame_object_locals(at, &mut entries),
            _ => {}
        }
        if dict == 0 && self.read_inline {
            let entry = &self.types[type_number as usize];
            flags |= attributes_of(reader, entry, at, &mut entries);
        }
        let own_type = self.types[type_number as usize].address;
        let n_entries = entries.len();
        let mut next_entry = 0;
        let mut position = 0;
        let mut dict_is_reported = false;
        for number in 0..self.referents.len() {
            let target = self.referents[number];
            // What is known in order comes in order, with gaps.
            let ahead = entries[next_entry..n_entries.min(next_entry + 40)]
                .iter()
                .position(|(known, _)| *known == target);
            let label = if let Some(step) = ahead {
                next_entry += step + 1;
                if special == Special::DictEntries {
                    continue;
                }
                entries[next_entry - 1].1
            } else if target == dict {
                dict_is_reported = true;
                Label::new(EdgeType::DictOf, 0)
            } else if let Some(label) = self.field_label(type_number, at, target) {
                label
            } else if target == own_type {
                Label::new(EdgeType::Type, 0)
            } else {
                let kind = match special {
                    Special::Sequence => EdgeType::Index,
                    Special::Set => EdgeType::Element,
                    Special::Generator | Special::Frame => EdgeType::Stack,
                    _ => EdgeType::Referent,
                };
                position += 1;
                Label::new(kind, position - 1)
            };
            self.edge(target, label);
        }
        if !dict_is_reported && self.may_omit_dict(type_number) {
            self.edge(dict, Label::new(EdgeType::DictOf, 0));
        }
        self.entries = entries;
        flags
    }

    /// Whether an instance may not tell of its dict: from 3.13 on one that shares its values with it does not.
    #[inline(always)]
    fn may_omit_dict(&self, type_number: u32) -> bool {
        self.read_inline
            && self.reader.heap.inline_values == InlineValues::Behind
            && self.types[type_number as usize].flags & type_flag::MANAGED_DICT != 0
    }

    #[inline(always)]
    fn field_label(&self, type_number: u32, at: usize, target: usize) -> Option<Label> {
        let fields = &self.types[type_number as usize].fields;
        let field = fields
            .iter()
            .find(|field| self.reader.word(at + field.offset) == target)?;
        Some(field.label)
    }
}

/// The `__dict__` of an object; 0 if there is none, or not yet.
#[inline(always)]
fn dict_of(reader: &Reader, entry: &TypeEntry, at: usize) -> usize {
    if entry.flags & type_flag::MANAGED_DICT != 0 {
        let word = reader.word(at - 24);
        return match reader.heap.inline_values {
            InlineValues::None => 0,
            InlineValues::TaggedPointer if word & 1 != 0 => 0,
            _ => word,
        };
    }
    match entry.dict_offset {
        0 => 0,
        offset @ 1.. => reader.word(at + offset as usize),
        offset => {
            let items = (reader.size(at) as isize).unsigned_abs();
            // Whole numbers of 3.12 and later keep no length there; their dicts go without a name.
            if entry.flags & type_flag::LONG != 0 || entry.item_size == 0 {
                return 0;
            }
            let end = (entry.basic_size + items * entry.item_size).next_multiple_of(8);
            reader.word(at + end - offset.unsigned_abs())
        }
    }
}

/// Where an instance without a dict keeps the values of its attributes; 0 if it keeps none.
#[inline(always)]
fn values_of(reader: &Reader, entry: &TypeEntry, at: usize) -> usize {
    if entry.flags & type_flag::MANAGED_DICT == 0 || entry.attributes.is_empty() {
        return 0;
    }
    match reader.heap.inline_values {
        InlineValues::None => 0,
        InlineValues::TwoPointers => reader.word(at - 32),
        InlineValues::TaggedPointer => match reader.word(at - 24) {
            word if word & 1 != 0 => word + 1,
            _ => 0,
        },
        InlineValues::Behind => {
            let header = at + entry.basic_size;
            // capacity, size, embedded, valid
            if entry.flags & type_flag::INLINE_VALUES == 0 || reader.byte(header + 3) == 0 {
                return 0;
            }
            header + 8
        }
    }
}

/// Bytes that an instance takes for the values of its attributes.
#[inline(always)]
pub fn values_bytes_of(reader: &Reader, entry: &TypeEntry, at: usize) -> u64 {
    match reader.heap.inline_values {
        // A class learns from its first instances how many attributes there are: they have room for more.
        InlineValues::Behind => {
            let capacity = reader.byte(at + entry.basic_size);
            values_bytes(InlineValues::Behind, u64::from(capacity))
        }
        _ => entry.values_bytes,
    }
}

/// The attributes of an instance that keeps them without a dict, with their names. Returns flags of the object.
pub fn attributes_of(
    reader: &Reader,
    entry: &TypeEntry,
    at: usize,
    entries: &mut Vec<(usize, Label)>,
) -> u8 {
    let values = values_of(reader, entry, at);
    if values == 0 {
        return 0;
    }
    for (number, name) in entry.attributes.iter().enumerate() {
        let value = reader.word(values + number * 8);
        if value != 0 {
            entries.push((value, Label::new(EdgeType::Attribute, *name)));
        }
    }
    Objects::INLINE_VALUES
}
