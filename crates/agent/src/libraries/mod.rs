//! All loaded libraries, and those loaded later: calls of theirs to hooked functions come to us.
//!
//! Each library has slots that hold the addresses of the functions it imports ([`slots`]). We walk the libraries, change
//! the slots of hooked functions, and later change them back. Nothing is preloaded and no code is modified, so recording
//! can begin and end in a running process, and after the end no trace is left.
//!
//! **New libraries** are found without getting between a program and `dlopen`, whose search depends on who calls it:
//! whoever loads a library at run time asks `dlsym` for something in it next. `dlsym` is hooked by a jump that leaves the
//! caller's return address in place, and looks for libraries not seen yet; the keeper looks too, every few milliseconds.
//!
//! Runs on: the thread that starts, stops or calls `dlsym`; the keeper. Allocates: past the hooks. Locks: `LOADER`
//! around the linker's own lock. During fork: `LOADER` is held across it, so that no child inherits the linker's lock.

mod definition;
mod slots;

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::definition::definition;
use self::slots::Library;
use crate::host::locks::ForkMutex;
use crate::host::sys;
use crate::native::modules;
use crate::record::threads;
use crate::{arenas, hooks};

/// Taken before anything that takes the linker's lock. Holds which libraries are done, by their program headers.
pub static LOADER: ForkMutex<Option<HashSet<usize>>> = ForkMutex::new(None);
/// The number of the installation whose hooks are in place; 0: none are.
static INSTALLATION: AtomicU64 = AtomicU64::new(0);
static N_INSTALLATIONS: AtomicU64 = AtomicU64::new(0);
/// How often libraries were loaded and unloaded when we looked last.
static LOADS_SEEN: AtomicU64 = AtomicU64::new(0);
static UNLOADS_SEEN: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    /// For the installation with this number.
    Install(u64),
    Remove,
}

/// Changes the slots of all libraries.
pub fn install() {
    *LOADER.lock() = Some(HashSet::new());
    arenas::forget();
    let number = N_INSTALLATIONS.fetch_add(1, Ordering::AcqRel) + 1;
    INSTALLATION.store(number, Ordering::Release);
    patch(number);
}

/// Changes them back. Another thread may be about to change some for the installation that ends here: it asks
/// [`is_current`] with the lock held that we take for changing back, so it is either before us or leaves them alone.
pub fn remove() {
    INSTALLATION.store(0, Ordering::Release);
    // A library that is just being loaded holds nothing of ours, so there is nobody to wait for.
    walk(Task::Remove, &HashSet::new(), (0, 0));
}

/// Changes the slots of libraries that were loaded since the last look.
pub fn patch_new() {
    let installation = INSTALLATION.load(Ordering::Acquire);
    if installation == 0 {
        return;
    }
    let (loads, unloads) = counters();
    if loads != LOADS_SEEN.load(Ordering::Acquire)
        || unloads != UNLOADS_SEEN.load(Ordering::Acquire)
    {
        patch(installation);
    }
}

/// Whether the hooks of this installation are still wanted.
fn is_current(installation: u64) -> bool {
    INSTALLATION.load(Ordering::Acquire) == installation
}

/// The linker shows a library while it is still relocating it, and would stumble over pages that we protect again. So:
/// note which libraries there are, wait until nobody is inside `dlopen`, and change those of them that are still there.
fn patch(installation: u64) {
    let (present, counters) = look();
    wait_for_loads();
    let task = Task::Install(installation);
    let candidates = walk(task, &present, counters);
    // Those that have an allocator of their own get other hooks in a second walk: meanwhile their files were read.
    let chosen = arenas::look_at(candidates, &|| is_current(installation));
    if !chosen.is_empty() {
        if let Some(done) = LOADER.lock().as_mut() {
            done.retain(|headers| !chosen.contains(headers));
        }
        walk(task, &chosen, counters);
    }
}

/// Returns when no other thread is loading libraries: `dlsym` takes the lock that `dlopen` holds from beginning to end.
/// Nothing of ours is locked meanwhile, because what a library does when it is loaded is not in our hands.
fn wait_for_loads() {
    // SAFETY: looking a symbol up has no preconditions; this one exists, so no error is left behind.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlsym".as_ptr()) };
}

/// Called by the `dlsym` hook before every look-up, with its arguments. Returns the answer, or 0: it is to be looked up.
///
/// # Safety
/// The arguments are such as `dlsym` takes.
pub unsafe extern "C" fn on_symbol_lookup(handle: *mut c_void, name: *const c_char) -> usize {
    let _errno = sys::KeepErrno::now();
    let _unrecorded = threads::Unrecorded::begin();
    patch_new();
    // What comes next depends on who asks, and whoever asks for it wants to get around somebody.
    if INSTALLATION.load(Ordering::Acquire) == 0 || handle == libc::RTLD_NEXT || name.is_null() {
        return 0;
    }
    // SAFETY: as the caller says, a C string.
    let Some(hook) = hooks::named(unsafe { CStr::from_ptr(name) }) else {
        return 0;
    };
    // SAFETY: as the caller says. An allocator that the library has for itself stays its own.
    let is_real = unsafe { libc::dlsym(handle, name) } as usize == hook.real();
    if is_real { hook.for_any_session() } else { 0 }
}

