//! Rewriting the import slots of loaded libraries, so that calls to hooked functions come to us.
//!
//! Each library has tables that say which of its slots holds the address of which imported function. We walk them,
//! change the slots of hooked functions, and later change them back. Nothing is preloaded and no code is modified, so
//! recording can begin and end in a running process, and after the end no trace is left.
//!
//! A slot that has not been looked up yet is taken to mean what it means globally; only a library that is loaded with
//! RTLD_DEEPBIND and brings an allocator of its own could differ.
//!
//! A slot is changed only if what it holds is the function we would call ourselves, or the library's own stub for a
//! function not looked up yet: somebody else's interposer stays in charge of its own.
//!
//! **New libraries** are found without getting between a program and `dlopen`, whose search depends on who calls it:
//! whoever loads a library at run time asks `dlsym` for something in it next. `dlsym` is hooked by a jump that leaves the
//! caller's return address in place, and looks for libraries not seen yet; the keeper looks too, every few milliseconds.
//!
//! Runs on: the thread that starts, stops or calls `dlsym`; the keeper. Allocates: past the hooks. Locks: `LOADER`
//! around the linker's own lock. During fork: `LOADER` is held across it, so that no child inherits the linker's lock.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::hooks::{self, Hook};
use crate::locks::ForkMutex;
use crate::native::modules;
use crate::{arenas, sys, threads};

/// Taken before anything that takes the linker's lock. Holds which libraries are done, by their program headers.
pub static LOADER: ForkMutex<Option<HashSet<usize>>> = ForkMutex::new(None);
/// The number of the installation whose hooks are in place; 0: none are.
static INSTALLATION: AtomicU64 = AtomicU64::new(0);
static N_INSTALLATIONS: AtomicU64 = AtomicU64::new(0);
/// How often libraries were loaded and unloaded when we looked last.
static LOADS_SEEN: AtomicU64 = AtomicU64::new(0);
static UNLOADS_SEEN: AtomicU64 = AtomicU64::new(0);

#[cfg(target_arch = "x86_64")]
mod relocation {
    pub const ABSOLUTE: u32 = 1;
    pub const GLOBAL_DATA: u32 = 6;
    pub const JUMP_SLOT: u32 = 7;
}

#[cfg(target_arch = "aarch64")]
mod relocation {
    pub const ABSOLUTE: u32 = 257;
    pub const GLOBAL_DATA: u32 = 1025;
    pub const JUMP_SLOT: u32 = 1026;
}

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

