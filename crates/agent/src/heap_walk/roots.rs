//! Where a walk begins, and how what no root leads to is told apart.

use heaptide_capture::heap::{EdgeKind, Label, Objects, Root, RootKind};

use super::column::Column;
use super::walk::{Full, Walk};
use crate::cpython::heap_layout::object;
use std::ffi::{c_int, c_void};

/// More objects than this are not in one of the collector's lists: it is no list.
const MAX_LIST: usize = 1 << 31;

#[derive(Default)]
pub struct Roots {
    pub found: Vec<Root>,
    /// Whether local variables of frames can be read; proved before the walk.
    pub read_locals: bool,
}

impl Roots {
    pub fn add(&mut self, walk: &mut Walk, kind: RootKind, name: &str, address: usize) {
        let object = walk.add(address);
        let name = walk.names.of_text(name);
        self.found.push(Root { kind, name, object });
    }

    /// `sys.modules` and what is in it, and the running frames.
    pub fn begin(&mut self, walk: &mut Walk) {
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
    pub fn add_collected(&mut self, walk: &mut Walk) -> Result<bool, Full> {
        let live = walk.live;
        let mut collected: Column<usize> = Column::new();
        let column: *mut Column<usize> = &mut collected;
        if !live.visit_collected(keep, column.cast()) {
            let Some(offset) = live.heap.generations else {
                return Ok(false);
            };
            if !read_lists(walk, live.interpreter() + offset, &mut collected) {
                return Ok(false);
            }
        }
        for address in collected.iter() {
            walk.add(*address);
        }
        walk.run()?;
        Ok(true)
    }

    /// Adds what is referred to only weakly, as long as there is something new.
    pub fn add_weak(&mut self, walk: &mut Walk) -> Result<(), Full> {
        let mut done = 0;
        while done < walk.weak.len() {
            let target = walk.weak[done].target as usize;
            // An object whose last reference has just gone is not alive any more.
            if walk.live.references(target) != Some(0) {
                walk.add(target);
            }
            done += 1;
            if done == walk.weak.len() {
                walk.run()?;
            }
        }
        Ok(())
    }

    /// Objects from `first` on were not led to by a root. Those that have more references than the snapshot knows of are
    /// held by C code, which makes them roots; the rest is garbage.
    pub fn tell_apart(&mut self, walk: &mut Walk, first: usize) -> Result<(), Full> {
        let n_others = walk.addresses.len() - first;
        let mut known: Column<u32> = Column::zeroed(n_others).ok_or(Full)?;
        let begin = walk.starts.get(first).copied().unwrap_or(0) as usize;
        for (target, label) in walk.targets[begin..].iter().zip(&walk.labels[begin..]) {
            let is_weak =
                Label::from_word(*label).is_some_and(|label| label.kind() == EdgeKind::Weak);
            if *target as usize >= first && !is_weak {
                known[*target as usize - first] += 1;
            }
        }
        let mut reached: Column<u32> = Column::new();
        for (place, known) in known.iter().enumerate() {
            let number = first + place;
            let at = walk.addresses[number] as usize;
            let held = match walk.live.references(at) {
                None => true,
                Some(references) => references > u64::from(*known),
            };
            if held {
                let entry = &walk.types[walk.type_column[number] as usize];
                let is_static_type =
                    entry.looks == super::types::Looks::Type && !walk.live.is_heap_type(at);
                let kind = if is_static_type {
                    RootKind::Type
                } else {
                    walk.flags[number] |= Objects::HELD_BY_C;
                    RootKind::C
                };
                self.found.push(Root {
                    kind,
                    name: 0,
                    object: number as u32,
                });
                if !reached.push(number as u32) {
                    return Err(Full);
                }
            }
        }
        let mut is_reached: Column<u8> = Column::zeroed(n_others).ok_or(Full)?;
        for number in reached.iter() {
            is_reached[*number as usize - first] = 1;
        }
        let mut done = 0;
        while done < reached.len() {
            let number = reached[done] as usize;
            done += 1;
            let start = walk.starts[number] as usize;
            let end = walk
                .starts
                .get(number + 1)
                .map_or(walk.targets.len(), |end| *end as usize);
            for place in start..end {
                let target = walk.targets[place] as usize;
                if target >= first && is_reached[target - first] == 0 {
                    is_reached[target - first] = 1;
                    if !reached.push(target as u32) {
                        return Err(Full);
                    }
                }
            }
        }
        for (place, reached) in is_reached.iter().enumerate() {
            if *reached == 0 {
                walk.flags[first + place] |= Objects::UNREACHABLE;
            }
        }
        Ok(())
    }

    /// Static types among what roots led to: they are kept by themselves.
    pub fn static_types(&mut self, walk: &mut Walk, first: usize) {
        for number in 0..first {
            let entry = &walk.types[walk.type_column[number] as usize];
            if entry.looks == super::types::Looks::Type
                && !walk.live.is_heap_type(walk.addresses[number] as usize)
            {
                self.found.push(Root {
                    kind: RootKind::Type,
                    name: 0,
                    object: number as u32,
                });
            }
        }
    }
}

unsafe extern "C" fn keep(target: *mut c_void, column: *mut c_void) -> c_int {
    // SAFETY: the caller passes its column, which nobody else uses meanwhile.
    let column = unsafe { &mut *column.cast::<Column<usize>>() };
    // Going on is 1, stopping 0.
    c_int::from(column.push(target as usize))
}

/// Follows the collector's lists: three generations, and what was frozen. `false` if they do not look like lists.
fn read_lists(walk: &Walk, first: usize, collected: &mut Column<usize>) -> bool {
    let live = &walk.live;
    // A list's head has the links, and a threshold and a count; the pointer to the youngest stands before the last.
    for head in [first, first + 24, first + 48, first + 80] {
        let mut at = head;
        for _ in 0..MAX_LIST {
            let next = live.word(at) & !3;
            if next == head {
                break;
            }
            if next == 0
                || live.word(next + 8) & !3 != at
                || !collected.push(next + object::GC_HEADER)
            {
                return false;
            }
            at = next;
        }
    }
    true
}

/// Whether the words at the collector's place in the interpreter's state are heads of lists.
pub fn lists_are_there(live: &super::live::Live) -> bool {
    let Some(offset) = live.heap.generations else {
        return true;
    };
    let first = live.interpreter() + offset;
    let Some(mut memory) = crate::cpython::memory::Probed::open() else {
        return false;
    };
    use crate::cpython::memory::Memory;
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