/// How often the linker loaded and unloaded libraries so far.
fn counters() -> (u64, u64) {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes valid information, and `data` is the pair below.
        unsafe { *data.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
        1
    }
    let mut counters = (0u64, 0u64);
    let _loader = LOADER.lock();
    // SAFETY: the callback writes to the pair and returns.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counters).cast()) };
    counters
}

/// All loaded libraries by their program headers, and how often the linker loaded and unloaded any so far.
fn look() -> (HashSet<usize>, (u64, u64)) {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the linker passes valid information, and `data` is the pair below.
        let (info, seen) = unsafe { (&*info, &mut *data.cast::<(HashSet<usize>, (u64, u64))>()) };
        seen.1 = (info.dlpi_adds, info.dlpi_subs);
        seen.0.insert(info.dlpi_phdr as usize);
        0
    }
    let mut seen = (HashSet::new(), (0u64, 0u64));
    let _loader = LOADER.lock();
    // SAFETY: the callback writes to the pair and returns.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut seen).cast()) };
    seen
}

struct Walk<'a> {
    task: Task,
    /// Libraries that may be changed, by their program headers.
    present: &'a HashSet<usize>,
    /// Libraries that are done.
    done: HashSet<usize>,
    own_code: usize,
    linker_base: usize,
    /// How often libraries had been loaded and unloaded when `present` was noted.
    counters: (u64, u64),
    /// Libraries with an allocator of their own: by their program headers, the number of their hooks.
    arenas: Vec<(usize, usize)>,
    /// Libraries that may have one.
    candidates: Vec<arenas::Candidate>,
}

/// Returns libraries that may have an allocator of their own.
fn walk(task: Task, present: &HashSet<usize>, counters: (u64, u64)) -> Vec<arenas::Candidate> {
    let mut loader = LOADER.lock();
    if matches!(task, Task::Install(installation) if !is_current(installation)) {
        return Vec::new();
    }
    let mut done = loader.take().unwrap_or_default();
    if counters.1 != UNLOADS_SEEN.load(Ordering::Acquire) {
        // An address may have been used again by another library: look at all of them.
        done.clear();
        arenas::forget();
        modules::on_unload();
    }
    let mut walk = Walk {
        task,
        present,
        done,
        own_code: on_symbol_lookup as *const () as usize,
        // SAFETY: no preconditions.
        linker_base: unsafe { libc::getauxval(libc::AT_BASE) } as usize,
        counters,
        arenas: arenas::hooks(),
        candidates: Vec::new(),
    };
    // SAFETY: `visit` keeps to the contract of the callback and gets the walk it expects.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut walk).cast()) };
    if task != Task::Remove {
        LOADS_SEEN.store(counters.0, Ordering::Release);
        UNLOADS_SEEN.store(counters.1, Ordering::Release);
        *loader = Some(walk.done);
    }
    walk.candidates
}

/// One loaded library, called by the linker with its lock held.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the linker passes valid information, and `data` is the walk of our caller.
    let (info, walk) = unsafe { (&*info, &mut *data.cast::<Walk>()) };
    if walk.task != Task::Remove && info.dlpi_subs != walk.counters.1 {
        // Something was unloaded since we looked: what is at a known address may be another library. The next look
        // begins anew.
        return 1;
    }
    // SAFETY: the linker's description of a loaded library is true while its lock is held.
    if let Some(library) = unsafe { Library::new(info) } {
        let is_linker = walk.linker_base != 0 && library.base == walk.linker_base;
        let is_own = library.contains(walk.own_code);
        let is_wanted = match walk.task {
            Task::Remove => true,
            Task::Install(_) => {
                let headers = info.dlpi_phdr as usize;
                walk.present.contains(&headers) && walk.done.insert(headers)
            }
        };
        if is_wanted && !is_linker && !is_own {
            let headers = info.dlpi_phdr as usize;
            let mut arenas = walk.arenas.iter();
            let arena = arenas.find(|arena| arena.0 == headers).map(|arena| arena.1);
            // SAFETY: as above.
            let maps = unsafe { library.rewrite(walk.task, arena) };
            // SAFETY: as above.
            if maps && arena.is_none() && unsafe { library.imports(c"madvise") } {
                walk.candidates.push(arenas::Candidate {
                    headers,
                    base: library.base,
                    start: library.start,
                    end: library.end,
                    // SAFETY: the linker's name of the library is a C string.
                    path: unsafe { CStr::from_ptr(info.dlpi_name) }
                        .to_bytes()
                        .to_vec(),
                });
            }
        }
    }
    0
}
