//! The library of an address, its number, and its call-frame information.
//!
//! The agent describes a library in the registry, by path and build ID, when an address in it first occurs, and again if
//! the library is loaded at another address. A library keeps its number when it is loaded again. Code objects take their
//! numbers from the same sequence, so a frame can refer to either.
//!
//! Data cached by address is valid until a library is unloaded, which changes [`generation`].

mod library;

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use heaptide_capture::{Entry, Module as ModuleEntry};
use heaptide_procfs as procfs;

pub use self::library::Module;
use self::library::{LoadedLibrary, build_id_in};
use crate::host::locks::{ForkGuard, ForkMutex};
use crate::host::sys::KeepErrno;
use crate::libraries::LOADER;
use crate::record::{clock, codes};
use crate::session;

static GENERATION: AtomicU64 = AtomicU64::new(1);
pub static MODULES: ForkMutex<Option<Modules>> = ForkMutex::new(None);
/// `_dl_find_object`, which glibc has since 2.35; 0 where it is missing.
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

/// The maximum number of attempts to take the lock. A forking thread may hold it, and may be the calling thread itself.
const N_TRIES: usize = 2000;

/// Changes when a library is unloaded, because its addresses may then belong to another library.
#[inline(always)]
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Notes that a library may have been unloaded.
pub fn on_unload() {
    GENERATION.fetch_add(1, Ordering::Release);
}

/// The number of threads that are reading a library which they found by a guessed address.
static GUESSES: AtomicUsize = AtomicUsize::new(0);
/// The number of running calls of `dlclose`.
static UNLOADS: AtomicUsize = AtomicUsize::new(0);

/// Calls `read` while `dlclose` unloads nothing. Returns `None` if a library is being unloaded now.
///
/// A library to which a frame of this thread returns stays loaded. A guessed address may lie in any library, and another
/// thread may unload that one.
pub fn while_none_unloads<T>(read: impl FnOnce() -> T) -> Option<T> {
    // Each side announces itself before it checks the other one, so at least one of them sees the other.
    GUESSES.fetch_add(1, Ordering::SeqCst);
    let result = (UNLOADS.load(Ordering::SeqCst) == 0).then(read);
    GUESSES.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Calls `unload`, the real `dlclose`, once no thread reads a library by a guessed address. Calls that do not come
/// through an import slot are not seen, such as those of the C library for its own modules.
pub fn unload<T>(unload: impl FnOnce() -> T) -> T {
    // A reading thread waits for nothing and finishes within microseconds once it runs. The sleeps let threads of lower
    // priority run, which yields do not. The wait is bounded, because the count may be wrong in a child that was forked
    // without handlers.
    const N_YIELDS: usize = 1000;
    const N_SLEEPS: usize = 2000;
    UNLOADS.fetch_add(1, Ordering::SeqCst);
    for n_waits in 0..N_YIELDS + N_SLEEPS {
        if GUESSES.load(Ordering::SeqCst) == 0 {
            break;
        }
        let _errno = KeepErrno::now();
        if n_waits < N_YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    let result = unload();
    on_unload();
    // In a forked child, the count may already be 0.
    let _ = UNLOADS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    result
}

/// Forgets the other threads, which do not exist in a forked child.
pub fn after_fork_in_child() {
    GUESSES.store(0, Ordering::SeqCst);
    UNLOADS.store(0, Ordering::SeqCst);
}

/// The libraries of this session.
pub struct Modules {
    /// The loaded libraries that occurred in a stack, valid for `generation`.
    loaded: Vec<Module>,
    generation: u64,
    ids: HashMap<(Vec<u8>, Vec<u8>), u32>,
    /// The module number of frames whose code belongs to no library.
    nowhere: u32,
    /// The module number of the frame that replaces missing frames.
    cut: u32,
}

/// Starts with an empty list, for a session whose mode now has native stacks.
pub fn reset() {
    // SAFETY: the name is a C string, and `dlsym` has no other precondition.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(function as usize, Ordering::Release);
    let modules = Modules {
        loaded: Vec::new(),
        generation: generation(),
        ids: HashMap::new(),
        nowhere: codes::next_id(),
        cut: codes::next_id(),
    };
    for (id, name) in [
        (modules.nowhere, "<code of no library>"),
        (modules.cut, "<native frames missing>"),
    ] {
        session::note(&Entry::Module(ModuleEntry {
            id,
            base: 0,
            start: 0,
            length: 0,
            time: clock::ticks() >> session::tick_shift(),
            path: name.as_bytes(),
            build_id: &[],
        }));
    }
    *MODULES.lock() = Some(modules);
    on_unload();
}

/// Drops the list of a session.
pub fn clear() {
    *MODULES.lock() = None;
    on_unload();
}

/// Takes the lock. Returns `None` if another thread holds it for a long time.
fn lock_with_limit() -> Option<ForkGuard<'static, Option<Modules>>> {
    for _ in 0..N_TRIES {
        if let Some(guard) = MODULES.try_lock() {
            return Some(guard);
        }
        // SAFETY: `sched_yield` has no preconditions.
        unsafe { libc::sched_yield() };
    }
    None
}

/// The number of the frame that replaces missing frames; 0 if there is no session.
pub fn cut_id() -> u32 {
    lock_with_limit().map_or(0, |modules| {
        modules.as_ref().map_or(0, |modules| modules.cut)
    })
}

/// The owner of an address.
pub enum Owner {
    Module(Module),
    /// No library: the code was generated. Frames get this number.
    Nowhere(u32),
    /// Unknown, because a lock is held.
    Busy,
}

/// Returns the owner of `pc`.
///
/// # Safety
/// A frame of this thread returns to `pc`, or the caller is inside [`while_none_unloads`].
pub unsafe fn owner_of(pc: usize) -> Owner {
    let Some(mut guard) = lock_with_limit() else {
        return Owner::Busy;
    };
    let Some(modules) = guard.as_mut() else {
        return Owner::Busy;
    };
    // SAFETY: the caller's promise keeps a library at `pc` loaded.
    let library = match unsafe { find(pc) } {
        Ok(library) => library,
        Err(Busy) => return Owner::Busy,
    };
    let Some(library) = library else {
        return Owner::Nowhere(modules.nowhere);
    };
    let now = generation();
    if modules.generation != now {
        modules.generation = now;
        modules.loaded.clear();
    }
    let known = modules.loaded.iter().find(|module| {
        module.start == library.start && module.end == library.end && module.base == library.base
    });
    match known {
        Some(&known) => Owner::Module(known),
        None => {
            // SAFETY: a frame of this thread continues in the library, or the caller is inside `while_none_unloads`. So
            // the library stays loaded.
            let module = unsafe { modules.learn(&library) };
            modules.loaded.push(module);
            Owner::Module(module)
        }
    }
}

struct Busy;

/// # Safety
/// A library that contains `pc` stays loaded during the call.
unsafe fn find(pc: usize) -> Result<Option<LoadedLibrary>, Busy> {
    match FIND_OBJECT.load(Ordering::Relaxed) {
        0 => find_by_list(pc),
        // SAFETY: `reset` found this function; the rest is passed on from the caller.
        function => Ok(unsafe { find_by_linker(function, pc) }),
    }
}

/// glibc's `struct dl_find_object`; the words after the named fields are reserved.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *const LinkMap,
    eh_frame: usize,
    reserved: [u64; 11],
}

