//! The interpreter's table of interned strings. From 3.12 on it keeps some strings alive until the process exits, and no
//! module refers to it.
//!
//! The interpreter's state contains the table's address at an unknown offset. The first walk of a process searches the
//! state, through the kernel, which checks every address. The table is a dict whose keys are their own values, and
//! which contains the name of a variable that only Heaptide uses. If nothing matches, walks omit the table.

use std::sync::atomic::{AtomicUsize, Ordering};

use heaptide_capture::heap::{EdgeType, Label, Objects};

use super::column::Column;
use super::output::{Facts, Output};
use super::reader::{Reader, word_at};
use super::sizes::bytes_of;
use super::visited::Handle;
use super::walk::{Full, Walk};
use crate::cpython::memory::Probed;
use crate::cpython::offsets::{dict_keys, object};
use crate::cpython::references::Object;

/// Offset of the table's address in the interpreter's state.
static OFFSET: AtomicUsize = AtomicUsize::new(NOT_SEARCHED);
const NOT_SEARCHED: usize = usize::MAX;
const MISSING: usize = usize::MAX - 1;

/// More than the length of any interpreter's state; that of 3.15 has less than half of this.
const MAX_STATE: usize = 1 << 20;
const PAGE: usize = 4096;
/// No process has addresses with more bits.
const ADDRESS_BITS: u32 = 48;
/// The minimum number of strings in the table. The interpreter itself interns more.
const LEAST_STRINGS: usize = 100;
const MAX_STRINGS: usize = 1 << 32;
/// Keys of the table whose type is checked.
const N_CHECKED: usize = 64;

/// The table: a dict.
#[derive(Clone, Copy)]
pub struct Table(Object);

/// Returns the table if it keeps strings alive and can be found; `name` is a string that is known to be in it.
pub fn table(reader: &Reader, name: Object) -> Option<Table> {
    // Before 3.12 the table keeps nothing: a string is removed with its last reference.
    reader.heap.immortal?;
    let state = reader.interpreter();
    let offset = match OFFSET.load(Ordering::Relaxed) {
        MISSING => return None,
        NOT_SEARCHED => {
            let offset = search(reader, state, name);
            OFFSET.store(offset.unwrap_or(MISSING), Ordering::Relaxed);
            offset?
        }
        offset => offset,
    };
    // SAFETY: the state is alive, and has the table's address at this offset, as the search found.
    let table = unsafe { Object::at(word_at(state + offset)) }?;
    (reader.type_of(table) == reader.known.dict).then_some(Table(table))
}

fn search(reader: &Reader, state: usize, name: Object) -> Option<usize> {
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

/// Returns whether an address is that of a live dict of strings that are their own values and include this name; `None` if
/// it cannot be read.
fn is_table(memory: &mut Probed, reader: &Reader, at: usize, name: Object) -> Option<bool> {
    if memory.word(at.checked_add(object::TYPE)?)? != reader.known.dict.address() {
        return Some(false);
    }
    // The state also contains dicts that were freed for reuse, and addresses of freed objects.
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
    let (mut has_name, mut n_checked) = (false, 0);
    let mut piece = [0; PAGE];
    for begin in (0..n_entries * 16).step_by(PAGE) {
        let piece = piece.get_mut(..PAGE.min(n_entries * 16 - begin))?;
        if !memory.copy(entries.checked_add(begin)?, piece) {
            return None;
        }
        for entry in piece.chunks_exact(16) {
            let (key, value) = entry.split_at(8);
            if key != value {
                return Some(false);
            }
            let key = usize::from_ne_bytes(key.try_into().ok()?);
            has_name |= key == name.address();
            if key != 0 && n_checked < N_CHECKED {
                n_checked += 1;
                if memory.word(key.checked_add(object::TYPE)?)? != reader.known.unicode.address() {
                    return Some(false);
                }
            }
        }
    }
    Some(has_name)
}

/// Returns the wanted strings that the table keeps forever, with their positions there. The other
/// strings are mortal: the table does not own a reference to them.
pub fn kept(
    reader: &Reader,
    table: Table,
    mut wanted: impl FnMut(Object) -> bool,
) -> Result<Column<(Object, u32)>, Full> {
    let mut strings = Column::new();
    let (mut position, mut has_room) = (0_u32, true);
    let with = |string, _| {
        if wanted(string) && reader.references(string).is_none() {
            has_room &= strings.push((string, position));
        }
        position = position.saturating_add(1);
    };
    // SAFETY: the table is a dict.
    unsafe { reader.dict_entries(table.0, with) };
    if has_room { Ok(strings) } else { Err(Full) }
}

/// Prevents the walk from scanning the table, which the collector reports from 3.14 on.
pub fn reserve<O: Output>(walk: &mut Walk<'_, O>, table: Table) -> Result<(), Full> {
    match walk.visit(table.0) {
        Ok(_) => Ok(()),
        Err(_) => Err(Full),
    }
}

/// Adds the reserved table with references to these strings and to no others, so that it does not appear to keep strings
/// that other objects also refer to.
pub fn add<O: Output>(
    walk: &mut Walk<'_, O>,
    table: Table,
    strings: &Column<(Object, u32)>,
) -> Result<Handle, Full> {
    let handle = walk.handle_of(table.0).ok_or(Full)?;
    walk.failed |= !walk.output.begin_with(handle);
    for (string, position) in strings.iter() {
        walk.edge(Some(*string), Label::new(EdgeType::KeyOf, *position));
    }
    let reader = walk.reader;
    let type_number = walk.type_number(reader.known.dict);
    // SAFETY: the table is a dict, which has a collector's header.
    let (tracked, bytes) = unsafe {
        let entry = &walk.types[type_number as usize];
        (
            reader.is_tracked(table.0),
            bytes_of(reader, entry, table.0, true),
        )
    };
    walk.failed |= !walk.output.end(Facts {
        type_number,
        bytes,
        extra: 0,
        usual_extra: 0,
        flags: if tracked { Objects::TRACKED } else { 0 },
    });
    O::run(walk)?;
    Ok(handle)
}
