//! The walk itself: objects are appended as they are found and looked through in that order, so the list of objects is
//! also the list of what is left to do, and what comes next can be fetched while something else is looked at.
//!
//! Nothing here makes a Python object, takes a reference or runs Python code. [`super::containers`] reads what lists,
//! dicts and the like refer to, [`super::traverse`] asks the other objects themselves, [`super::output`] keeps what was found.

use std::collections::HashMap;

use heaptide_capture::heap::{Label, Objects};

use super::column::Column;
use super::names::NameTable;
use super::output::{Columns, Facts, Output};
use super::previews::short_value;
use super::reader::Reader;
use super::sizes::bytes_of;
use super::traverse::{Internal, values_bytes_of};
use super::types::{Scan, Special, TypeEntry};
use super::visited::{Handle, Refused, Visited};
use crate::cpython::heap_layout::{InlineValues, object, type_object};

/// Slots of the cache of types; a power of two.
const TYPE_SLOTS: usize = 512;

/// A weak reference: it does not lead the walk on.
#[derive(Clone, Copy)]
pub struct Weak {
    pub from: Handle,
    pub target: u64,
}

/// No memory, or more objects than a snapshot has numbers for.
#[derive(Debug)]
pub struct Full;

/// A walk under way.
pub struct Walk<'l, O> {
    pub reader: &'l Reader,
    pub names: NameTable,
    pub types: Vec<TypeEntry>,
    type_numbers: HashMap<usize, u32>,
    /// Types met lately.
    type_slots: Box<[(usize, u32); TYPE_SLOTS]>,
    pub visited: Visited,
    pub output: O,
    /// Weak references: who, and the address of what.
    pub weak: Column<Weak>,
    /// Types that the interpreter has from the beginning: they are kept by themselves.
    pub static_types: Vec<Handle>,
    /// What the object at hand says it refers to.
    pub(super) referents: Column<usize>,
    pub(super) entries: Vec<(usize, Label)>,
    pub(super) tuple_items: usize,
    /// So far before an instance is the address of the values of its attributes; 0 if it is nowhere.
    pub(super) values_word: usize,
    pub(super) internal: Internal,
    /// Elements of long lists that are still to be found: where, and how many.
    pub(super) long: Column<(usize, usize)>,
    /// Whether attributes kept in instances can be read; proved before the walk.
    pub read_inline: bool,
    /// Short texts of what objects hold, if they are wanted.
    values: Option<Vec<(Handle, String)>>,
    pub(super) failed: bool,
}

/// What a walk leaves for the time after it, when the program goes on.
pub struct WalkResult {
    pub names: NameTable,
    pub types: Vec<TypeEntry>,
    pub visited: Visited,
    pub columns: Columns,
    pub weak: Column<Weak>,
    pub values: Vec<(Handle, String)>,
}

impl<'l> Walk<'l, Columns> {
    pub fn into_result(self) -> WalkResult {
        WalkResult {
            names: self.names,
            types: self.types,
            visited: self.visited,
            columns: self.output,
            weak: self.weak,
            values: self.values.unwrap_or_default(),
        }
    }
}