#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
}

/// Asks glibc, which answers without a lock.
///
/// # Safety
/// As for [`find`]. `function` is the address of glibc's `_dl_find_object`.
unsafe fn find_by_linker(function: usize, pc: usize) -> Option<LoadedLibrary> {
    // SAFETY: this is the type of `_dl_find_object`.
    let function: unsafe extern "C" fn(usize, *mut DlFindObject) -> c_int =
        unsafe { std::mem::transmute(function) };
    let mut object = DlFindObject {
        flags: 0,
        map_start: 0,
        map_end: 0,
        link_map: std::ptr::null(),
        eh_frame: 0,
        reserved: [0; 11],
    };
    // SAFETY: the struct is at least as long as glibc's.
    if unsafe { function(pc, &mut object) } != 0 || object.link_map.is_null() {
        return None;
    }
    // SAFETY: the linker's entry lives as long as the library, which stays loaded, as the caller promises.
    let (base, name) = unsafe { ((*object.link_map).base, (*object.link_map).name) };
    // The first segment of practically every library begins with its ELF header.
    let header = object.map_start as *const libc::Elf64_Ehdr;
    // SAFETY: the first segment of a loaded library is readable and at least a page long.
    let header = unsafe { &*header };
    let is_elf = header.e_ident.starts_with(b"\x7fELF")
        && usize::from(header.e_phentsize) == size_of::<libc::Elf64_Phdr>();
    let headers_at = header.e_phoff as usize;
    let headers_len = usize::from(header.e_phnum) * size_of::<libc::Elf64_Phdr>();
    let is_readable = is_elf && headers_at.saturating_add(headers_len) <= 4096;
    Some(LoadedLibrary {
        start: object.map_start,
        end: object.map_end,
        base,
        name,
        headers: object.map_start.wrapping_add(headers_at) as *const libc::Elf64_Phdr,
        n_headers: if is_readable {
            header.e_phnum.into()
        } else {
            0
        },
    })
}

