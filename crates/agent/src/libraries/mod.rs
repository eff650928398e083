//! Installs the hooks in all loaded libraries, and in those loaded later.
//!
//! Each library has slots that hold the addresses of the functions it imports ([`slots`]). This module changes the slots of
//! hooked functions, and later changes them back. Nothing is preloaded and no code is modified, so a recording can start and
//! stop in a running process and leaves no trace.
//!
//! **New libraries** are found without hooking `dlopen`, whose search depends on its caller. A program that loads a library
//! at run time calls `dlsym` next, to find a symbol in it. The hook of `dlsym` leaves the caller's return address unchanged
//! and searches for new libraries. The keeper also searches, every few milliseconds.
//!
//! Runs on: the thread that starts, stops or calls `dlsym`; the keeper. Allocates: bypassing the hooks. Locks: `LOADER`
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

/// Taken before the linker's lock. Holds the libraries that were visited, by the address of their program headers.
pub static LOADER: ForkMutex<Option<HashSet<usize>>> = ForkMutex::new(None);
/// The number of the current installation of hooks; 0 if none are installed.
static INSTALLATION: AtomicU64 = AtomicU64::new(0);
static N_INSTALLATIONS: AtomicU64 = AtomicU64::new(0);
/// The number of loads and of unloads of libraries at the last search.
static LOADS_SEEN: AtomicU64 = AtomicU64::new(0);
static UNLOADS_SEEN: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Installs the hooks, for the installation with this number.
    Install(u64),
    Remove,
}

/// Installs the hooks in all libraries.
pub fn install() {
    *LOADER.lock() = Some(HashSet::new());
    arenas::forget();
    arenas::python::prepare();
    let number = N_INSTALLATIONS.fetch_add(1, Ordering::AcqRel) + 1;
    INSTALLATION.store(number, Ordering::Release);
    patch(number);
}

/// Removes the hooks from all libraries. Another thread may be about to install some for the installation that ends here. It
/// checks [`is_current`] while it holds the lock that `walk` takes, so it either finishes before the removal or does nothing.
pub fn remove() {
    INSTALLATION.store(0, Ordering::Release);
    // A library that is just being loaded has no hooks, so there is no need to wait for loads.
    walk(Task::Remove, &HashSet::new(), (0, 0));
}

/// Installs the hooks in libraries that were loaded since the last search.
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

/// Whether this installation has not ended.
fn is_current(installation: u64) -> bool {
    INSTALLATION.load(Ordering::Acquire) == installation
}

/// Installs the hooks in new libraries. The linker lists a library while it is still relocating it, and would crash if
/// Heaptide made its pages read-only at that time. So this lists the libraries, waits until no thread is inside `dlopen`,
/// and changes those of them that are still loaded.
fn patch(installation: u64) {
    let (present, counters) = list_loaded();
    wait_for_loads();
    let task = Task::Install(installation);
    let candidates = walk(task, &present, counters);
    // Libraries with a bundled allocator get other hooks in a second walk, after their files were read.
    let chosen = arenas::inspect(candidates, &|| is_current(installation));
    if !chosen.is_empty() {
        if let Some(done) = LOADER.lock().as_mut() {
            done.retain(|headers| !chosen.contains(headers));
        }
        walk(task, &chosen, counters);
    }
}

/// Returns when no other thread is loading libraries: `dlsym` takes the lock that `dlopen` holds from start to end. The
/// caller must hold none of Heaptide's locks, because a library runs arbitrary code while it is loaded.
fn wait_for_loads() {
    // SAFETY: the name is a C string. This symbol exists, so `dlerror` stays unchanged for the program.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlsym".as_ptr()) };
}

/// The hook of `dlsym` calls this before every lookup. Returns the result of the lookup, or 0 to let `dlsym` find it.
///
/// # Safety
/// The arguments are valid for `dlsym`.
pub unsafe extern "C" fn on_symbol_lookup(handle: *mut c_void, name: *const c_char) -> usize {
    let _errno = sys::KeepErrno::now();
    let _unrecorded = threads::Unrecorded::begin();
    patch_new();
    // The result of RTLD_NEXT depends on the caller, which wants the function that follows its own.
    if INSTALLATION.load(Ordering::Acquire) == 0 || handle == libc::RTLD_NEXT || name.is_null() {
        return 0;
    }
    // SAFETY: `dlsym` takes a C string, as the caller promises.
    let Some(hook) = hooks::named(unsafe { CStr::from_ptr(name) }) else {
        return 0;
    };
    // A library that has its own function of this name keeps it.
    // SAFETY: the caller promises arguments that are valid for `dlsym`.
    let is_real = unsafe { libc::dlsym(handle, name) } as usize == hook.real();
    if is_real { hook.for_any_session() } else { 0 }
}

