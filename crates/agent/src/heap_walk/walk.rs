//! The walk: it appends objects as it finds them and scans them in that order. So the list of objects is also the list
//! of work left, and the next objects can be prefetched while one is scanned.
//!
//! Nothing here creates a Python object, takes a reference or runs Python code. [`super::containers`] reads the
//! references of lists, dicts and the like, [`super::traverse`] gets those of other objects, [`super::output`] stores the
//! result.

use std::collections::HashMap;

use heaptide_capture::heap::{Label, Objects};

use super::attributes::values_bytes_of;
use super::column::Column;
use super::names::NameTable;
use super::output::{Columns, Facts, Output};
use super::previews::preview;
use super::reader::Reader;
use super::renumber::Renumbering;
use super::sizes::bytes_of;
use super::traverse::Internal;
use super::types::{Scan, Special, TypeEntry};
use super::visited::{Handle, Refused, Visited};
use crate::cpython::heap_layout::InlineValues;
use crate::cpython::offsets::{inline_values, object};
use crate::cpython::references::{Object, Type};

/// Slots of the cache of types; a power of two.
const TYPE_SLOTS: usize = 4096;

/// A weak reference. The walk does not follow it.
#[derive(Clone, Copy)]
pub struct Weak {
    pub from: Handle,
    pub target: u64,
}

/// No memory, or too many objects for a snapshot.
#[derive(Debug)]
pub struct Full;

/// A walk in progress.
pub struct Walk<'l, O> {
    pub reader: &'l Reader,
    pub names: NameTable,
    pub types: Vec<TypeEntry>,
    type_numbers: HashMap<Type, u32>,
    /// Recently used types: address and number.
    type_slots: Box<[(usize, u32)]>,
    /// Marked only through [`Walk::visit`].
    visited: Visited,
    pub output: O,
    pub weak: Column<Weak>,
    /// Static types, which no reference keeps alive.
    pub static_types: Vec<Handle>,
    /// The references that the current object reported.
    pub(super) referents: Column<Object>,
    /// Addresses with labels for the current object's references.
    pub(super) labels: Vec<(usize, Label)>,
    /// Offset of a tuple's items.
    pub(super) tuple_items: usize,
    /// Bytes from the pointer to the values of an instance to the instance; 0 if there is no such pointer.
    pub(super) values_before: usize,
    pub(super) internal: Internal,
    /// Items of long lists that were not added yet: address and number.
    pub(super) long: Column<(usize, usize)>,
    /// Whether attributes stored in instances can be read; proved before the walk.
    pub read_inline: bool,
    /// Short texts of values, if requested.
    previews: Option<Vec<(Handle, String)>>,
    pub(super) failed: bool,
}

/// The result of a walk. It can be processed while the program runs.
pub struct WalkResult {
    pub names: NameTable,
    pub types: Vec<TypeEntry>,
    pub numbering: Renumbering,
    pub columns: Columns,
    pub weak: Column<Weak>,
    pub previews: Vec<(Handle, String)>,
}

impl<'l> Walk<'l, Columns> {
    pub fn into_result(self) -> WalkResult {
        WalkResult {
            names: self.names,
            types: self.types,
            numbering: Renumbering::new(self.visited),
            columns: self.output,
            weak: self.weak,
            previews: self.previews.unwrap_or_default(),
        }
    }
}

