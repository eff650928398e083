//! Numbers of code objects: the registry describes each code object once, and frames refer to it by number.
//!
//! The number is found by the code object's address, which is valid only while the object is alive. So this module wraps the
//! deallocator of the code type: when a known code object is freed, its address is removed and [`n_deaths`] changes. Then
//! every thread drops its cached addresses. A code object whose deallocator is running is never read.
//!
//! Runs on: any thread, outside the hot path. Allocates: bypassing the hooks. Locks: `CODES` and `JOB_CODES`, held across a
//! fork. During fork/exit: a child's session begins with an empty list.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heaptide_capture::{Code, Entry, Frame, Lost, wire};

use crate::cpython::line_table::append_lines;
use crate::cpython::offsets::TypeField;
use crate::cpython::{CodeBuffers, Layout, Symbols, read_code};
use crate::host::locks::ForkMutex;
use crate::record::threads;
use crate::session;

/// Used for every code object that could not be read.
const UNKNOWN: u32 = 0;
/// Used for code objects whose frames are not written: the shim between a class and its `__init__`, from 3.13 on.
pub const NOT_WRITTEN: u32 = u32::MAX;

/// The next free number. Libraries also get numbers from it.
static NEXT_ID: AtomicU32 = AtomicU32::new(UNKNOWN + 1);
static N_DEATHS: AtomicU64 = AtomicU64::new(0);
/// The code objects of the session.
pub static CODES: ForkMutex<Option<Codes>> = ForkMutex::new(None);
/// The code objects in the accounts of jobs. The accounts keep the texts.
pub static JOB_CODES: ForkMutex<Option<Codes>> = ForkMutex::new(None);
/// The type's own deallocator, once it has been replaced; 0 before.
static REAL_DEALLOC: AtomicUsize = AtomicUsize::new(0);
/// Whether [`on_code_death`] is installed, perhaps below the function of another tool.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

pub struct Codes {
    by_address: HashMap<usize, u32>,
    /// Equal code objects share a number, so a program that compiles the same source repeatedly does not fill the file.
    by_content: HashMap<u64, u32>,
    /// Code objects whose deallocator is running.
    dying: Vec<usize>,
    buffers: Box<CodeBuffers>,
    lines: Vec<u8>,
    /// The number of [`CUT_NAME`]; [`UNKNOWN`] until a stack is cut.
    cut: u32,
}

/// The name of the frame that replaces the outer frames of a stack that is too deep.
const CUT_NAME: &str = "<stack cut: outer frames not recorded>";

/// Returns a counter that changes when a known code object is freed or a table is dropped.
#[inline(always)]
pub fn n_deaths() -> u64 {
    N_DEATHS.load(Ordering::Relaxed)
}

/// Returns a number that is unique in this capture.
pub fn next_id() -> u32 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Forgets all numbers, for a new capture or new accounts. Numbers restart if the other table is not in use.
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
        cut: UNKNOWN,
    });
}

/// Drops a table.
pub fn clear(table: &ForkMutex<Option<Codes>>) {
    *table.lock() = None;
    N_DEATHS.fetch_add(1, Ordering::Relaxed);
}

/// The number of the code object at `address`.
///
/// # Safety
/// A live frame of the calling thread refers to the code object, and `layout` fits the interpreter.
pub unsafe fn id_of(layout: &Layout, address: usize) -> u32 {
    // SAFETY: passed on from the caller.
    unsafe {
        id_and_text(&CODES, layout, address, |code| {
            session::note(&Entry::Code(*code));
        })
    }
}

