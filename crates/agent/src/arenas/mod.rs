//! Libraries with a bundled allocator, such as jemalloc or mimalloc.
//!
//! Such a library calls its allocator directly, so hooks in import slots do not see its blocks. Only the memory that the
//! allocator maps from the kernel is visible. So the library's own slots of `mmap` get a hook for this library. The stacks
//! of its mappings end with a frame *opaque arena of <library>*.
//!
//! jemalloc can call Heaptide for every block (see [`jemalloc`]). Then its blocks are recorded and its mappings are not,
//! because the same memory would be counted twice. The mappings of a library that is the program's `malloc` are not recorded
//! for the same reason.
//!
//! If a library imports the functions that allocators need, its file is searched once for a bundled allocator. Calls to
//! `malloc` do not become slower.
//!
//! Runs on: the thread that starts, stops or calls `dlsym`; the keeper. Allocates: bypassing the hooks. Locks: `ARENAS`, never
//! while the linker or a bundled allocator is called. During fork: `ARENAS` is held.

mod elf_file;
mod jemalloc;
pub mod python;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use heaptide_capture::{Code, Entry, Frame};

use crate::hooks::{self, HookMode};
use crate::host::locks::ForkMutex;
use crate::record::codes;
use crate::session;
use elf_file::ElfFile;
use jemalloc::Jemalloc;

/// The maximum number of libraries with their own hooks. The mappings of further libraries have no arena frame.
pub const N_LIBRARIES: usize = 8;
/// The number of hooks: one for each of these libraries, and one for the interpreter.
pub const N_HOOKS: usize = N_LIBRARIES + 1;
/// Smaller mappings of such a library do not come from its allocator, but are for example stacks of signal handlers.
const LEAST_BYTES: usize = 64 * 1024;
/// Constants that identify an allocator: its name in its own messages.
const SIGNS: [&str; 3] = ["mimalloc: ", "tcmalloc: ", "rpmalloc: "];
const JEMALLOC_SIGN: &str = "<jemalloc>";

/// The number of the arena frame, by library; 0 if the library's mappings are not recorded.
static CODES: [AtomicU32; N_LIBRARIES] = [const { AtomicU32::new(0) }; N_LIBRARIES];
pub static ARENAS: ForkMutex<Arenas> = ForkMutex::new(Arenas {
    hooks: Vec::new(),
    known: Vec::new(),
    hooked: Vec::new(),
});
/// Whether a thread is inspecting libraries.
static INSPECTING: AtomicBool = AtomicBool::new(false);

pub struct Arenas {
    /// Libraries with their own hooks, by the address of their program headers. The index is the library's number.
    hooks: Vec<usize>,
    /// Files that were searched before.
    known: Vec<(Candidate, Contents)>,
    /// Allocators that call Heaptide.
    hooked: Vec<Jemalloc>,
}

/// A loaded library that imports the functions an allocator needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Candidate {
    pub headers: usize,
    pub base: usize,
    pub start: usize,
    pub end: usize,
    pub path: Vec<u8>,
}

/// The allocators in the file of a library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Nothing,
    Allocator,
    /// A jemalloc with these functions.
    Jemalloc(jemalloc::Functions),
}

/// How to record a mapping of a library.
pub enum Treatment {
    Plain,
    /// With this arena frame.
    Below(Frame),
    /// Not recorded.
    Not,
}

/// Returns how to record a mapping of the library with this number.
pub fn treatment(number: usize, length: usize, flags: i32) -> Treatment {
    if number == python::PYTHON {
        return python::treatment(length, flags);
    }
    let anonymous = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
    if flags & anonymous != anonymous || length < LEAST_BYTES {
        return Treatment::Plain;
    }
    match CODES[number].load(Ordering::Relaxed) {
        0 => Treatment::Not,
        code => Treatment::Below(Frame {
            code,
            instruction: Frame::AT_START,
        }),
    }
}

/// The libraries that have their own hooks: the address of their program headers, and their number.
pub fn hooks() -> Vec<(usize, usize)> {
    let arenas = ARENAS.lock();
    let numbered = arenas.hooks.iter().enumerate();
    numbered
        .map(|(number, &headers)| (headers, number))
        .collect()
}

/// Forgets which libraries have their own hooks, because a session starts or a library was unloaded.
pub fn forget() {
    ARENAS.lock().hooks.clear();
}

