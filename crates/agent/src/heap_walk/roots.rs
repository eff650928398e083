//! Where a walk begins, and how what no root leads to is told apart.

use heaptide_capture::heap::{Objects, Root, RootCategory};

use super::column::Column;
use super::index::Index;
use super::interned;
use super::output::{Columns, Output};
use super::reader::Reader;
use super::types::Scan;
use super::visited::Handle;
use super::walk::{Full, Walk};
use crate::cpython::heap_layout::{object, type_object};
use std::ffi::{c_int, c_void};

/// More objects than this are not in one of the collector's lists: it is no list.
const MAX_LIST: usize = 1 << 31;

#[derive(Default)]
pub struct Roots {
    pub found: Vec<Root>,
    /// Whether local variables of frames can be read; proved before the walk.
    pub read_locals: bool,
    /// The table of interned strings, where it keeps any alive.
    pub interned: Option<usize>,
}

impl Roots {
    pub fn add<O: Output>(
        &mut self,
        walk: &mut Walk<'_, O>,
        category: RootCategory,
        name: &str,
        address: usize,
    ) {
        if let Some(object) = walk.add(address) {
            let name = walk.names.of_text(name);
            self.found.push(Root {
                category,
                name,
                object,
            });
        }
    }

    /// `sys.modules` and what is in it, and the running frames.
    pub fn begin<O: Output>(&mut self, walk: &mut Walk<'_, O>) {
        let reader = walk.reader;
        let modules = reader.modules();
        if modules != 0 {
            self.add(walk, RootCategory::Interpreter, "sys.modules", modules);
            let is_dict = reader.type_of(modules) == reader.known.dict;
            let mut entries = Vec::new();
            if is_dict {
                reader.dict_entries(modules, |key, value| entries.push((key, value)));
            }
            let mut buffer = [0; 300];
            for (key, value) in entries {
                if value == reader.known.none || reader.type_of(key) != reader.known.unicode {
                    continue;
                }
                let name = reader.text(key, &mut buffer).map_or("", |(text, _)| text);
                self.add(walk, RootCategory::Module, name, value);
            }
        }
        walk.frame_roots(self);
    }

    /// Adds all that the collector knows and no root has led to; `false` if it could not be asked.
    pub fn add_collected<O: Output>(&mut self, walk: &mut Walk<'_, O>) -> Result<bool, Full> {
        let reader = walk.reader;
        // Its lists are quicker than asking it, and have what was frozen as well.
        let lists = reader.heap.generations.map(|at| reader.interpreter() + at);
        let mut asked = lists.is_some_and(|first| {
            lists_are_there(first)
                && read_lists(reader, first, |address| O::collected(walk, address))
        });
        if !asked {
            let with: *mut Walk<'_, O> = walk;
            asked = reader.visit_collected(add_one::<O>, with.cast());
        }
        O::run(walk)?;
        Ok(asked)
    }

    /// Adds what is referred to only weakly, as long as there is something new.
    pub fn add_weak<O: Output>(&mut self, walk: &mut Walk<'_, O>) -> Result<(), Full> {
        let mut done = 0;
        while done < walk.weak.len() {
            let target = walk.weak[done].target as usize;
            // An object whose last reference has just gone is not alive any more.
            if walk.reader.references(target) != Some(0) {
                walk.add(target);
            }
            done += 1;
            if done == walk.weak.len() {
                O::run(walk)?;
            }
        }
        Ok(())
    }

    /// The table of interned strings comes last, whatever leads to it.
    pub fn reserve<O: Output>(&self, walk: &mut Walk<'_, O>) -> Result<(), Full> {
        match self.interned {
            Some(table) => interned::reserve(walk, table),
            None => Ok(()),
        }
    }

    /// Adds interned strings that nothing else leads to.
    pub fn add_interned<O: Output>(&mut self, walk: &mut Walk<'_, O>) -> Result<(), Full> {
        let Some(table) = self.interned else {
            return Ok(());
        };
        let strings = interned::kept(walk.reader, table, |string| {
            walk.visited.find(string as u64).is_none()
        })?;
        interned::add(walk, table, &strings)?;
        Ok(())
    }

    /// Objects from `first` on were not led to by a root. Those that have more references than the snapshot knows of are
    /// held by C code, which makes them roots; the rest is garbage, but for interned strings: it is their table that
    /// holds them where nothing else does.
    pub fn classify_unreached(
        &mut self,
        walk: &mut Walk<'_, Columns>,
        first: usize,
    ) -> Result<(), Full> {
        let mut unreached = Unreached::new(walk, first).ok_or(Full)?;
        let mut known: Column<u32> = Column::zeroed(unreached.len()).ok_or(Full)?;
        // Weak references are not among these: they are kept apart.
        let begin = walk.output.references(first).start;
        for target in &walk.output.targets[begin..] {
            if let Some(number) = unreached.find(*target) {
                known[number] += 1;
            }
        }
        let in_table = unreached.interned(walk, self.interned)?;
        let mut reached: Column<u32> = Column::new();
        for (number, known) in known.iter().enumerate() {
            let handle = unreached.handles[number] as Handle;
            let at = walk.visited.address_of(handle);
            let held = match walk.reader.references(at) {
                None => in_table[number] == 0,
                Some(references) => references > u64::from(*known),
            };
            if held {
                let entry = &walk.types[walk.output.types[first + number] as usize];
                let is_static_type = entry.scan == Scan::Type && !walk.reader.is_heap_type(at);
                if !is_static_type {
                    walk.output.flags[first + number] |= Objects::HELD_BY_C;
                    self.found.push(Root {
                        category: RootCategory::C,
                        name: 0,
                        object: handle,
                    });
                }
                if !reached.push(number as u32) {
                    return Err(Full);
                }
            }
        }
        unreached.spread(walk, first, &mut reached)?;
        self.interned_strings(walk, &mut unreached)?;
        for number in 0..unreached.len() {
            if unreached.is_reached[number] == 0 {
                walk.output.flags[first + number] |= Objects::UNREACHABLE;
            }
        }
        Ok(())
    }