/// Does the same as [`id_of`] for any table. `on_new` receives the texts of a code object that is not in the table yet.
///
/// # Safety
/// As for [`id_of`].
pub unsafe fn id_and_text(
    table: &ForkMutex<Option<Codes>>,
    layout: &Layout,
    address: usize,
    on_new: impl FnOnce(&Code),
) -> u32 {
    let mut codes = table.lock();
    let Some(codes) = codes.as_mut() else {
        return UNKNOWN;
    };
    if let Some(&id) = codes.by_address.get(&address) {
        return id;
    }
    // Threads cache the number, even `UNKNOWN`, until `remove` finds the address in this table. Without the entry, they
    // would use it for the next code object at the same address.
    codes.by_address.insert(address, UNKNOWN);
    if codes.dying.contains(&address) {
        session::count_lost(Lost::UnreadableCode, 1);
        return UNKNOWN;
    }
    // SAFETY: a live frame of this thread holds a reference to the code object, and its deallocator is not running. Its texts
    // and tables never change.
    let Ok(text) = (unsafe { read_code(layout, address, &mut codes.buffers) }) else {
        session::count_lost(Lost::UnreadableCode, 1);
        return UNKNOWN;
    };
    if text.name.utf8 == b"__init__" && text.filename.utf8 == b"__init__" {
        codes.by_address.insert(address, NOT_WRITTEN);
        return NOT_WRITTEN;
    }
    // SAFETY: the code object stays alive during this call, for the same reason, and the slice is not used after it.
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
            on_new(&Code {
                id,
                first_line: text.first_line,
                name: text.name.utf8,
                // The interpreter ends every qualified name with the name; a hand-made one that differs has no qualifier.
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

/// The frame that replaces the outer frames of a stack that is too deep.
#[cold]
#[inline(never)]
pub fn cut_frame() -> Frame {
    let mut codes = CODES.lock();
    let code = codes.as_mut().map_or(UNKNOWN, |codes| {
        if codes.cut == UNKNOWN {
            codes.cut = next_id();
            session::note(&Entry::Code(Code {
                id: codes.cut,
                first_line: 0,
                name: CUT_NAME.as_bytes(),
                qualifier: &[],
                file: &[],
                line_table: &[],
            }));
        }
        codes.cut
    });
    Frame {
        code,
        instruction: Frame::AT_START,
    }
}

/// The `tp_dealloc` field of the code type.
///
/// # Safety
/// The calling thread holds the GIL.
unsafe fn deallocator(symbols: &Symbols) -> &'static AtomicUsize {
    // SAFETY: `PyCode_Type` is a static type object in writable memory, and the field is an aligned word. The interpreter
    // reads it only with the GIL, which the caller holds.
    unsafe { &*((symbols.code_type + TypeField::Dealloc as usize) as *const AtomicUsize) }
}

/// Replaces the deallocator of the code type.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn hook_deallocator(symbols: &Symbols) {
    // SAFETY: the caller holds the GIL.
    install(unsafe { deallocator(symbols) });
}

fn install(field: &AtomicUsize) {
    // If another tool wrapped `on_code_death` in an earlier recording, the tool's function still calls it. The tool's
    // function must not become the real deallocator: each would call the other for ever.
    if !IS_INSTALLED.swap(true, Ordering::Relaxed) {
        REAL_DEALLOC.store(field.load(Ordering::Relaxed), Ordering::Release);
        field.store(on_code_death as *const () as usize, Ordering::Release);
    }
}

/// Restores the deallocator of the code type.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn unhook_deallocator(symbols: &Symbols) {
    // SAFETY: the caller holds the GIL.
    uninstall(unsafe { deallocator(symbols) });
}

fn uninstall(field: &AtomicUsize) {
    // If another tool has wrapped `on_code_death` meanwhile, the tool's function must stay installed. `on_code_death`
    // then only forwards calls.
    if field.load(Ordering::Relaxed) == on_code_death as *const () as usize {
        field.store(REAL_DEALLOC.load(Ordering::Acquire), Ordering::Release);
        IS_INSTALLED.store(false, Ordering::Relaxed);
    }
}

/// Replaces the deallocator of code objects.
///
/// # Safety
/// Only the interpreter calls it, with the GIL held and with a code object that has no references any more.
unsafe extern "C" fn on_code_death(object: *mut c_void) {
    let address = object as usize;
    remove(address, true);
    // SAFETY: `hook_deallocator` stored the type's own deallocator before it installed this function.
    let real: unsafe extern "C" fn(*mut c_void) =
        unsafe { std::mem::transmute(REAL_DEALLOC.load(Ordering::Acquire)) };
    // SAFETY: the interpreter called this function with the same argument and under the same conditions.
    unsafe { real(object) };
    remove(address, false);
}

/// Removes a code object from both tables, before (`begins`) and after its deallocator runs.
fn remove(address: usize, begins: bool) {
    // Allocations in here belong to Heaptide. Recording them would need the lock that is held.
    let _unrecorded = threads::Unrecorded::begin();
    for table in [&CODES, &JOB_CODES] {
        let mut codes = table.lock();
        let Some(codes) = codes.as_mut() else {
            continue;
        };
        if begins {
            codes.dying.push(address);
        } else if let Some(index) = codes.dying.iter().rposition(|&dying| dying == address) {
            codes.dying.swap_remove(index);
        }
        if codes.by_address.remove(&address).is_some() {
            N_DEATHS.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::tables;

    #[test]
    fn function_of_a_tool_that_wrapped_the_deallocator_never_becomes_the_real_one() {
        const REAL: usize = 0x1000;
        const TOOL: usize = 0x2000;
        let own = on_code_death as *const () as usize;
        let field = AtomicUsize::new(REAL);
        install(&field);
        assert_eq!(field.load(Ordering::Relaxed), own);
        // The tool calls what it found, and stays when the recording stops and another one starts.
        field.store(TOOL, Ordering::Relaxed);
        uninstall(&field);
        install(&field);
        assert_eq!(field.load(Ordering::Relaxed), TOOL);
        assert_eq!(REAL_DEALLOC.load(Ordering::Relaxed), REAL);
        // The tool restores what it found.
        field.store(own, Ordering::Relaxed);
        uninstall(&field);
        assert_eq!(field.load(Ordering::Relaxed), REAL);
        // A function that a tool installed while nothing was recorded becomes the real one.
        field.store(TOOL, Ordering::Relaxed);
        install(&field);
        assert_eq!(REAL_DEALLOC.load(Ordering::Relaxed), TOOL);
    }

    #[test]
    fn unknown_number_is_forgotten_when_its_code_object_is_freed() {
        let address = 0x1000;
        reset(&CODES);
        remove(address, true);
        let n_before = n_deaths();
        // SAFETY: a code object that is being freed is not read.
        let number = unsafe { id_of(&tables::v3_12::LAYOUT, address) };
        assert_eq!(number, UNKNOWN);
        remove(address, false);
        assert!(n_deaths() > n_before, "threads would keep the number");
    }
}