/// The function that calls to `name` reach. The dynamic linker's answer for an executable at a fixed address may be a stub in
/// that executable; then it is the first library, in the order of loading, that has the function.
pub fn definition(name: &CStr) -> usize {
    struct Loaded {
        name: *const libc::c_char,
        start: usize,
        end: usize,
    }
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the linker passes valid information, and `data` is the list below.
        let (info, loaded) = unsafe { (&*info, &mut *data.cast::<Vec<Loaded>>()) };
        // SAFETY: as above.
        let (start, end) = unsafe { Library::bounds(info) };
        loaded.push(Loaded {
            name: info.dlpi_name,
            start,
            end,
        });
        0
    }
    // SAFETY: looking a symbol up has no preconditions.
    let default = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
    let mut loaded: Vec<Loaded> = Vec::new();
    // SAFETY: the callback adds to the list and returns.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut loaded).cast()) };
    let is_stub = loaded
        .first()
        .is_some_and(|main| (main.start..main.end).contains(&default));
    if !is_stub {
        return default;
    }
    for library in &loaded[1..] {
        // SAFETY: the name belongs to a loaded library; asking for one that is loaded already loads nothing.
        let handle = unsafe { libc::dlopen(library.name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            continue;
        }
        // SAFETY: the handle is valid, and given back afterwards.
        let address = unsafe {
            let address = libc::dlsym(handle, name.as_ptr()) as usize;
            libc::dlclose(handle);
            address
        };
        if (library.start..library.end).contains(&address) {
            return address;
        }
    }
    // The executable has the function itself.
    default
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

/// A loaded library as its program headers and dynamic section describe it.
struct Library {
    base: usize,
    dynamic: usize,
    /// Lowest and highest loaded address.
    start: usize,
    end: usize,
    /// What the linker made read-only after relocation: start and length, whole pages.
    read_only: (usize, usize),
    symbols: usize,
    names: usize,
    names_len: usize,
    tables: [(usize, usize); 2],
}

impl Library {
    /// The lowest and the highest address of what is loaded.
    ///
    /// # Safety
    /// `info` describes a library that stays loaded during the call.
    unsafe fn bounds(info: &libc::dl_phdr_info) -> (usize, usize) {
        if info.dlpi_phdr.is_null() {
            return (0, 0);
        }
        // SAFETY: the linker gives the address and number of the program headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let (mut start, mut end) = (usize::MAX, 0);
        for header in headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
        {
            let address = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            start = start.min(address);
            end = end.max(address + header.p_memsz as usize);
        }
        (start, end)
    }

    /// # Safety
    /// `info` describes a library that stays loaded during the call.
    unsafe fn new(info: &libc::dl_phdr_info) -> Option<Library> {
        let base = info.dlpi_addr as usize;
        let mut library = Library {
            base,
            dynamic: 0,
            start: 0,
            end: 0,
            read_only: (0, 0),
            symbols: 0,
            names: 0,
            names_len: 0,
            tables: [(0, 0); 2],
        };
        if info.dlpi_phdr.is_null() {
            return None;
        }
        // SAFETY: the linker gives the address and number of the program headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let page_len = sys::page_len() as usize;
        for header in headers {
            let address = base.wrapping_add(header.p_vaddr as usize);
            match header.p_type {
                libc::PT_DYNAMIC => library.dynamic = address,
                libc::PT_GNU_RELRO => {
                    // The linker protects whole pages only, and rounds the end down.
                    let start = address / page_len * page_len;
                    let end = (address + header.p_memsz as usize) / page_len * page_len;
                    library.read_only = (start, end.saturating_sub(start));
                }
                _ => {}
            }
        }
        if library.dynamic == 0 {
            return None;
        }
        // SAFETY: as our caller says.
        (library.start, library.end) = unsafe { Library::bounds(info) };
        // SAFETY: the dynamic section is part of the loaded library and ends with a null tag.
        unsafe { library.read_dynamic() };
        (library.symbols != 0 && library.names != 0).then_some(library)
    }

    fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// # Safety
    /// `dynamic` is the address of a loaded dynamic section.
    unsafe fn read_dynamic(&mut self) {
        const STRTAB: usize = 5;
        const SYMTAB: usize = 6;
        const RELA: usize = 7;
        const RELASZ: usize = 8;
        const STRSZ: usize = 10;
        const PLTRELSZ: usize = 2;
        const JMPREL: usize = 23;
        let mut entry = self.dynamic as *const [usize; 2];
        loop {
            // SAFETY: we have not passed the null tag yet.
            let [tag, value] = unsafe { entry.read() };
            // glibc turns these values into addresses when it loads a library; other linkers leave offsets.
            let address = if value < self.base {
                self.base + value
            } else {
                value
            };
            match tag {
                0 => break,
                STRTAB => self.names = address,
                STRSZ => self.names_len = value,
                SYMTAB => self.symbols = address,
                RELA => self.tables[0].0 = address,
                RELASZ => self.tables[0].1 = value,
                JMPREL => self.tables[1].0 = address,
                PLTRELSZ => self.tables[1].1 = value,
                _ => {}
            }
            // SAFETY: the section goes on.
            entry = unsafe { entry.add(1) };
        }
    }

    /// Changes the slots. Returns whether one of them is of a function that takes memory from the kernel.
    ///
    /// # Safety
    /// The library stays loaded during the call.
    unsafe fn rewrite(&self, task: Task, arena: Option<usize>) -> bool {
        let (mut writable, mut maps) = (false, false);
        for (table, len) in self.tables {
            if table == 0 {
                continue;
            }
            let n_entries = len / size_of::<libc::Elf64_Rela>();
            // SAFETY: the dynamic section gives the table's address and length.
            let entries =
                unsafe { std::slice::from_raw_parts(table as *const libc::Elf64_Rela, n_entries) };
            for entry in entries {
                let kind = entry.r_info as u32;
                if !matches!(
                    kind,
                    relocation::JUMP_SLOT | relocation::GLOBAL_DATA | relocation::ABSOLUTE
                ) {
                    continue;
                }
                // SAFETY: the index comes from the library's own relocation table.
                let symbol = unsafe {
                    &*(self.symbols as *const libc::Elf64_Sym).add((entry.r_info >> 32) as usize)
                };
                // SAFETY: as above.
                let Some(hook) = (unsafe { self.hook_for(symbol) }) else {
                    continue;
                };
                maps |= hook.maps();
                let slot = self.base.wrapping_add(entry.r_offset as usize);
                // SAFETY: a relocated slot is a readable word of the library.
                let value = unsafe { (slot as *const usize).read_volatile() };
                let Some(new) = self.new_value(task, hook, arena, kind, symbol, value) else {
                    continue;
                };
                let protected = slot.wrapping_sub(self.read_only.0) < self.read_only.1;
                if protected && !writable {
                    writable = self.protect(libc::PROT_READ | libc::PROT_WRITE);
                    if !writable {
                        return false;
                    }
                }
                // SAFETY: the slot is writable now, aligned, and read by others as one word.
                unsafe { &*(slot as *const std::sync::atomic::AtomicUsize) }
                    .store(new, Ordering::Release);
            }
        }
        if writable {
            self.protect(libc::PROT_READ);
        }
        maps
    }

    /// Whether the library has a slot for a function of this name.
    ///
    /// # Safety
    /// As [`Library::rewrite`].
    unsafe fn imports(&self, name: &CStr) -> bool {
        let tables = self.tables.iter().filter(|table| table.0 != 0);
        let mut entries = tables.flat_map(|&(table, len)| {
            // SAFETY: the dynamic section gives the table's address and length.
            unsafe {
                std::slice::from_raw_parts(
                    table as *const libc::Elf64_Rela,
                    len / size_of::<libc::Elf64_Rela>(),
                )
            }
        });
        entries.any(|entry| {
            // SAFETY: the index comes from the library's own relocation table.
            let symbol = unsafe {
                &*(self.symbols as *const libc::Elf64_Sym).add((entry.r_info >> 32) as usize)
            };
            let offset = symbol.st_name as usize;
            // SAFETY: within the string table, whose strings end with a null byte.
            offset != 0
                && offset < self.names_len
                && unsafe { CStr::from_ptr((self.names + offset) as *const _) } == name
        })
    }

    /// What the slot should hold, if that is to change.
    fn new_value(
        &self,
        task: Task,
        hook: &Hook,
        arena: Option<usize>,
        kind: u32,
        symbol: &libc::Elf64_Sym,
        value: usize,
    ) -> Option<usize> {
        let real = hook.real();
        match task {
            Task::Remove => hook.is_ours(value).then_some(real),
            Task::Install(_) => {
                let not_looked_up =
                    kind == relocation::JUMP_SLOT && symbol.st_shndx == 0 && self.contains(value);
                let chosen = hook.chosen(arena);
                (value == real || not_looked_up || (hook.is_ours(value) && value != chosen))
                    .then_some(chosen)
            }
        }
    }

    /// # Safety
    /// `symbol` is in this library's table.
    unsafe fn hook_for(&self, symbol: &libc::Elf64_Sym) -> Option<&'static Hook> {
        let offset = symbol.st_name as usize;
        if offset == 0 || offset >= self.names_len {
            return None;
        }
        // SAFETY: the offset lies within the library's string table, whose strings end with a null byte.
        let name = unsafe { CStr::from_ptr((self.names + offset) as *const _) };
        hooks::named(name)
    }

    fn protect(&self, protection: c_int) -> bool {
        // SAFETY: the range is the part of the library that its linker protects in the same way.
        unsafe {
            libc::mprotect(
                self.read_only.0 as *mut c_void,
                self.read_only.1,
                protection,
            ) == 0
        }
    }
}
