//! The walk itself: objects are appended as they are found and looked through in that order, so the list of objects is
//! also the list of what is left to do.
//!
//! Nothing here makes a Python object, takes a reference or runs Python code. References are asked of the objects
//! themselves (`tp_traverse`), as the collector does; names are added by comparing what came with what is known of the
//! type, so a wrong guess costs a name, never a reference.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use heaptide_capture::heap::{EdgeKind, Label, MAX_OBJECTS, Objects};

use super::column::Column;
use super::live::Live;
use super::names::NameTable;
use super::sizes::{array, array_bytes, bytes_of};
use super::table::Table;
use super::types::{Looks, Special, TypeEntry, cached_keys};
use super::values::short_value;
use crate::cpython::heap_layout::{DictKeys, InlineValues, object, type_flag, type_object};

/// Sizes from here on are kept apart: a column of four bytes is enough for the others.
const LARGE: u32 = u32::MAX;

/// A weak reference: it does not lead the walk on.
#[derive(Clone, Copy)]
pub struct Weak {
    pub from: u32,
    pub target: u64,
}

/// No memory, or more objects than a snapshot has numbers for.
#[derive(Debug)]
pub struct Full;

/// A walk under way.
pub struct Walk {
    pub live: Live,
    pub names: NameTable,
    pub types: Vec<TypeEntry>,
    type_numbers: HashMap<usize, u32>,
    last_type: (usize, u32),
    pub table: Table,
    pub addresses: Column<u64>,
    pub type_column: Column<u32>,
    pub sizes: Column<u32>,
    pub large_sizes: HashMap<u32, u64>,
    pub flags: Column<u8>,
    /// Where the references of each object that was looked through begin.
    pub starts: Column<u32>,
    pub targets: Column<u32>,
    pub labels: Column<u32>,
    /// Weak references: who, and the address of what.
    pub weak: Column<Weak>,
    /// What the object at hand says it refers to.
    pub(super) visited: Column<usize>,
    entries: Vec<(usize, Label)>,
    tuple_items: usize,
    internal: Internal,
    /// Whether attributes kept in instances can be read; proved before the walk.
    pub read_inline: bool,
    /// Short texts of what objects hold, if they are wanted.
    pub values: Option<Vec<(u32, String)>>,
    failed: bool,
}

/// Numbers of the names that are used for every type.
struct Internal {
    mro: u32,
    bases: u32,
    base: u32,
    cache: u32,
    subclasses: u32,
    name: u32,
    qualname: u32,
    slots: u32,
    module: u32,
    shared_key: u32,
    array_base: u32,
    dtype: u32,
}

unsafe extern "C" fn note(target: *mut c_void, visited: *mut c_void) -> c_int {
    // SAFETY: every caller passes the column of its walk, which nobody else uses meanwhile.
    let visited = unsafe { &mut *visited.cast::<Column<usize>>() };
    if !target.is_null() {
        visited.push(target as usize);
    }
    0
}

impl Walk {
    pub fn new(live: Live, read_inline: bool, wants_values: bool) -> Result<Walk, Full> {
        let mut names = NameTable::new().ok_or(Full)?;
        let mut name = |text| names.of_text(text);
        let internal = Internal {
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
        };
        Ok(Walk {
            tuple_items: live.word(live.known.tuple + type_object::BASIC_SIZE),
            live,
            names,
            types: Vec::new(),
            type_numbers: HashMap::new(),
            last_type: (0, 0),
            table: Table::new().ok_or(Full)?,
            addresses: Column::new(),
            type_column: Column::new(),
            sizes: Column::new(),
            large_sizes: HashMap::new(),
            flags: Column::new(),
            starts: Column::new(),
            targets: Column::new(),
            labels: Column::new(),
            weak: Column::new(),
            visited: Column::new(),
            entries: Vec::new(),
            internal,
            read_inline,
            values: wants_values.then(Vec::new),
            failed: false,
        })
    }

    /// The number of an object, which is noted if it is new.
    #[inline(always)]
    pub fn add(&mut self, address: usize) -> u32 {
        match self.table.find_or_add(&self.addresses, address as u64) {
            Some((number, false)) => number,
            Some((number, true)) if (number as usize) < MAX_OBJECTS => {
                self.failed |= !self.addresses.push(address as u64);
                number
            }
            _ => {
                self.failed = true;
                0
            }
        }
    }

