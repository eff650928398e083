//! Arenas of Python's object allocator.
//!
//! The allocator puts objects of at most 512 bytes into arenas. Unless a session records objects, it does not see these
//! objects, only the mapping of each arena. The line that happens to need the arena is not the line that fills it. So
//! the stack of an arena's mapping ends with a separate frame, which reports recognize by its file.
//!
//! The hook that adds the frame is only in the interpreter's own slots of `mmap`. So an arena is a private anonymous mapping
//! of the arena size that the interpreter requests. The interpreter maps nothing else like that: its data stacks are
//! smaller, and Python's `mmap` module maps shared memory by default.
//!
//! Runs on: the thread that starts a session or traces jobs. Allocates: bypassing the hooks. Locks: none.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use heaptide_capture::{Code, Entry, Frame, PYTHON_ARENA_FILE, PYTHON_ARENA_NAME};

use super::{N_LIBRARIES, Treatment};
use crate::record::codes;
use crate::{libraries, session};

/// The index of the interpreter's hooks. Smaller indices are libraries with a bundled allocator.
pub const PYTHON: usize = N_LIBRARIES;

/// The size of an arena since Python 3.10.
const ARENA_BYTES: usize = 1 << 20;
/// The size of an arena in builds of Python 3.15 and later that use huge pages.
const HUGE_ARENA_BYTES: usize = 2 << 20;

/// The number of the arena frame; 0 before the first session.
static CODE: AtomicU32 = AtomicU32::new(0);
/// An address in the library or executable that contains the interpreter.
static INTERPRETER: AtomicUsize = AtomicUsize::new(0);

/// Finds the interpreter, and describes the arena frame in the registry of the session that starts.
pub fn prepare() {
    let interpreter = libraries::definition(c"Py_IsInitialized");
    INTERPRETER.store(interpreter, Ordering::Release);
    let id = codes::next_id();
    session::note(&Entry::Code(Code {
        id,
        first_line: 0,
        name: PYTHON_ARENA_NAME.as_bytes(),
        qualifier: b"",
        file: PYTHON_ARENA_FILE.as_bytes(),
        line_table: &[],
    }));
    CODE.store(id, Ordering::Release);
}

/// The number of the arena frame, by which a tally recognizes arenas.
pub fn codes() -> Vec<u32> {
    vec![CODE.load(Ordering::Acquire)]
}

/// An address in the library or executable that contains the interpreter; 0 before the first session.
pub fn interpreter() -> usize {
    INTERPRETER.load(Ordering::Acquire)
}

/// Returns how to record a mapping of the interpreter.
pub fn treatment(length: usize, flags: i32) -> Treatment {
    let code = CODE.load(Ordering::Relaxed);
    let is_arena = is_arena(length, flags);
    if code == 0 || !is_arena {
        return Treatment::Plain;
    }
    Treatment::Below(Frame {
        code,
        instruction: Frame::AT_START,
    })
}

fn is_arena(length: usize, flags: i32) -> bool {
    let base_flags = flags & !libc::MAP_HUGETLB;
    base_flags == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
        && matches!(length, ARENA_BYTES | HUGE_ARENA_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arena_is_a_private_anonymous_mapping_of_the_allocators_size() {
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        assert!(is_arena(1 << 20, private));
        assert!(is_arena(2 << 20, private | libc::MAP_HUGETLB));
        assert!(!is_arena(1 << 14, private), "a data stack");
        assert!(!is_arena(1 << 20, libc::MAP_SHARED | libc::MAP_ANONYMOUS));
        assert!(!is_arena(1 << 20, libc::MAP_PRIVATE), "a file");
        assert!(!is_arena(1 << 20, private | libc::MAP_FIXED));
    }
}
