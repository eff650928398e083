//! Code objects by number: each is described once in the registry, and frames name it by that number.
//!
//! The number is found by the code object's address, which is only safe while the object lives. So the deallocator of
//! the code type is wrapped: when a known code object dies its address is struck out and [`n_deaths`] moves, which
//! makes every thread drop what it remembers by address. A code object that is just dying is never read.
//!
//! Runs on: any thread, outside the hot path. Allocates: past the hooks. Locks: `CODES`, held
//! across a fork. During fork/exit: a child's session begins with an empty list.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heaptide_capture::{Code, Entry, Lost, wire};

use crate::cpython::line_table::append_lines;
use crate::cpython::offsets::TypeField;
use crate::cpython::{CodeBuffers, Layout, Symbols, read_code};
use crate::host::locks::ForkMutex;
use crate::record::threads;
use crate::session;

/// What frames show whose code could not be read. No code object gets this number.
const UNKNOWN: u32 = 0;
/// Not a function of anybody's: the frame that 3.13 and later put between a class and its `__init__`.
pub const NOBODY: u32 = u32::MAX;

/// The next free number. Libraries take theirs here, too.
static NEXT_ID: AtomicU32 = AtomicU32::new(UNKNOWN + 1);
static N_DEATHS: AtomicU64 = AtomicU64::new(0);
/// Those of the session.
pub static CODES: ForkMutex<Option<Codes>> = ForkMutex::new(None);
/// Those that the accounts of jobs know, which keep their texts themselves.
pub static JOB_CODES: ForkMutex<Option<Codes>> = ForkMutex::new(None);
/// The type's own deallocator while ours stands in its place; 0 otherwise.
static REAL_DEALLOC: AtomicUsize = AtomicUsize::new(0);

pub struct Codes {
    by_address: HashMap<usize, u32>,
    /// Programs that compile the same text again and again would fill the file otherwise.
    by_content: HashMap<u64, u32>,
    /// Objects whose deallocator is running.
    dying: Vec<usize>,
    buffers: Box<CodeBuffers>,
    lines: Vec<u8>,
}

/// How many code objects that are known by address have died so far.
#[inline(always)]
pub fn n_deaths() -> u64 {
    N_DEATHS.load(Ordering::Relaxed)
}

/// A number that nothing in this capture has.
pub fn next_id() -> u32 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Forgets all numbers, for a new capture or new accounts. Numbers begin anew if nobody else uses them.
pub fn reset(table: &ForkMutex<Option<Codes>>) {
    clear(table);
    if CODES.lock().is_none() && JOB_CODES.lock().is_none() {
        NEXT_ID.store(UNKNOWN + 1, Ordering::Relaxed);
    }
    *table.lock() = Some(Codes {
        by_address: HashMap::new(),
        by_content: HashMap::new(),
        dying: Vec::new(),
        buffers: Box::new(CodeBuffers::new()),
        lines: Vec::new(),
    });
}

/// Lets go of what was remembered.
pub fn clear(table: &ForkMutex<Option<Codes>>) {
    *table.lock() = None;
    N_DEATHS.fetch_add(1, Ordering::Relaxed);
}

/// The number of the code object at `address`, which a frame of the calling thread refers to.
pub fn id_of(layout: &Layout, address: usize) -> u32 {
    id_and_text(&CODES, layout, address, |code| {
        session::note(&Entry::Code(*code));
    })
}