    /// The table of interned strings as the holder of those that have no other.
    fn interned_strings(
        &mut self,
        walk: &mut Walk<'_, Columns>,
        unreached: &mut Unreached,
    ) -> Result<(), Full> {
        let Some(table) = self.interned else {
            return Ok(());
        };
        let strings = interned::kept(walk.reader, table, |string| {
            match walk.visited.find(string as u64) {
                None => true,
                Some(handle) => unreached
                    .find(handle)
                    .is_some_and(|number| unreached.is_reached[number] == 0),
            }
        })?;
        for (string, _) in strings.iter() {
            let handle = walk.visited.find(*string as u64);
            if let Some(number) = handle.and_then(|handle| unreached.find(handle)) {
                unreached.is_reached[number] = 1;
            }
        }
        let object = interned::add(walk, table, &strings)?;
        self.found.push(Root {
            category: RootCategory::Interpreter,
            name: walk.names.of_text(Root::INTERNED_STRINGS),
            object,
        });
        Ok(())
    }

    /// Static types are kept by themselves.
    pub fn static_types(&mut self, walk: &mut Walk<'_, Columns>) {
        let mut name = String::new();
        for handle in &walk.static_types {
            let at = walk.visited.address_of(*handle);
            walk.reader
                .c_text(walk.reader.word(at + type_object::NAME), &mut name);
            self.found.push(Root {
                category: RootCategory::Type,
                name: walk.names.of_text(&name),
                object: *handle,
            });
        }
    }
}

/// Objects that no root has led to, in the order of finding.
struct Unreached {
    handles: Column<u64>,
    index: Index,
    is_reached: Column<u8>,
}

impl Unreached {
    fn new(walk: &Walk<'_, Columns>, first: usize) -> Option<Unreached> {
        let found = walk.output.found.get(first..)?;
        let mut handles: Column<u64> = Column::new();
        let mut index = Index::new()?;
        for handle in found {
            let handle = u64::from(*handle);
            index.find_or_add(&handles, handle)?;
            if !handles.push(handle) {
                return None;
            }
        }
        Some(Unreached {
            is_reached: Column::zeroed(found.len())?,
            handles,
            index,
        })
    }

    fn len(&self) -> usize {
        self.handles.len()
    }

    fn find(&self, handle: Handle) -> Option<usize> {
        let number = self.index.find(&self.handles, u64::from(handle))?;
        Some(number as usize)
    }

    /// Which of them the table of interned strings keeps for ever.
    fn interned(&self, walk: &Walk<'_, Columns>, table: Option<usize>) -> Result<Column<u8>, Full> {
        let mut in_table: Column<u8> = Column::zeroed(self.len()).ok_or(Full)?;
        if let Some(table) = table {
            interned::kept(walk.reader, table, |string| {
                let handle = walk.visited.find(string as u64);
                if let Some(number) = handle.and_then(|handle| self.find(handle)) {
                    in_table[number] = 1;
                }
                false
            })?;
        }
        Ok(in_table)
    }

    /// Marks all that the ones in `reached` lead to.
    fn spread(
        &mut self,
        walk: &Walk<'_, Columns>,
        first: usize,
        reached: &mut Column<u32>,
    ) -> Result<(), Full> {
        for number in reached.iter() {
            self.is_reached[*number as usize] = 1;
        }
        let mut done = 0;
        while done < reached.len() {
            let references = walk.output.references(first + reached[done] as usize);
            done += 1;
            for edge in references {
                let target = self.find(walk.output.targets[edge]);
                if let Some(target) = target.filter(|target| self.is_reached[*target] == 0) {
                    self.is_reached[target] = 1;
                    if !reached.push(target as u32) {
                        return Err(Full);
                    }
                }
            }
        }
        Ok(())
    }
}

unsafe extern "C" fn add_one<O: Output>(target: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the caller passes its walk, which nobody else uses meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk<'_, O>>() };
    // Going on is 1, stopping 0.
    c_int::from(O::collected(walk, target as usize))
}

/// Follows the collector's lists: three generations, and what was frozen. `false` if they do not look like lists.
fn read_lists(reader: &Reader, first: usize, mut each: impl FnMut(usize) -> bool) -> bool {
    // A list's head has the links, and a threshold and a count; the pointer to the youngest stands before the last.
    for head in [first, first + 24, first + 48, first + 80] {
        let mut at = head;
        for _ in 0..MAX_LIST {
            let next = reader.word(at) & !3;
            if next == head {
                break;
            }
            if next == 0 || reader.word(next + 8) & !3 != at || !each(next + object::GC_HEADER) {
                return false;
            }
            at = next;
        }
    }
    true
}

/// Whether the words at the collector's place in the interpreter's state are heads of lists.
fn lists_are_there(first: usize) -> bool {
    use crate::cpython::memory::{Memory, Probed};
    let Some(mut memory) = Probed::open() else {
        return false;
    };
    let mut word = |at: usize| memory.word(at).unwrap_or(0);
    let youngest = word(first + 72);
    youngest == first
        && [first, first + 24, first + 48, first + 80]
            .iter()
            .all(|head| {
                let (next, previous) = (word(*head), word(head + 8) & !3);
                next != 0
                    && previous != 0
                    && word(next + 8) & !3 == *head
                    && word(previous) & !3 == *head
            })
}