/// Asks an older linker, which takes its own lock. A thread that holds that lock may wait for a lock that this thread holds,
/// so this fails if `LOADER`, which Heaptide takes before the linker's lock, is held.
fn find_by_list(pc: usize) -> Result<Option<LoadedLibrary>, Busy> {
    struct Search {
        pc: usize,
        library: Option<LoadedLibrary>,
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes valid information, and `data` is the search below.
        let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the linker gives the address and number of the program headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let base = info.dlpi_addr as usize;
        let (start, end) = extent(headers, base);
        if !(start..end).contains(&search.pc) {
            return 0;
        }
        search.library = Some(LoadedLibrary {
            start,
            end,
            base,
            name: info.dlpi_name,
            headers: info.dlpi_phdr,
            n_headers: info.dlpi_phnum.into(),
        });
        1
    }
    let _loader = LOADER.try_lock().ok_or(Busy)?;
    let mut search = Search { pc, library: None };
    // SAFETY: the callback gets the search that it expects.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    Ok(search.library)
}

fn extent(headers: &[libc::Elf64_Phdr], base: usize) -> (usize, usize) {
    let loads = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD);
    loads.fold((usize::MAX, 0), |(start, end), header| {
        let at = base.wrapping_add(header.p_vaddr as usize);
        (
            start.min(at),
            end.max(at.wrapping_add(header.p_memsz as usize)),
        )
    })
}

impl Modules {
    /// Describes a library that is new at its address.
    ///
    /// # Safety
    /// The library stays loaded during the call.
    unsafe fn learn(&mut self, library: &LoadedLibrary) -> Module {
        let headers: &[libc::Elf64_Phdr] = if library.n_headers == 0 {
            &[]
        } else {
            // SAFETY: address and number come from the linker or from the library's own header, and the library stays loaded.
            unsafe { std::slice::from_raw_parts(library.headers, library.n_headers) }
        };
        let mut module = Module::described(library, headers);
        let build_id = module.readable(headers, libc::PT_NOTE).find_map(|notes| {
            // SAFETY: the notes lie in a readable segment of the library, which stays loaded.
            let notes =
                unsafe { std::slice::from_raw_parts(notes.start as *const u8, notes.len()) };
            build_id_in(notes)
        });
        let build_id = build_id.unwrap_or_default();
        // SAFETY: the linker's name of a library is a C string that lives as long as the library.
        let path = unsafe { path_of(library.name) };
        let key = (path, build_id.to_vec());
        module.id = match self.ids.get(&key) {
            Some(&id) => id,
            None => codes::next_id(),
        };
        session::note(&Entry::Module(ModuleEntry {
            id: module.id,
            base: library.base as u64,
            start: library.start as u64,
            length: (library.end - library.start) as u64,
            time: clock::ticks() >> session::tick_shift(),
            path: &key.0,
            build_id: &key.1,
        }));
        self.ids.insert(key, module.id);
        module
    }
}

/// The path of a library, from the linker's name of it.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn path_of(name: *const c_char) -> Vec<u8> {
    let name = if name.is_null() {
        c""
    } else {
        // SAFETY: the caller promises a C string.
        unsafe { CStr::from_ptr(name) }
    };
    if !name.is_empty() {
        return name.to_bytes().to_vec();
    }
    // The executable itself has no name in the linker's list.
    let path = procfs::executable("self").unwrap_or_default();
    path.into_os_string().into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lookups_find_the_library_of_an_address() {
        let pc = on_unload as *const () as usize;
        let by_list = find_by_list(pc).ok().flatten().unwrap();
        assert!((by_list.start..by_list.end).contains(&pc));
        assert!(find_by_list(16).ok().flatten().is_none());
        // SAFETY: the name is a C string, and `dlsym` has no other precondition.
        let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        if !function.is_null() {
            // SAFETY: this test runs in the library.
            let by_linker = unsafe { find_by_linker(function as usize, pc) }.unwrap();
            assert_eq!(by_linker.base, by_list.base);
            assert!((by_linker.start..by_linker.end).contains(&pc));
            assert_eq!(by_linker.n_headers, by_list.n_headers);
        }
    }

    #[test]
    fn unloading_waits_for_guesses_and_refuses_new_ones() {
        let (is_reading, started) = std::sync::mpsc::channel();
        let has_read = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while_none_unloads(|| {
                    is_reading.send(()).unwrap();
                    while UNLOADS.load(Ordering::SeqCst) == 0 {
                        std::hint::spin_loop();
                    }
                    has_read.store(true, Ordering::SeqCst);
                })
            });
            started.recv().unwrap();
            unload(|| {
                assert!(has_read.load(Ordering::SeqCst) && GUESSES.load(Ordering::SeqCst) == 0);
                assert_eq!(while_none_unloads(|| 1), None);
                after_fork_in_child();
            });
        });
        assert_eq!(while_none_unloads(|| 1), Some(1));
    }
}