/// Searches libraries for bundled allocators. Returns those whose slots of `mmap` must get their own hooks. The
/// installation of hooks may end during the search: `is_wanted` then returns `false`, and no hook may stay.
pub fn inspect(candidates: Vec<Candidate>, is_wanted: &dyn Fn() -> bool) -> HashSet<usize> {
    let mut chosen = HashSet::new();
    if candidates.is_empty() || INSPECTING.swap(true, Ordering::AcqRel) {
        // The other thread that is inspecting libraries may miss these; then their mappings have no arena frame.
        return chosen;
    }
    let interpreter = python::interpreter();
    for candidate in candidates {
        if ARENAS.lock().hooks.len() >= N_LIBRARIES {
            // Without its own hooks the mappings of a library are recorded, so its blocks must not be recorded as well.
            break;
        }
        let contains = |address: usize| (candidate.start..candidate.end).contains(&address);
        if contains(interpreter) {
            // Python bundles a mimalloc, which it uses in builds without a GIL; hooks of Python's allocators record its
            // blocks.
            continue;
        }
        let code = if contains(hooks::real_malloc()) {
            0
        } else {
            match contents_of(&candidate) {
                Contents::Nothing => continue,
                Contents::Jemalloc(functions) if hook(&candidate, functions, is_wanted) => 0,
                Contents::Allocator | Contents::Jemalloc(_) => name(&candidate.path),
            }
        };
        let mut arenas = ARENAS.lock();
        let number = arenas.hooks.len();
        if number < N_LIBRARIES && is_wanted() {
            CODES[number].store(code, Ordering::Release);
            arenas.hooks.push(candidate.headers);
            chosen.insert(candidate.headers);
        }
    }
    INSPECTING.store(false, Ordering::Release);
    chosen
}

/// Searches the file of a library, once.
fn contents_of(candidate: &Candidate) -> Contents {
    let known = {
        let arenas = ARENAS.lock();
        let mut known = arenas.known.iter();
        known
            .find(|known| known.0 == *candidate)
            .map(|known| known.1)
    };
    known.unwrap_or_else(|| {
        let contents = read_file(candidate).unwrap_or(Contents::Nothing);
        ARENAS.lock().known.push((candidate.clone(), contents));
        contents
    })
}

fn read_file(candidate: &Candidate) -> Option<Contents> {
    let path: &[u8] = match candidate.path.is_empty() {
        true => b"/proc/self/exe",
        false => &candidate.path,
    };
    let file = ElfFile::open(path)?;
    // A library may contain several allocators and choose one at run time. Then Heaptide records only its mappings.
    if SIGNS.iter().any(|sign| file.has_constant(sign.as_bytes())) {
        return Some(Contents::Allocator);
    }
    if !file.has_constant(JEMALLOC_SIGN.as_bytes()) {
        return Some(Contents::Nothing);
    }
    let functions = jemalloc::Functions::find(&file, candidate.base);
    Some(functions.map_or(Contents::Allocator, Contents::Jemalloc))
}

/// Makes a jemalloc call Heaptide for its blocks. Returns `false` if that is not possible.
fn hook(
    candidate: &Candidate,
    functions: jemalloc::Functions,
    is_wanted: &dyn Fn() -> bool,
) -> bool {
    let is_hooked = |arenas: &Arenas| {
        let mut hooked = arenas.hooked.iter();
        hooked.any(|jemalloc| jemalloc.functions() == functions)
    };
    if is_hooked(&ARENAS.lock()) {
        // The installed hooks may be those of the parent, in a forked child, or those of another mode.
        remove();
    }
    match Jemalloc::hook(candidate, functions, HookMode::installed()) {
        Some(jemalloc) => {
            {
                let mut arenas = ARENAS.lock();
                if is_wanted() {
                    arenas.hooked.push(jemalloc);
                    return true;
                }
            }
            // The thread that ended the installation may have called `remove` before this hook was listed.
            jemalloc.unhook();
            false
        }
        None => false,
    }
}

/// Describes the arena frame of a library in the registry. Returns its number.
fn name(path: &[u8]) -> u32 {
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let file: &[u8] = if file.is_empty() {
        b"the program"
    } else {
        file
    };
    let id = codes::next_id();
    session::note(&Entry::Code(Code {
        id,
        first_line: 0,
        name: &[b"opaque arena of ", file].concat(),
        qualifier: b"",
        file: path,
        line_table: &[],
    }));
    id
}

/// Removes the hooks of all allocators that call Heaptide.
pub fn remove() {
    let hooked = std::mem::take(&mut ARENAS.lock().hooked);
    for jemalloc in hooked {
        jemalloc.unhook();
    }
}

/// Resets `INSPECTING` in a forked child, where the thread that was inspecting libraries does not exist.
pub fn after_fork_in_child() {
    INSPECTING.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_for_which_there_is_no_hook_is_not_searched() {
        ARENAS.lock().hooks = vec![1; N_LIBRARIES];
        let candidate = Candidate {
            headers: 2,
            base: 0,
            start: 0x1000,
            end: 0x2000,
            path: b"/proc/self/exe".to_vec(),
        };
        let chosen = inspect(vec![candidate], &|| true);
        assert!(chosen.is_empty() && ARENAS.lock().known.is_empty());
        forget();
    }
}