    #[inline(always)]
    fn edge(&mut self, target: usize, label: Label) {
        if target == 0 {
            return;
        }
        let number = self.add(target);
        let noted = self.targets.push(number) && self.labels.push(label.to_word());
        self.failed |= !noted;
    }

    /// Looks through everything that was found and not looked through yet.
    pub fn run(&mut self) -> Result<(), Full> {
        while self.starts.len() < self.addresses.len() {
            let number = self.starts.len();
            // An object further on is fetched while this one is looked at.
            if let Some(ahead) = self.addresses.get(number + 4) {
                prefetch(*ahead as usize);
            }
            let at = self.addresses[number] as usize;
            let start = u32::try_from(self.targets.len()).map_err(|_| Full)?;
            self.failed |= !self.starts.push(start);
            self.look_through(number as u32, at);
            if self.failed {
                return Err(Full);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn type_number(&mut self, address: usize) -> u32 {
        if self.last_type.0 == address {
            return self.last_type.1;
        }
        let number = match self.type_numbers.get(&address) {
            Some(number) => *number,
            None => {
                let entry = TypeEntry::of(&self.live, &mut self.names, address);
                let number = self.types.len() as u32;
                self.types.push(entry);
                self.type_numbers.insert(address, number);
                self.add(address);
                number
            }
        };
        self.last_type = (address, number);
        number
    }

    fn look_through(&mut self, number: u32, at: usize) {
        let live = self.live;
        let type_number = self.type_number(live.type_of(at));
        let entry = &self.types[type_number as usize];
        let (looks, special, own) = (entry.looks, entry.special, entry.own);
        let collected = live.is_collected(at, entry.flags, entry.is_gc);
        let tracked = collected && live.is_tracked(at);
        let bytes = bytes_of(&live, entry, at, collected);
        let mut flags = 0;
        if tracked {
            flags |= Objects::TRACKED;
        }
        if live.references(at).is_none() {
            flags |= Objects::IMMORTAL;
        }
        if entry.estimated {
            flags |= Objects::ESTIMATED;
        }
        let tuple_items = self.tuple_items;
        match looks {
            Looks::Leaf => {}
            Looks::List => {
                let items = live.word(at + object::LIST_ITEMS);
                self.items(items, live.size(at));
            }
            Looks::Tuple => self.items(at + tuple_items, live.size(at)),
            Looks::Dict => self.dict_entries(at),
            Looks::Type => self.type_references(type_number, at, collected),
            Looks::Fields => self.fields(type_number, at),
            Looks::Traverse => {
                // What is not tracked may not be whole yet, unless the interpreter itself made it.
                if tracked || (own && collected) {
                    flags |= self.traverse(type_number, at);
                }
            }
        }
        match special {
            Special::Weak => {
                let target = live.word(at + object::WEAK_REFERENT);
                if target != 0 && target != live.known.none {
                    self.failed |= !self.weak.push(Weak {
                        from: number,
                        target: target as u64,
                    });
                }
            }
            Special::Array => self.array(at),
            _ => {}
        }
        if let Some(values) = &mut self.values {
            if let Some(text) = short_value(&live, at) {
                values.push((number, text));
            }
        }
        let size = match u32::try_from(bytes) {
            Ok(size) if size < LARGE => size,
            _ => {
                self.large_sizes.insert(number, bytes);
                LARGE
            }
        };
        let noted =
            self.type_column.push(type_number) && self.sizes.push(size) && self.flags.push(flags);
        self.failed |= !noted;
    }

    fn items(&mut self, items: usize, n_items: usize) {
        for index in 0..n_items {
            let ahead = self.live.word(items + (index + 8).min(n_items - 1) * 8);
            self.table.prefetch(ahead as u64);
            let target = self.live.word(items + index * 8);
            self.edge(target, Label::new(EdgeKind::Index, index as u32));
        }
    }

    /// The keys and values of a dict, named by the keys.
    fn dict_entries(&mut self, at: usize) {
        let live = self.live;
        let mut position = 0;
        live.dict_entries(at, |key, value| {
            let label = self.key_label(key, position);
            self.edge(key, Label::new(EdgeKind::KeyOf, position));
            self.edge(value, label);
            position = position.saturating_add(1);
        });
    }

    #[inline(always)]
    fn key_label(&mut self, key: usize, position: u32) -> Label {
        let live = &self.live;
        let key_type = live.type_of(key);
        if key_type == live.known.unicode {
            return Label::new(EdgeKind::Key, self.names.of_object(live, key));
        }
        if key_type == live.known.long {
            if let Some(number) = small_number(live, key) {
                return Label::new(EdgeKind::NumberKey, number);
            }
        }
        Label::new(EdgeKind::Item, position)
    }

    /// References of an object that the collector does not follow, by the fields that are known of it.
    fn fields(&mut self, type_number: u32, at: usize) {
        for place in 0..self.types[type_number as usize].fields.len() {
            let field = self.types[type_number as usize].fields[place];
            let target = self.live.word(at + field.offset);
            self.edge(target, field.label);
        }
    }

    /// Has the object say what it refers to, and names what is known. Returns flags of the object.
    fn traverse(&mut self, type_number: u32, at: usize) -> u8 {
        let live = self.live;
        self.visited.clear();
        let function = self.types[type_number as usize].traverse;
        let column: *mut Column<usize> = &mut self.visited;
        live.traverse(at, function, note, column.cast());

        let mut flags = 0;
        self.entries.clear();
        let mut entries = std::mem::take(&mut self.entries);
        let special = self.types[type_number as usize].special;
        let dict = self.dict_of(type_number, at);
        match special {
            Special::DictEntries => {
                let mut position = 0;
                live.dict_entries(at, |key, value| {
                    let label = self.key_label(key, position);
                    entries.push((key, Label::new(EdgeKind::KeyOf, position)));
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
            flags |= Walk::attributes_of(&live, entry, at, &mut entries);
        }
        let own_type = self.types[type_number as usize].address;
        let n_entries = entries.len();
        let mut next_entry = 0;
        let mut position = 0;
        for place in 0..self.visited.len() {
            let target = self.visited[place];
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
                Label::new(EdgeKind::DictOf, 0)
            } else if let Some(label) = self.field_label(type_number, at, target) {
                label
            } else if target == own_type {
                Label::new(EdgeKind::Type, 0)
            } else {
                let kind = match special {
                    Special::Sequence => EdgeKind::Index,
                    Special::Set => EdgeKind::Element,
                    Special::Generator | Special::Frame => EdgeKind::Stack,
                    _ => EdgeKind::Referent,
                };
                position += 1;
                Label::new(kind, position - 1)
            };
            self.edge(target, label);
        }
        self.entries = entries;
        flags
    }

    #[inline(always)]
    fn field_label(&self, type_number: u32, at: usize, target: usize) -> Option<Label> {
        let fields = &self.types[type_number as usize].fields;
        let field = fields
            .iter()
            .find(|field| self.live.word(at + field.offset) == target)?;
        Some(field.label)
    }

    /// The `__dict__` of an object; 0 if there is none, or not yet.
    fn dict_of(&self, type_number: u32, at: usize) -> usize {
        let live = &self.live;
        let entry = &self.types[type_number as usize];
        if entry.flags & type_flag::MANAGED_DICT != 0 {
            let word = live.word(at - 24);
            return match live.heap.inline_values {
                InlineValues::None => 0,
                InlineValues::TaggedPointer if word & 1 != 0 => 0,
                _ => word,
            };
        }
        match entry.dict_offset {
            0 => 0,
            offset @ 1.. => live.word(at + offset as usize),
            offset => {
                let items = (live.size(at) as isize).unsigned_abs();
                // Whole numbers of 3.12 and later keep no length there; their dicts go without a name.
                if entry.flags & type_flag::LONG != 0 || entry.item_size == 0 {
                    return 0;
                }
                let end = (entry.basic_size + items * entry.item_size).next_multiple_of(8);
                live.word(at + end - offset.unsigned_abs())
            }
        }
    }

    /// The attributes of an instance that keeps them without a dict, with their names.
    pub fn attributes_of(
        live: &Live,
        entry: &TypeEntry,
        at: usize,
        entries: &mut Vec<(usize, Label)>,
    ) -> u8 {
        if entry.flags & type_flag::MANAGED_DICT == 0 || entry.attributes.is_empty() {
            return 0;
        }
        let values = match live.heap.inline_values {
            InlineValues::None => return 0,
            InlineValues::TwoPointers => live.word(at - 32),
            InlineValues::TaggedPointer => match live.word(at - 24) {
                word if word & 1 != 0 => word + 1,
                _ => 0,
            },
            InlineValues::Behind => {
                if entry.flags & type_flag::INLINE_VALUES == 0 {
                    return 0;
                }
                let header = at + entry.basic_size;
                // capacity, size, embedded, valid
                if live.byte(header + 3) == 0 {
                    return 0;
                }
                header + 8
            }
        };
        if values == 0 {
            return 0;
        }
        for (number, name) in entry.attributes.iter().enumerate() {
            let value = live.word(values + number * 8);
            if value != 0 {
                entries.push((value, Label::new(EdgeKind::Attribute, *name)));
            }
        }
        Objects::INLINE_VALUES
    }

    fn type_references(&mut self, type_number: u32, at: usize, collected: bool) {
        let live = self.live;
        let dict = live.dict_of_type(at);
        let internal = |name| Label::new(EdgeKind::Internal, name);
        let names = &self.internal;
        let mut known = vec![
            (dict, Label::new(EdgeKind::DictOf, 0)),
            (live.word(at + type_object::MRO), internal(names.mro)),
            (live.word(at + type_object::BASES), internal(names.bases)),
            (live.word(at + type_object::BASE), internal(names.base)),
        ];
        // From 3.12 on a static type of the interpreter's own has a number there.
        if live.flags(at) & type_flag::STATIC_BUILTIN == 0 || live.heap.immortal.is_none() {
            let subclasses = live.word(at + type_object::SUBCLASSES);
            known.push((subclasses, internal(names.subclasses)));
        }
        let mut unseen = known.clone();
        if live.is_heap_type(at) {
            let name = at + live.heap.heap_type_name;
            let cache = live.word(at + type_object::CACHE);
            known.push((cache, internal(names.cache)));
            known.push((live.word(name + 32), internal(names.module)));
            unseen.push((live.word(name), internal(names.name)));
            unseen.push((live.word(name + 8), internal(names.slots)));
            unseen.push((live.word(name + 16), internal(names.qualname)));
        }
        self.visited.clear();
        let traverse = self.types[type_number as usize].traverse;
        if collected && traverse != 0 {
            let column: *mut Column<usize> = &mut self.visited;
            live.traverse(at, traverse, note, column.cast());
        }
        let own_type = self.types[type_number as usize].address;
        for place in 0..self.visited.len() {
            let target = self.visited[place];
            unseen.retain(|(known, _)| *known != target);
            let label = known.iter().find(|(known, _)| *known == target);
            let label = match label {
                Some((_, label)) => *label,
                None if target == own_type => Label::new(EdgeKind::Type, 0),
                None => Label::new(EdgeKind::Referent, place as u32),
            };
            self.edge(target, label);
        }
        for (target, label) in unseen {
            self.edge(target, label);
        }
        self.shared_keys(at);
    }

    /// Texts that name the attributes of a class's instances, held by what these share.
    fn shared_keys(&mut self, at: usize) {
        let live = self.live;
        if live.heap.dict_keys != DictKeys::Compact {
            return;
        }
        let keys = cached_keys(&live, at);
        if keys == 0 || !self.read_inline {
            return;
        }
        let entries = keys + 32 + (1 << live.byte(keys + 9));
        let label = Label::new(EdgeKind::Internal, self.internal.shared_key);
        for number in 0..live.word(keys + 24).min(64) {
            self.edge(live.word(entries + number * 16), label);
        }
    }

    /// What a numpy array refers to: the collector does not follow arrays.
    fn array(&mut self, at: usize) {
        let live = self.live;
        let internal = |name| Label::new(EdgeKind::Internal, name);
        let description = live.word(at + array::DESCRIPTION);
        self.edge(
            live.word(at + array::BASE),
            internal(self.internal.array_base),
        );
        self.edge(description, internal(self.internal.dtype));
        let contiguous = live.half(at + array::FLAGS) & array::CONTIGUOUS != 0;
        let data = live.word(at + array::DATA);
        if description == 0 || data == 0 || !contiguous {
            return;
        }
        if live.half(description + array::TYPE_NUMBER) == array::OBJECTS {
            if let Some(bytes) = array_bytes(&live, at) {
                self.items(data, bytes / 8);
            }
        }
    }
}

/// The value of a whole number that is neither negative nor large.
fn small_number(live: &Live, at: usize) -> Option<u32> {
    let size = live.size(at);
    let n_digits = if live.heap.tagged_numbers {
        // The two lowest bits are 0 for a positive number and 1 for zero.
        match size & 3 {
            0 => size >> 3,
            1 => 0,
            _ => return None,
        }
    } else {
        size
    };
    match n_digits {
        0 => Some(0),
        1 => Some(live.half(at + 24)).filter(|number| *number <= Label::MAX_NUMBER),
        _ => None,
    }
}

#[inline(always)]
fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; the address need not even be readable.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
