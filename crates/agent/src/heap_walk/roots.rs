//! Where a walk begins, and how what no root leads to is told apart.

use heaptide_capture::heap::{Objects, Root, RootKind};

use super::column::Column;
use super::interned;
use super::live::Live;
use super::marks::Place;
use super::notes::{Columns, Notes};
use super::table::Table;
use super::types::Looks;
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
    pub fn add<N: Notes>(
        &mut self,
        walk: &mut Walk<'_, N>,
        kind: RootKind,
        name: &str,
        address: usize,
    ) {
        if let Some(object) = walk.add(address) {
            let name = walk.names.of_text(name);
            self.found.push(Root { kind, name, object });
        }
    }

    /// `sys.modules` and what is in it, and the running frames.
    pub fn begin<N: Notes>(&mut self, walk: &mut Walk<'_, N>) {
        let live = walk.live;
        let modules = live.modules();
        if modules != 0 {
            self.add(walk, RootKind::Interpreter, "sys.modules", modules);
            let is_dict = live.type_of(modules) == live.known.dict;
            let mut entries = Vec::new();
            if is_dict {
                live.dict_entries(modules, |key, value| entries.push((key, value)));
            }
            let mut buffer = [0; 300];
            for (key, value) in entries {
                if value == live.known.none || live.type_of(key) != live.known.unicode {
                    continue;
                }
                let name = live.text(key, &mut buffer).map_or("", |(text, _)| text);
                self.add(walk, RootKind::Module, name, value);
            }
        }
        walk.frame_roots(self);
    }

    /// Adds all that the collector knows and no root has led to; `false` if it could not be asked.
    pub fn add_collected<N: Notes>(&mut self, walk: &mut Walk<'_, N>) -> Result<bool, Full> {
        let live = walk.live;
        // Its lists are quicker than asking it, and have what was frozen as well.
        let lists = live.heap.generations.map(|at| live.interpreter() + at);
        let mut asked = lists.is_some_and(|first| {
            lists_are_there(first) && read_lists(live, first, |address| N::collected(walk, address))
        });
        if !asked {
            let with: *mut Walk<'_, N> = walk;
            asked = live.visit_collected(add_one::<N>, with.cast());
        }
        N::run(walk)?;
        Ok(asked)
    }

    /// Adds what is referred to only weakly, as long as there is something new.
    pub fn add_weak<N: Notes>(&mut self, walk: &mut Walk<'_, N>) -> Result<(), Full> {
        let mut done = 0;
        while done < walk.weak.len() {
            let target = walk.weak[done].target as usize;
            // An object whose last reference has just gone is not alive any more.
            if walk.live.references(target) != Some(0) {
                walk.add(target);
            }
            done += 1;
            if done == walk.weak.len() {
                N::run(walk)?;
            }
        }
        Ok(())
    }

    /// The table of interned strings comes last, whatever leads to it.
    pub fn reserve<N: Notes>(&self, walk: &mut Walk<'_, N>) -> Result<(), Full> {
        match self.interned {
            Some(table) => interned::reserve(walk, table),
            None => Ok(()),
        }
    }

    /// Adds interned strings that nothing else leads to.
    pub fn add_interned<N: Notes>(&mut self, walk: &mut Walk<'_, N>) -> Result<(), Full> {
        let Some(table) = self.interned else {
            return Ok(());
        };
        let strings = interned::kept(walk.live, table, |string| {
            walk.marks.find(string as u64).is_none()
        })?;
        interned::add(walk, table, &strings)?;
        Ok(())
    }

    /// Objects from `first` on were not led to by a root. Those that have more references than the snapshot knows of are
    /// held by C code, which makes them roots; the rest is garbage, but for interned strings: it is their table that
    /// holds them where nothing else does.
    pub fn tell_apart(&mut self, walk: &mut Walk<'_, Columns>, first: usize) -> Result<(), Full> {
        let mut others = Others::new(walk, first).ok_or(Full)?;
        let mut known: Column<u32> = Column::zeroed(others.len()).ok_or(Full)?;
        // Weak references are not among these: they are kept apart.
        let begin = walk.notes.references(first).start;
        for target in &walk.notes.targets[begin..] {
            if let Some(other) = others.find(*target) {
                known[other] += 1;
            }
        }
        let in_table = others.interned(walk, self.interned)?;
        let mut reached: Column<u32> = Column::new();
        for (other, known) in known.iter().enumerate() {
            let place = others.places[other] as Place;
            let at = walk.marks.address_of(place);
            let held = match walk.live.references(at) {
                None => in_table[other] == 0,
                Some(references) => references > u64::from(*known),
            };
            if held {
                let entry = &walk.types[walk.notes.types[first + other] as usize];
                let is_static_type = entry.looks == Looks::Type && !walk.live.is_heap_type(at);
                if !is_static_type {
                    walk.notes.flags[first + other] |= Objects::HELD_BY_C;
                    self.found.push(Root {
                        kind: RootKind::C,
                        name: 0,
                        object: place,
                    });
                }
                if !reached.push(other as u32) {
                    return Err(Full);
                }
            }
        }
        others.spread(walk, first, &mut reached)?;
        self.interned_strings(walk, &mut others)?;
        for other in 0..others.len() {
            if others.is_reached[other] == 0 {
                walk.notes.flags[first + other] |= Objects::UNREACHABLE;
            }
        }
        Ok(())
    }

    /// The table of interned strings as the holder of those that have no other.
    fn interned_strings(
        &mut self,
        walk: &mut Walk<'_, Columns>,
        others: &mut Others,
    ) -> Result<(), Full> {
        let Some(table) = self.interned else {
            return Ok(());
        };
        let strings = interned::kept(walk.live, table, |string| {
            match walk.marks.find(string as u64) {
                None => true,
                Some(place) => others
                    .find(place)
                    .is_some_and(|other| others.is_reached[other] == 0),
            }
        })?;
        for (string, _) in strings.iter() {
            let place = walk.marks.find(*string as u64);
            if let Some(other) = place.and_then(|place| others.find(place)) {
                others.is_reached[other] = 1;
            }
        }
        let object = interned::add(walk, table, &strings)?;
        self.found.push(Root {
            kind: RootKind::Interpreter,
            name: walk.names.of_text(Root::INTERNED_STRINGS),
            object,
        });
        Ok(())
    }

    /// Static types are kept by themselves.
    pub fn static_types(&mut self, walk: &mut Walk<'_, Columns>) {
        let mut name = String::new();
        for place in &walk.static_types {
            let at = walk.marks.address_of(*place);
            walk.live
                .c_text(walk.live.word(at + type_object::NAME), &mut name);
            self.found.push(Root {
                kind: RootKind::Type,
                name: walk.names.of_text(&name),
                object: *place,
            });
        }
    }
}