impl<'l, O: Output> Walk<'l, O> {
    pub fn new(
        reader: &'l Reader,
        output: O,
        read_inline: bool,
        wants_previews: bool,
    ) -> Result<Walk<'l, O>, Full> {
        let mut names = NameTable::new().ok_or(Full)?;
        Ok(Walk {
            tuple_items: reader.basic_size(reader.known.tuple),
            values_before: match reader.heap.inline_values {
                InlineValues::TwoPointers => inline_values::VALUES_BEFORE,
                InlineValues::TaggedPointer => inline_values::DICT_BEFORE,
                InlineValues::None | InlineValues::AfterFields => 0,
            },
            reader,
            internal: Internal::new(&mut names),
            names,
            types: Vec::new(),
            type_numbers: HashMap::new(),
            type_slots: vec![(0, 0); TYPE_SLOTS].into_boxed_slice(),
            visited: Visited::new().ok_or(Full)?,
            output,
            weak: Column::new(),
            static_types: Vec::new(),
            referents: Column::new(),
            labels: Vec::new(),
            long: Column::new(),
            read_inline,
            previews: wants_previews.then(Vec::new),
            failed: false,
        })
    }

    /// Marks an object as visited. Returns its handle, and whether it is new.
    #[inline(always)]
    pub(super) fn visit(&mut self, object: Object) -> Result<(Handle, bool), Refused> {
        self.visited.mark(object.address())
    }

    /// Returns the handle of an object that was visited.
    pub(super) fn handle_of(&self, object: Object) -> Option<Handle> {
        self.visited.find(object.address() as u64)
    }

    /// Returns the object of a handle.
    #[inline(always)]
    pub(super) fn object_of(&self, handle: Handle) -> Object {
        // SAFETY: only `visit` makes handles, from live objects, which are not null. Nothing frees an object during
        // the walk.
        unsafe { Object::at(self.visited.address_of(handle)).unwrap_unchecked() }
    }

    /// Adds an object if it is new. Returns its handle; `None` for an address that no object can have.
    #[inline(always)]
    pub fn add(&mut self, object: Object) -> Option<Handle> {
        match self.visit(object) {
            Ok((handle, new)) => {
                self.failed |= !self.output.meet(handle, object, new);
                Some(handle)
            }
            Err(refused) => {
                self.failed |= refused == Refused::Full;
                None
            }
        }
    }

    /// Records a reference of the current object.
    #[inline(always)]
    pub(super) fn edge(&mut self, target: Option<Object>, label: Label) {
        let Some(target) = target else {
            return;
        };
        if let Some(handle) = self.add(target) {
            self.failed |= !self.output.reference(handle, label);
        }
    }

    /// Records the referent of a weak reference without following it.
    ///
    /// # Safety
    /// The object is a weak reference.
    pub(super) unsafe fn weak_reference(&mut self, from: Handle, object: Object) {
        // SAFETY: a weak reference has the field: its referent, or None if that was freed.
        let target = unsafe { self.reader.reference(object, object::WEAK_REFERENT) };
        if let Some(target) = target.filter(|target| *target != self.reader.known.none) {
            let target = target.address() as u64;
            self.failed |= !self.weak.push(Weak { from, target });
        }
    }

    /// Returns the bytes that the search for objects takes.
    pub fn bytes(&self) -> u64 {
        (self.visited.bytes() + self.long.bytes()) as u64
    }

    #[inline(always)]
    pub(super) fn type_number(&mut self, type_: Type) -> u32 {
        let address = type_.address();
        let slot = (address >> 4 ^ address >> 13) % TYPE_SLOTS;
        let (known, number) = self.type_slots[slot];
        if known == address {
            return number;
        }
        let number = self.known_type(type_);
        self.type_slots[slot] = (address, number);
        number
    }

    #[inline(never)]
    pub(super) fn known_type(&mut self, type_: Type) -> u32 {
        if let Some(number) = self.type_numbers.get(&type_) {
            return *number;
        }
        let entry = TypeEntry::of(self.reader, &mut self.names, type_);
        let number = self.types.len() as u32;
        self.types.push(entry);
        self.type_numbers.insert(type_, number);
        self.add(type_.object());
        number
    }
}

impl Walk<'_, Columns> {
    #[inline(always)]
    pub(super) fn scan(&mut self, handle: Handle) {
        let reader = self.reader;
        let object = self.object_of(handle);
        let type_number = self.type_number(reader.type_of(object));
        let entry = &self.types[type_number as usize];
        let (scan, special, is_static) = (entry.scan, entry.special, entry.is_static);
        // SAFETY: `entry` describes the type of the object. An object has the collector's header if `is_collected`.
        let (collected, tracked, bytes) = unsafe {
            let collected = reader.is_collected(object, entry.flags, entry.is_gc);
            (
                collected,
                collected && reader.is_tracked(object),
                bytes_of(reader, entry, object, collected),
            )
        };
        let mut flags = 0;
        if tracked {
            flags |= Objects::TRACKED;
        }
        if reader.references(object).is_none() {
            flags |= Objects::IMMORTAL;
        }
        if entry.estimated {
            flags |= Objects::ESTIMATED;
        }
        // SAFETY: `scan` and `special` are those of the object's type, so the object is a list, a dict and so on. An object
        // that is not tracked may be incomplete, unless its type is static; only complete objects are traversed.
        unsafe {
            match scan {
                Scan::Leaf => {}
                Scan::List => {
                    let items = reader.word(object, object::LIST_ITEMS);
                    self.items(items, reader.size(object));
                }
                Scan::Tuple => {
                    let items = object.address() + self.tuple_items;
                    self.items(items, reader.size(object));
                }
                Scan::Dict => self.dict_entries(object),
                Scan::Type => {
                    let type_ = Type::from_object(object);
                    if !reader.is_heap_type(type_) {
                        self.static_types.push(handle);
                    }
                    self.type_references(type_number, type_, collected);
                }
                Scan::Fields => self.fields(type_number, object),
                Scan::Instance if tracked => flags |= self.instance(type_number, object),
                Scan::Instance | Scan::Traverse => {
                    if tracked || (is_static && collected) {
                        flags |= self.traverse_and_label(type_number, object);
                    }
                }
            }
            match special {
                Special::Weak => self.weak_reference(handle, object),
                Special::Array => self.array(object),
                _ => {}
            }
        }
        if let Some(previews) = &mut self.previews {
            if let Some(text) = preview(reader, object) {
                previews.push((handle, text));
            }
        }
        let mut facts = Facts {
            type_number,
            bytes,
            extra: 0,
            usual_extra: 0,
            flags,
        };
        if flags & Objects::INLINE_VALUES != 0 {
            let entry = &self.types[type_number as usize];
            // SAFETY: `entry` describes the type of the object, and the flag says that the object has inline values.
            facts.extra = unsafe { values_bytes_of(reader, entry, object) };
            facts.usual_extra = entry.values_bytes;
        }
        self.failed |= !self.output.end(facts);
    }
}
