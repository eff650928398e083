//! Libraries that bring an allocator of their own, linked into them: jemalloc, mimalloc and the like.
//!
//! Such a library calls its allocator directly, so no import slot leads to us. What can be seen is the memory that the
//! allocator takes from the kernel: the library's own slots of `mmap` get a hook that knows whose slot it is, and what
//! it maps is recorded below a frame of its own, *opaque arena of <library>*.
//!
//! A jemalloc can be asked to call us for every block (see [`jemalloc`]). Then its blocks are recorded, and what it maps
//! is not, as for the C library's own allocator: the same memory would be counted twice. The same holds for a library
//! that is the program's `malloc`.
//!
//! Whether a library has an allocator is looked up in its file, once, if it imports what allocators need. Calls to
//! `malloc` cost nothing more for all this.
//!
//! Runs on: the thread that starts, stops or calls `dlsym`; the keeper. Allocates: past the hooks. Locks: `ARENAS`, never
//! while the linker or an allocator is called. During fork: `ARENAS` is held.

mod elf_file;
mod jemalloc;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use heaptide_capture::{Code, Entry, Frame};

use crate::hooks::{self, HookMode};
use crate::host::locks::ForkMutex;
use crate::record::codes;
use crate::{libraries, session};
use elf_file::ElfFile;
use jemalloc::Jemalloc;

/// So many libraries can have a hook of their own at a time; a further one's maps stay without a name.
pub const N_LIBRARIES: usize = 8;
/// Smaller maps of such a library are not its allocator's: stacks for signal handlers, for example.
const LEAST_BYTES: usize = 64 * 1024;
/// What each of these allocators says of itself in its messages.
const SIGNS: [&str; 3] = ["mimalloc: ", "tcmalloc: ", "rpmalloc: "];
const JEMALLOC_SIGN: &str = "<jemalloc>";

/// By hook: the number that frames name the arena by; 0 if what is mapped is not recorded.
static CODES: [AtomicU32; N_LIBRARIES] = [const { AtomicU32::new(0) }; N_LIBRARIES];
pub static ARENAS: ForkMutex<Arenas> = ForkMutex::new(Arenas {
    hooks: Vec::new(),
    known: Vec::new(),
    hooked: Vec::new(),
});
/// Somebody is looking at libraries.
static INSPECTING: AtomicBool = AtomicBool::new(false);

pub struct Arenas {
    /// Libraries with a hook of their own, by their program headers; the place is the hook's number.
    hooks: Vec<usize>,
    /// What was found in files before.
    known: Vec<(Candidate, Contents)>,
    /// Allocators that call us.
    hooked: Vec<Jemalloc>,
}

/// A loaded library that imports what an allocator needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Candidate {
    pub headers: usize,
    pub base: usize,
    pub start: usize,
    pub end: usize,
    pub path: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Nothing,
    Allocator,
    /// Where its functions are.
    Jemalloc(jemalloc::Functions),
}

/// How a map that a library made is to be recorded.
pub enum Treatment {
    Plain,
    Below(Frame),
    Not,
}

/// What to do with a map made through the hook with this number.
pub fn treatment(number: usize, length: usize, flags: i32) -> Treatment {
    let is_own = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
    if flags & is_own != is_own || length < LEAST_BYTES {
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

/// The libraries that have hooks of their own, by their program headers, each with its number.
pub fn hooks() -> Vec<(usize, usize)> {
    let arenas = ARENAS.lock();
    let numbered = arenas.hooks.iter().enumerate();
    numbered
        .map(|(number, &headers)| (headers, number))
        .collect()
}

/// A session begins, or addresses may mean something else: no library has a hook of its own.
pub fn forget() {
    ARENAS.lock().hooks.clear();
}

/// Looks at libraries that were just found. Returns those whose slots of `mmap` are to get hooks of their own.
/// `is_wanted` tells whether what they are found for goes on: it may end meanwhile, and then nothing of it may stay.
pub fn inspect(candidates: Vec<Candidate>, is_wanted: &dyn Fn() -> bool) -> HashSet<usize> {
    let mut chosen = HashSet::new();
    if candidates.is_empty() || INSPECTING.swap(true, Ordering::AcqRel) {
        // Whoever is looking already may miss these: their maps stay without a name.
        return chosen;
    }
    let interpreter = libraries::definition(c"Py_IsInitialized");
    for candidate in candidates {
        let contains = |address: usize| (candidate.start..candidate.end).contains(&address);
        if contains(interpreter) {
            // Python has a mimalloc, which it uses in builds without a GIL: its blocks have names of their own.
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

/// What the file of a library tells, looked up once.
fn contents_of(candidate: &Candidate) -> Contents {
    let known = {
        let arenas = ARENAS.lock();
        let mut known = arenas.known.iter();
        known
            .find(|known| known.0 == *candidate)
            .map(|known| known.1)
    };
    known.unwrap_or_else(|| {
        let found = read_file(candidate).unwrap_or(Contents::Nothing);
        ARENAS.lock().known.push((candidate.clone(), found));
        found
    })
}

fn read_file(candidate: &Candidate) -> Option<Contents> {
    let path: &[u8] = match candidate.path.is_empty() {
        true => b"/proc/self/exe",
        false => &candidate.path,
    };
    let file = ElfFile::open(path)?;
    // A library may have several, of which it chooses one: then all that can be told is what they map together.
    if SIGNS.iter().any(|sign| file.has_constant(sign.as_bytes())) {
        return Some(Contents::Allocator);
    }
    if !file.has_constant(JEMALLOC_SIGN.as_bytes()) {
        return Some(Contents::Nothing);
    }
    let functions = jemalloc::Functions::find(&file, candidate.base);
    Some(functions.map_or(Contents::Allocator, Contents::Jemalloc))
}

/// Has a jemalloc call us for its blocks. `false`: it does not.
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
        // In a forked child the parent's hooks are still there, and those of another kind may have been.
        remove();
    }
    match Jemalloc::hook(
        &candidate.path,
        candidate.base,
        functions,
        HookMode::installed(),
    ) {
        Some(jemalloc) => {
            {
                let mut arenas = ARENAS.lock();
                if is_wanted() {
                    arenas.hooked.push(jemalloc);
                    return true;
                }
            }
            // Whoever ended it may have been here before us, and found nothing to remove.
            jemalloc.unhook();
            false
        }
        None => false,
    }
}

/// Describes the frame below which the maps of a library stand.
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

/// Allocators no longer call us.
pub fn remove() {
    let hooked = std::mem::take(&mut ARENAS.lock().hooked);
    for jemalloc in hooked {
        jemalloc.unhook();
    }
}

/// In a forked child, where whoever was looking does not exist.
pub fn after_fork_in_child() {
    INSPECTING.store(false, Ordering::Release);
}