impl<'l, O: Output> Walk<'l, O> {
    pub fn new(
        reader: &'l Reader,
        output: O,
        read_inline: bool,
        wants_values: bool,
    ) -> Result<Walk<'l, O>, Full> {
        let mut names = NameTable::new().ok_or(Full)?;
        Ok(Walk {
            tuple_items: reader.word(reader.known.tuple + type_object::BASIC_SIZE),
            values_word: match reader.heap.inline_values {
                InlineValues::TwoPointers => 32,
                InlineValues::TaggedPointer => 24,
                InlineValues::None | InlineValues::Behind => 0,
            },
            reader,
            internal: Internal::new(&mut names),
            names,
            types: Vec::new(),
            type_numbers: HashMap::new(),
            type_slots: Box::new([(0, 0); TYPE_SLOTS]),
            visited: Visited::new().ok_or(Full)?,
            output,
            weak: Column::new(),
            static_types: Vec::new(),
            referents: Column::new(),
            entries: Vec::new(),
            long: Column::new(),
            read_inline,
            values: wants_values.then(Vec::new),
            failed: false,
        })
    }

    /// The place of an object, which is noted if it is new; `None` for an address that cannot be one.
    #[inline(always)]
    pub fn add(&mut self, address: usize) -> Option<Handle> {
        match self.visited.mark(address) {
            Ok((handle, new)) => {
                self.failed |= !self.output.meet(handle, address, new);
                Some(handle)
            }
            Err(refused) => {
                self.failed |= refused == Refused::Full;
                None
            }
        }
    }

    /// The object at hand refers to another.
    #[inline(always)]
    pub(super) fn edge(&mut self, target: usize, label: Label) {
        if target == 0 {
            return;
        }
        if let Some(handle) = self.add(target) {
            self.failed |= !self.output.reference(handle, label);
        }
    }

    /// What a weak reference refers to, which does not lead the walk on.
    pub(super) fn weak_reference(&mut self, from: Handle, at: usize) {
        let target = self.reader.word(at + object::WEAK_REFERENT);
        if target != 0 && target != self.reader.known.none {
            let target = target as u64;
            self.failed |= !self.weak.push(Weak { from, target });
        }
    }

    /// Bytes that finding objects takes.
    pub fn bytes(&self) -> u64 {
        (self.visited.bytes() + self.long.bytes()) as u64
    }

    #[inline(always)]
    pub(super) fn type_number(&mut self, address: usize) -> u32 {
        let slot = (address >> 4 ^ address >> 13) % TYPE_SLOTS;
        let (known, number) = self.type_slots[slot];
        if known == address {
            return number;
        }
        let number = self.known_type(address);
        self.type_slots[slot] = (address, number);
        number
    }

    #[inline(never)]
    pub(super) fn known_type(&mut self, address: usize) -> u32 {
        if let Some(number) = self.type_numbers.get(&address) {
            return *number;
        }
        let entry = TypeEntry::of(self.reader, &mut self.names, address);
        let number = self.types.len() as u32;
        self.types.push(entry);
        self.type_numbers.insert(address, number);
        self.add(address);
        number
    }
}

impl Walk<'_, Columns> {
    #[inline(always)]
    pub(super) fn scan(&mut self, handle: Handle) {
        let reader = self.reader;
        let at = self.visited.address_of(handle);
        let type_number = self.type_number(reader.type_of(at));
        let entry = &self.types[type_number as usize];
        let (scan, special, own) = (entry.scan, entry.special, entry.own);
        let collected = reader.is_collected(at, entry.flags, entry.is_gc);
        let tracked = collected && reader.is_tracked(at);
        let bytes = bytes_of(reader, entry, at, collected);
        let mut flags = 0;
        if tracked {
            flags |= Objects::TRACKED;
        }
        if reader.references(at).is_none() {
            flags |= Objects::IMMORTAL;
        }
        if entry.estimated {
            flags |= Objects::ESTIMATED;
        }
        match scan {
            Scan::Leaf => {}
            Scan::List => {
                let items = reader.word(at + object::LIST_ITEMS);
                self.items(items, reader.size(at));
            }
            Scan::Tuple => self.items(at + self.tuple_items, reader.size(at)),
            Scan::Dict => self.dict_entries(at),
            Scan::Type => {
                if !reader.is_heap_type(at) {
                    self.static_types.push(handle);
                }
                self.type_references(type_number, at, collected);
            }
            Scan::Fields => self.fields(type_number, at),
            Scan::Instance | Scan::Traverse => {
                // What is not tracked may not be whole yet, unless the interpreter itself made it.
                if tracked || (own && collected) {
                    flags |= self.traverse_and_label(type_number, at);
                }
            }
        }
        match special {
            Special::Weak => self.weak_reference(handle, at),
            Special::Array => self.array(at),
            _ => {}
        }
        if let Some(values) = &mut self.values {
            if let Some(text) = short_value(reader, at) {
                values.push((handle, text));
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
            facts.extra = values_bytes_of(reader, entry, at);
            facts.usual_extra = entry.values_bytes;
        }
        self.failed |= !self.output.end(facts);
    }
}