/// The same; what is to be done with the texts of a code object that has not been met before is the caller's choice.
pub fn id_and_text(
    table: &ForkMutex<Option<Codes>>,
    layout: &Layout,
    address: usize,
    is_new: impl FnOnce(&Code),
) -> u32 {
    let mut codes = table.lock();
    let Some(codes) = codes.as_mut() else {
        return UNKNOWN;
    };
    if let Some(&id) = codes.by_address.get(&address) {
        return id;
    }
    if codes.dying.contains(&address) {
        session::count_lost(Lost::UnreadableCode, 1);
        return UNKNOWN;
    }
    // SAFETY: a live frame of this thread holds a reference to the code object, which is not dying; its texts and
    // tables never change.
    let Ok(text) = (unsafe { read_code(layout, address, &mut codes.buffers) }) else {
        session::count_lost(Lost::UnreadableCode, 1);
        return UNKNOWN;
    };
    if text.name.utf8 == b"__init__" && text.filename.utf8 == b"__init__" {
        codes.by_address.insert(address, NOBODY);
        return NOBODY;
    }
    // SAFETY: as above; the slice is not used beyond this function.
    let line_table = unsafe { text.linetable.as_slice() };
    let mut content = wire::checksum(line_table) ^ (text.first_line as u64).rotate_left(17);
    for part in [text.name.utf8, text.qualname.utf8, text.filename.utf8] {
        content = (content ^ wire::checksum(part))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31);
    }
    let id = match codes.by_content.get(&content) {
        Some(&id) => id,
        None => {
            let id = next_id();
            codes.by_content.insert(content, id);
            codes.lines.clear();
            append_lines(layout, line_table, &mut codes.lines);
            is_new(&Code {
                id,
                first_line: text.first_line,
                name: text.name.utf8,
                // The interpreter builds it so; a hand-made code object that differs keeps its name.
                qualifier: text
                    .qualname
                    .utf8
                    .strip_suffix(text.name.utf8)
                    .unwrap_or_default(),
                file: text.filename.utf8,
                line_table: &codes.lines,
            });
            id
        }
    };
    codes.by_address.insert(address, id);
    id
}

/// Puts our deallocator before the code type's own.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn watch_deaths(symbols: &Symbols) {
    let place = (symbols.code_type + TypeField::Dealloc as usize) as *const AtomicUsize;
    // SAFETY: `PyCode_Type` is a static type object in writable memory; the GIL keeps others from reading it while a
    // code object is freed.
    let place = unsafe { &*place };
    let present = place.load(Ordering::Relaxed);
    if present != on_code_death as *const () as usize {
        REAL_DEALLOC.store(present, Ordering::Release);
        place.store(on_code_death as *const () as usize, Ordering::Release);
    }
}

/// # Safety
/// As [`watch_deaths`].
pub unsafe fn stop_watching_deaths(symbols: &Symbols) {
    // SAFETY: as in `watch_deaths`.
    let place =
        unsafe { &*((symbols.code_type + TypeField::Dealloc as usize) as *const AtomicUsize) };
    let real = REAL_DEALLOC.load(Ordering::Acquire);
    // If somebody else has wrapped ours since, it must stay: it then only passes calls on.
    if real != 0 && place.load(Ordering::Relaxed) == on_code_death as *const () as usize {
        place.store(real, Ordering::Release);
    }
}

/// Stands in the place of the deallocator of code objects.
///
/// # Safety
/// Called by the interpreter alone, as it would call that: with the GIL, with a code object that nobody refers to any more.
unsafe extern "C" fn on_code_death(object: *mut c_void) {
    let address = object as usize;
    strike_out(address, true);
    // SAFETY: `watch_deaths` stored the type's own deallocator before ours could be called.
    let real: unsafe extern "C" fn(*mut c_void) =
        unsafe { std::mem::transmute(REAL_DEALLOC.load(Ordering::Acquire)) };
    // SAFETY: called as the interpreter called us.
    unsafe { real(object) };
    strike_out(address, false);
}

fn strike_out(address: usize, begins: bool) {
    // What happens here is not the program's; recorded, it would ask for the lock that is held.
    let _unrecorded = threads::Unrecorded::begin();
    for table in [&CODES, &JOB_CODES] {
        let mut codes = table.lock();
        let Some(codes) = codes.as_mut() else {
            continue;
        };
        if begins {
            codes.dying.push(address);
        } else if let Some(place) = codes.dying.iter().rposition(|&dying| dying == address) {
            codes.dying.swap_remove(place);
        }
        if codes.by_address.remove(&address).is_some() {
            N_DEATHS.fetch_add(1, Ordering::Release);
        }
    }
}
