//! The interpreter's table of interned strings: from 3.12 on it keeps some of them for ever, and no module leads to it.
//!
//! It hangs somewhere in the interpreter's state. Once in a process that is searched, by a reader that trusts no address,
//! for a dict as the table is one: under every string the string itself, and among them the name of a variable of
//! ours, which nobody else has. Where nothing fits, walks go without it.

use std::sync::atomic::{AtomicUsize, Ordering};

use heaptide_capture::heap::{EdgeType, Label, Objects};

use super::column::Column;
use super::output::{Facts, Output};
use super::reader::Reader;
use super::sizes::bytes_of;
use super::visited::Handle;
use super::walk::{Full, Walk};
use crate::cpython::heap_layout::{dict_keys, object};
use crate::cpython::memory::{Memory, Probed};

/// Where in the interpreter's state the table's address is.
static OFFSET: AtomicUsize = AtomicUsize::new(NOT_SEARCHED);
const NOT_SEARCHED: usize = usize::MAX;
const NOT_THERE: usize = usize::MAX - 1;

/// The state of an interpreter is shorter than this: 3.15's has less than half of it.
const MAX_STATE: usize = 1 << 20;
const PAGE: usize = 4096;
/// No program has addresses of more bits.
const ADDRESS_BITS: u32 = 48;
/// The interpreter itself interns more strings than this.
const LEAST_STRINGS: usize = 100;
const MAX_STRINGS: usize = 1 << 32;
/// So many of the table's keys are asked whether they are strings.
const N_ASKED: usize = 64;

/// The address of the table, if it keeps strings alive and is found; `name` is a string that is known to be in it.
pub fn table(reader: &Reader, name: usize) -> Option<usize> {
    // Before 3.12 the table keeps nothing: a string leaves it when its last reference goes.
    reader.heap.immortal?;
    let state = reader.interpreter();
    let offset = match OFFSET.load(Ordering::Relaxed) {
        NOT_THERE => return None,
        NOT_SEARCHED => {
            let found = search(reader, state, name);
            OFFSET.store(found.unwrap_or(NOT_THERE), Ordering::Relaxed);
            found?
        }
        offset => offset,
    };
    let table = reader.word(state + offset);
    (table != 0 && reader.type_of(table) == reader.known.dict).then_some(table)
}

fn search(reader: &Reader, state: usize, name: usize) -> Option<usize> {
    let mut memory = Probed::open()?;
    let mut page = [0; PAGE];
    let mut at = state;
    while at < state + MAX_STATE {
        let piece = page.get_mut(..PAGE - at % PAGE)?;
        if !memory.copy(at, piece) {
            return None;
        }
        for (number, word) in piece.chunks_exact(8).enumerate() {
            let word = usize::from_ne_bytes(word.try_into().ok()?);
            let may_be_object = word % 8 == 0
                && word >= PAGE
                && word >> ADDRESS_BITS == 0
                && !(state..at).contains(&word);
            if may_be_object && is_table(&mut memory, reader, word, name).unwrap_or(false) {
                return Some(at + number * 8 - state);
            }
        }
        at += piece.len();
    }
    None
}

/// Whether at an address is a live dict with itself under every string, and with this one; `None` if it cannot be read.
fn is_table(memory: &mut Probed, reader: &Reader, at: usize, name: usize) -> Option<bool> {
    if memory.word(at.checked_add(object::TYPE)?)? != reader.known.dict {
        return Some(false);
    }
    // The state also has dicts that were freed and are to be used again, and addresses of what is gone.
    let is_whole = memory.half(at)? != 0 && memory.word(at + object::DICT_VALUES)? == 0;
    let keys = memory.word(at + object::DICT_KEYS)?;
    let only_strings = memory.byte(keys.checked_add(dict_keys::KIND)?)? == 1;
    let index_log = memory.byte(keys + dict_keys::INDEX_LOG)?;
    let n_entries = memory.word(keys + dict_keys::N_ENTRIES)?;
    let is_large = (LEAST_STRINGS..MAX_STRINGS).contains(&n_entries);
    if !is_whole || !only_strings || !is_large || u32::from(index_log) >= ADDRESS_BITS {
        return Some(false);
    }
    let entries = keys.checked_add(dict_keys::INDICES + (1 << index_log))?;
    let (mut has_name, mut n_asked) = (false, 0);
    let mut some = [0; PAGE];
    for begin in (0..n_entries * 16).step_by(PAGE) {
        let some = some.get_mut(..PAGE.min(n_entries * 16 - begin))?;
        if !memory.copy(entries.checked_add(begin)?, some) {
            return None;
        }
        for entry in some.chunks_exact(16) {
            let (key, value) = entry.split_at(8);
            if key != value {
                return Some(false);
            }
            let key = usize::from_ne_bytes(key.try_into().ok()?);
            has_name |= key == name;
            if key != 0 && n_asked < N_ASKED {
                n_asked += 1;
                if memory.word(key.checked_add(object::TYPE)?)? != reader.known.unicode {
                    return Some(false);
                }
            }
        }
    }
    Some(has_name)
}

/// Strings that the table keeps for ever, with their positions there, as far as they are wanted. The others are mortal:
/// whoever else holds them keeps them, and the table does not count.
pub fn kept(
    reader: &Reader,
    table: usize,
    mut wanted: impl FnMut(usize) -> bool,
) -> Result<Column<(usize, u32)>, Full> {
    let mut strings = Column::new();
    let (mut position, mut has_room) = (0_u32, true);
    reader.dict_entries(table, |string, _| {
        if wanted(string) && reader.references(string).is_none() {
            has_room &= strings.push((string, position));
        }
        position = position.saturating_add(1);
    });
    if has_room { Ok(strings) } else { Err(Full) }
}

/// Keeps the walk from looking through the table when it comes upon it: the collector shows it from 3.14 on.
pub fn reserve<O: Output>(walk: &mut Walk<'_, O>, table: usize) -> Result<(), Full> {
    match walk.visited.mark(table) {
        Ok(_) => Ok(()),
        Err(_) => Err(Full),
    }
}

/// Adds the table, which was reserved, with references to these strings of it and to no other, so that it does not hold
/// what has another holder.
pub fn add<O: Output>(
    walk: &mut Walk<'_, O>,
    table: usize,
    strings: &Column<(usize, u32)>,
) -> Result<Handle, Full> {
    let handle = walk.visited.find(table as u64).ok_or(Full)?;
    walk.failed |= !walk.output.begin_with(handle);
    for (string, position) in strings.iter() {
        walk.edge(*string, Label::new(EdgeType::KeyOf, *position));
    }
    let reader = walk.reader;
    let type_number = walk.type_number(reader.known.dict);
    let tracked = reader.is_tracked(table);
    walk.failed |= !walk.output.end(Facts {
        type_number,
        bytes: bytes_of(reader, &walk.types[type_number as usize], table, true),
        extra: 0,
        usual_extra: 0,
        flags: if tracked { Objects::TRACKED } else { 0 },
    });
    O::run(walk)?;
    Ok(handle)
}