/// The number of loads and of unloads of libraries so far, as the linker counts them.
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
    // SAFETY: the callback gets the pair that it expects.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counters).cast()) };
    counters
}

/// All loaded libraries by the address of their program headers, and the linker's number of loads and of unloads.
fn list_loaded() -> (HashSet<usize>, (u64, u64)) {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the linker passes valid information, and `data` is the pair below.
        let (info, seen) = unsafe { (&*info, &mut *data.cast::<(HashSet<usize>, (u64, u64))>()) };
        seen.1 = (info.dlpi_adds, info.dlpi_subs);
        seen.0.insert(info.dlpi_phdr as usize);
        0
    }
    let mut seen = (HashSet::new(), (0u64, 0u64));
    let _loader = LOADER.lock();
    // SAFETY: the callback gets the pair that it expects.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut seen).cast()) };
    seen
}

struct Walk<'a> {
    task: Task,
    /// Libraries that may be changed, by the address of their program headers.
    present: &'a HashSet<usize>,
    /// Libraries that were visited, by the same address.
    done: HashSet<usize>,
    own_code: usize,
    linker_base: usize,
    /// The number of loads and of unloads of libraries when `present` was listed.
    counters: (u64, u64),
    /// Libraries with a bundled allocator: the address of their program headers and the number of their hooks.
    arenas: Vec<(usize, usize)>,
    /// Libraries that may have a bundled allocator.
    candidates: Vec<arenas::Candidate>,
}

/// Visits all libraries. Returns those that may have a bundled allocator.
fn walk(task: Task, present: &HashSet<usize>, counters: (u64, u64)) -> Vec<arenas::Candidate> {
    let mut loader = LOADER.lock();
    if matches!(task, Task::Install(installation) if !is_current(installation)) {
        return Vec::new();
    }
    let mut done = loader.take().unwrap_or_default();
    if counters.1 != UNLOADS_SEEN.load(Ordering::Acquire) {
        // Another library may have been loaded at a known address, so all of them must be visited.
        done.clear();
        arenas::forget();
        modules::on_unload();
    }
    let mut walk = Walk {
        task,
        present,
        done,
        own_code: on_symbol_lookup as *const () as usize,
        // SAFETY: `getauxval` has no preconditions.
        linker_base: unsafe { libc::getauxval(libc::AT_BASE) } as usize,
        counters,
        arenas: arenas::hooks(),
        candidates: Vec::new(),
    };
    // SAFETY: the callback gets the walk that it expects.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut walk).cast()) };
    if task != Task::Remove {
        LOADS_SEEN.store(counters.0, Ordering::Release);
        UNLOADS_SEEN.store(counters.1, Ordering::Release);
        *loader = Some(walk.done);
    }
    walk.candidates
}

/// Visits one loaded library. The linker calls this with its lock held.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the linker passes valid information, and the function `walk` passes a `Walk` as `data`.
    let (info, walk) = unsafe { (&*info, &mut *data.cast::<Walk>()) };
    if walk.task != Task::Remove && info.dlpi_subs != walk.counters.1 {
        // A library was unloaded after `present` was listed, so another one may be at a known address. The next search
        // visits all of them.
        return 1;
    }
    // SAFETY: the linker holds its lock, so the library stays loaded.
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
            let arena = match library.contains(arenas::python::interpreter()) {
                true => Some(arenas::python::PYTHON),
                false => arenas.find(|arena| arena.0 == headers).map(|arena| arena.1),
            };
            // SAFETY: the linker holds its lock, so the library stays loaded.
            let maps = unsafe { library.rewrite(walk.task, arena) };
            // SAFETY: the linker holds its lock, so the library stays loaded.
            if maps && arena.is_none() && unsafe { library.imports(c"madvise") } {
                walk.candidates.push(arenas::Candidate {
                    headers,
                    base: library.base,
                    start: library.start,
                    end: library.end,
                    // SAFETY: the linker names every library with a C string.
                    path: unsafe { CStr::from_ptr(info.dlpi_name) }
                        .to_bytes()
                        .to_vec(),
                });
            }
        }
    }
    0
}