/// Objects that no root has led to, in the order of finding.
struct Others {
    places: Column<u64>,
    numbers: Table,
    is_reached: Column<u8>,
}

impl Others {
    fn new(walk: &Walk<'_, Columns>, first: usize) -> Option<Others> {
        let found = walk.notes.found.get(first..)?;
        let mut places: Column<u64> = Column::new();
        let mut numbers = Table::new()?;
        for place in found {
            let place = u64::from(*place);
            numbers.find_or_add(&places, place)?;
            if !places.push(place) {
                return None;
            }
        }
        Some(Others {
            is_reached: Column::zeroed(found.len())?,
            places,
            numbers,
        })
    }

    fn len(&self) -> usize {
        self.places.len()
    }

    fn find(&self, place: Place) -> Option<usize> {
        let number = self.numbers.find(&self.places, u64::from(place))?;
        Some(number as usize)
    }

    /// Which of them the table of interned strings keeps for ever.
    fn interned(&self, walk: &Walk<'_, Columns>, table: Option<usize>) -> Result<Column<u8>, Full> {
        let mut in_table: Column<u8> = Column::zeroed(self.len()).ok_or(Full)?;
        if let Some(table) = table {
            interned::kept(walk.live, table, |string| {
                let place = walk.marks.find(string as u64);
                if let Some(other) = place.and_then(|place| self.find(place)) {
                    in_table[other] = 1;
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
        for other in reached.iter() {
            self.is_reached[*other as usize] = 1;
        }
        let mut done = 0;
        while done < reached.len() {
            let references = walk.notes.references(first + reached[done] as usize);
            done += 1;
            for place in references {
                let target = self.find(walk.notes.targets[place]);
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

unsafe extern "C" fn add_one<N: Notes>(target: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the caller passes its walk, which nobody else uses meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk<'_, N>>() };
    // Going on is 1, stopping 0.
    c_int::from(N::collected(walk, target as usize))
}

/// Follows the collector's lists: three generations, and what was frozen. `false` if they do not look like lists.
fn read_lists(live: &Live, first: usize, mut each: impl FnMut(usize) -> bool) -> bool {
    // A list's head has the links, and a threshold and a count; the pointer to the youngest stands before the last.
    for head in [first, first + 24, first + 48, first + 80] {
        let mut at = head;
        for _ in 0..MAX_LIST {
            let next = live.word(at) & !3;
            if next == head {
                break;
            }
            if next == 0 || live.word(next + 8) & !3 != at || !each(next + object::GC_HEADER) {
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
