//! References that objects report themselves (`tp_traverse`), as they do to the collector.
//!
//! The walk adds labels by comparing the reported references with the known fields of the type. A wrong guess can lose a
//! label, never a reference.

use std::ffi::{c_int, c_void};

use heaptide_capture::heap::{EdgeType, Label, Objects};

use super::attributes::{attributes_of, dict_of, values_bytes_of, values_of};
use super::count::Sums;
use super::names::NameTable;
use super::output::Output;
use super::reader::word_at;
use super::types::Special;
use super::walk::Walk;
use crate::cpython::heap_layout::InlineValues;
use crate::cpython::offsets::type_flag;
use crate::cpython::references::Object;

/// The number of labels after the last match that are searched, because some labels may belong to references that the
/// object does not report.
const SEARCH_AHEAD: usize = 40;

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

/// Adds a reported reference to [`Walk::referents`].
unsafe extern "C" fn push_referent<O: Output>(target: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: `collect_referents` passes its walk and does not use it until `tp_traverse` returns.
    let walk = unsafe { &mut *walk.cast::<Walk<'_, O>>() };
    // SAFETY: a `tp_traverse` reports references that its object has.
    if let Some(target) = unsafe { Object::at(target as usize) } {
        if !walk.referents.push(target) {
            walk.failed = true;
        }
    }
    0
}

/// Adds a reported reference to a census.
unsafe extern "C" fn add_referent(target: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: `traverse_object` passes its walk and does not use it until `tp_traverse` returns.
    let walk = unsafe { &mut *walk.cast::<Walk<'_, Sums>>() };
    // SAFETY: as in `push_referent`.
    if let Some(target) = unsafe { Object::at(target as usize) } {
        walk.add(target);
    }
    0
}

impl Walk<'_, Sums> {
    /// Adds the references that an object reports. Returns the bytes of its values, if it stores them without a dict.
    ///
    /// # Safety
    /// `type_number` is that of the object's type, which has a `tp_traverse`; the object is complete.
    #[inline(always)]
    pub(super) unsafe fn traverse_object(&mut self, type_number: u32, object: Object) -> u64 {
        let entry = &self.types[type_number as usize];
        let (function, special) = (entry.traverse, entry.special);
        let reader = self.reader;
        // SAFETY: `entry` describes the object's type.
        let (dict, values_bytes) = unsafe {
            let dict = dict_of(reader, entry, object);
            let has_values =
                self.read_inline && dict.is_none() && values_of(reader, entry, object) != 0;
            let bytes = if has_values {
                values_bytes_of(reader, entry, object)
            } else {
                0
            };
            (dict, bytes)
        };
        let may_omit_dict = self.may_omit_dict(type_number);
        let walk: *mut Self = self;
        // SAFETY: the caller promises that the object may be traversed by this function; the visitor gets this walk.
        unsafe { reader.traverse(object, function, add_referent, walk.cast()) };
        if special == Special::DictEntries {
            // SAFETY: the type is a subclass of dict. An object of it does not report keys that are strings.
            unsafe { self.dict_entries(object) };
        }
        if may_omit_dict {
            self.add_if_any(dict);
        }
        values_bytes
    }

    /// Adds the references of instances of a plain class without traversing them. Returns the bytes of their values.
    ///
    /// # Safety
    /// `type_number` is that of the objects' type, whose `scan` is `Instance`.
    #[inline(always)]
    pub(super) unsafe fn instances(&mut self, type_number: u32, objects: &[Object]) -> u64 {
        let reader = self.reader;
        let entry = &mut self.types[type_number as usize];
        let must_traverse = entry.flags & type_flag::MANAGED_DICT != 0 && !self.read_inline;
        let n_values = entry.attributes.len();
        let fields = std::mem::take(&mut entry.fields);
        let mut values_bytes = 0;
        for object in objects.iter().copied() {
            // SAFETY: instances of such a class have the collector's header, the fields of the class, and a dict or
            // values as the class says. The fields and values are references or null. A tracked instance is complete.
            unsafe {
                if !reader.is_tracked(object) {
                    continue;
                }
                if must_traverse {
                    values_bytes += self.traverse_object(type_number, object);
                    continue;
                }
                // The class itself was added with the first of its instances.
                for field in &fields {
                    self.add_if_any(reader.reference(object, field.offset));
                }
                let entry = &self.types[type_number as usize];
                if let Some(dict) = dict_of(reader, entry, object) {
                    self.add(dict);
                    continue;
                }
                let values = values_of(reader, entry, object);
                if values != 0 {
                    values_bytes += values_bytes_of(reader, entry, object);
                    for number in 0..n_values {
                        self.add_if_any(Object::at(word_at(values + number * 8)));
                    }
                }
            }
        }
        self.types[type_number as usize].fields = fields;
        values_bytes
    }

    #[inline(always)]
    fn add_if_any(&mut self, target: Option<Object>) {
        if let Some(target) = target {
            self.add(target);
        }
    }
}

impl<O: Output> Walk<'_, O> {
    /// Fills [`Walk::referents`].
    ///
    /// # Safety
    /// As for [`super::reader::Reader::traverse`].
    pub(super) unsafe fn collect_referents(&mut self, function: usize, object: Object) {
        self.referents.clear();
        let reader = self.reader;
        let walk: *mut Self = self;
        // SAFETY: the caller promises that the object may be traversed; the visitor gets this walk.
        unsafe { reader.traverse(object, function, push_referent::<O>, walk.cast()) };
    }

    /// Records the references of an instance of a plain class without calling `tp_traverse`, but in the order of that
    /// function: slots, attributes, dict, class. Returns flags of the object.
    ///
    /// # Safety
    /// `type_number` is that of the object's type, whose `scan` is `Instance`; the object is tracked, so it is complete.
    #[inline(always)]
    pub(super) unsafe fn instance(&mut self, type_number: u32, object: Object) -> u8 {
        let reader = self.reader;
        let entry = &self.types[type_number as usize];
        let own_type = entry.type_.object();
        let is_managed = entry.flags & type_flag::MANAGED_DICT != 0;
        // SAFETY: `entry` describes the object's type.
        let dict = unsafe { dict_of(reader, entry, object) };
        // From 3.13 on an instance with a dict may also report the values that it shares with the dict.
        let may_share = dict.is_some() && reader.heap.inline_values == InlineValues::AfterFields;
        if is_managed && (!self.read_inline || may_share) {
            // SAFETY: passed on from the caller; a plain class has a `tp_traverse`.
            return unsafe { self.traverse_and_label(type_number, object) };
        }
        let (n_fields, n_attributes) = (entry.fields.len(), entry.attributes.len());
        let values = match dict {
            Some(_) => 0,
            // SAFETY: `entry` describes the object's type.
            None => unsafe { values_of(reader, entry, object) },
        };
        for number in 0..n_fields {
            let field = self.types[type_number as usize].fields[number];
            // SAFETY: the fields of a class are references or null, and the object has the fields of its class.
            let target = unsafe { reader.reference(object, field.offset) };
            self.edge(target, field.label);
        }
        let n_values = if values == 0 { 0 } else { n_attributes };
        for number in 0..n_values {
            let name = self.types[type_number as usize].attributes[number];
            // SAFETY: there are as many values as names of the class, and each is a reference or null.
            let target = unsafe { Object::at(word_at(values + number * 8)) };
            self.edge(target, Label::new(EdgeType::Attribute, name));
        }
        self.edge(dict, Label::new(EdgeType::DictOf, 0));
        self.edge(Some(own_type), Label::new(EdgeType::Type, 0));
        match values {
            0 => 0,
            _ => Objects::INLINE_VALUES,
        }
    }

    /// Records the references that an object reports, with labels. Returns flags of the object.
    ///
    /// # Safety
    /// `type_number` is that of the object's type, which has a `tp_traverse`; the object is complete.
    pub(super) unsafe fn traverse_and_label(&mut self, type_number: u32, object: Object) -> u8 {
        let reader = self.reader;
        let mut flags = 0;
        self.labels.clear();
        let mut labels = std::mem::take(&mut self.labels);
        let entry = &self.types[type_number as usize];
        let (function, special) = (entry.traverse, entry.special);
        // SAFETY: the caller promises that the object may be traversed by this function. `entry` describes its type,
        // so `special` shows whether it is a dict, a generator or a frame.
        let dict = unsafe {
            let dict = dict_of(reader, entry, object);
            self.collect_referents(function, object);
            match special {
                Special::DictEntries => {
                    let mut position = 0;
                    // The object does not report keys that are strings.
                    reader.dict_entries(object, |key, value| {
                        let key_label = Label::new(EdgeType::KeyOf, position);
                        let value_label = self.key_label(key, position);
                        labels.push((key.address(), key_label));
                        labels.push((value.address(), value_label));
                        self.edge(Some(key), key_label);
                        self.edge(Some(value), value_label);
                        position = position.saturating_add(1);
                    });
                }
                Special::Generator => self.generator_locals(type_number, object, &mut labels),
                Special::Frame => self.frame_object_locals(object, &mut labels),
                _ => {}
            }
            if dict.is_none() && self.read_inline {
                let entry = &self.types[type_number as usize];
                flags |= attributes_of(reader, entry, object, &mut labels);
            }
            dict
        };
        let own_type = self.types[type_number as usize].type_.object();
        let mut next_label = 0;
        let mut position = 0;
        let mut dict_is_reported = false;
        for number in 0..self.referents.len() {
            let target = self.referents[number];
            let ahead = labels[next_label..labels.len().min(next_label + SEARCH_AHEAD)]
                .iter()
                .position(|(known, _)| *known == target.address());
            let label = if let Some(step) = ahead {
                next_label += step + 1;
                if special == Special::DictEntries {
                    continue;
                }
                labels[next_label - 1].1
            } else if Some(target) == dict {
                dict_is_reported = true;
                Label::new(EdgeType::DictOf, 0)
            // SAFETY: `type_number` is that of the object's type.
            } else if let Some(label) = unsafe { self.field_label(type_number, object, target) } {
                label
            } else if target == own_type {
                Label::new(EdgeType::Type, 0)
            } else {
                let edge_type = match special {
                    Special::Sequence => EdgeType::Index,
                    Special::Set => EdgeType::Element,
                    Special::Generator | Special::Frame => EdgeType::Stack,
                    _ => EdgeType::Referent,
                };
                position += 1;
                Label::new(edge_type, position - 1)
            };
            self.edge(Some(target), label);
        }
        if !dict_is_reported && self.may_omit_dict(type_number) {
            self.edge(dict, Label::new(EdgeType::DictOf, 0));
        }
        self.labels = labels;
        flags
    }

    /// Returns whether instances may omit their dict from the reported references. From 3.13 on, an instance that shares
    /// its values with its dict omits it.
    #[inline(always)]
    fn may_omit_dict(&self, type_number: u32) -> bool {
        self.read_inline
            && self.reader.heap.inline_values == InlineValues::AfterFields
            && self.types[type_number as usize].flags & type_flag::MANAGED_DICT != 0
    }

    /// # Safety
    /// `type_number` is that of the object's type.
    #[inline(always)]
    unsafe fn field_label(
        &self,
        type_number: u32,
        object: Object,
        target: Object,
    ) -> Option<Label> {
        let fields = &self.types[type_number as usize].fields;
        // SAFETY: the fields are those of the object's type and its bases.
        let field = fields
            .iter()
            .find(|field| unsafe { self.reader.word(object, field.offset) == target.address() })?;
        Some(field.label)
    }
}
