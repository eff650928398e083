//! A jemalloc inside a library, made to call Heaptide for each of its blocks.
//!
//! jemalloc's function `mallctl` can install such calls (`experimental.hooks.install`). The library's symbol table
//! names that function even if it is not exported. The feature is experimental, so a trial comes first: it allocates
//! and frees one block, and Heaptide uses the calls only if they are as expected. jemalloc passes the number of the
//! function that was called. The numbers of some functions differ by one between releases; the trial also determines
//! the right ones.
//!
//! jemalloc reports allocations after they happened and releases before, as [`crate::record`] requires.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use heaptide_capture::Allocator;
use heaptide_procfs::readable_mapping;

use super::Candidate;
use super::elf_file::{ElfFile, Function};
use crate::hooks::{EXACT, HookMode, JOBS, SAMPLED, record_allocation, record_release};

type Mallctl =
    unsafe extern "C" fn(*const libc::c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;
type Mallocx = unsafe extern "C" fn(usize, c_int) -> *mut c_void;
type Sdallocx = unsafe extern "C" fn(*mut c_void, usize, c_int);
type OnAlloc = unsafe extern "C" fn(*mut c_void, c_int, usize, usize, *const usize);
type OnRelease = unsafe extern "C" fn(*mut c_void, c_int, usize, *const usize);
type OnResize = unsafe extern "C" fn(*mut c_void, c_int, usize, usize, usize, usize, *const usize);

/// The functions that jemalloc calls.
#[repr(C)]
struct Calls {
    alloc: OnAlloc,
    release: OnRelease,
    resize: OnResize,
    extra: *mut c_void,
}

const INSTALL: &CStr = c"experimental.hooks.install";
const REMOVE: &CStr = c"experimental.hooks.remove";
/// A size that no other thread is likely to allocate.
const TRIAL_BYTES: usize = 4099;
/// The number of `mallocx` in releases before 5.3.1.
const MALLOCX: c_int = 6;

/// Results of the trial: the number of the function, and the number of calls.
static TRIAL_NUMBER: AtomicI32 = AtomicI32::new(-1);
static TRIAL_CALLS: AtomicUsize = AtomicUsize::new(0);

/// jemalloc's functions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Functions {
    mallctl: InMemory,
    mallocx: InMemory,
    sdallocx: InMemory,
}

/// Where a function of a file should be in memory, and its first bytes in the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct InMemory {
    address: usize,
    code: [u8; 16],
}

impl InMemory {
    fn new(base: usize, function: &Function) -> Option<InMemory> {
        Some(InMemory {
            address: base.checked_add(function.address)?,
            code: function.code,
        })
    }

    /// Whether the memory has the same code.
    ///
    /// # Safety
    /// A library in `library` stays loaded during the call.
    unsafe fn is_loaded(&self, library: &Range<usize>) -> bool {
        let is_readable = |code: &Range<usize>| {
            readable_mapping(code.start).is_some_and(|mapping| code.end <= mapping.end)
        };
        let code = self.address..self.address.saturating_add(self.code.len());
        if code.start < library.start || code.end > library.end || !is_readable(&code) {
            return false;
        }
        // SAFETY: these bytes are readable and belong to the library, which stays loaded.
        unsafe { (code.start as *const [u8; 16]).read_unaligned() == self.code }
    }
}

impl Functions {
    /// Finds jemalloc's functions in the file of a library that is loaded at `base`. Reads nothing of the library: it
    /// may be unloaded, and its file may have been replaced.
    pub fn find(file: &ElfFile, base: usize) -> Option<Functions> {
        for mallctl in file.functions_ending(b"mallctl") {
            let prefix = mallctl.name.strip_suffix(b"mallctl").unwrap_or_default();
            let sibling = |name: &[u8]| {
                let name = [prefix, name].concat();
                let functions = file.functions_ending(&name);
                functions.into_iter().find(|function| function.name == name)
            };
            if let (Some(mallocx), Some(sdallocx)) = (sibling(b"mallocx"), sibling(b"sdallocx")) {
                return Some(Functions {
                    mallctl: InMemory::new(base, &mallctl)?,
                    mallocx: InMemory::new(base, &mallocx)?,
                    sdallocx: InMemory::new(base, &sdallocx)?,
                });
            }
        }
        None
    }

    /// Whether memory and file have the same code at all functions.
    ///
    /// # Safety
    /// As for [`InMemory::is_loaded`].
    unsafe fn are_loaded(&self, library: &Range<usize>) -> bool {
        let mut functions = [self.mallctl, self.mallocx, self.sdallocx].into_iter();
        // SAFETY: passed on from the caller.
        functions.all(|function| unsafe { function.is_loaded(library) })
    }
}

/// A jemalloc that calls Heaptide.
pub struct Jemalloc {
    functions: Functions,
    calls: usize,
    /// The linker's handle, which keeps the library loaded.
    library: usize,
}

impl Jemalloc {
    pub fn functions(&self) -> Functions {
        self.functions
    }

    /// Makes the jemalloc of a library call Heaptide. `None` if the library or its file is another one by now, or if
    /// the trial fails.
    pub fn hook(candidate: &Candidate, functions: Functions, mode: HookMode) -> Option<Jemalloc> {
        let library = pin(&candidate.path, candidate.base)?;
        let jemalloc = Jemalloc {
            functions,
            calls: 0,
            library,
        };
        // SAFETY: the library is pinned, and the linker listed it at these addresses.
        let are_loaded = unsafe { functions.are_loaded(&(candidate.start..candidate.end)) };
        let shift = if are_loaded { jemalloc.try_out() } else { None };
        let Some(shift) = shift else {
            jemalloc.unpin();
            return None;
        };
        let calls = match mode {
            HookMode::Exact => recording::<EXACT>(shift),
            HookMode::Sampled => recording::<SAMPLED>(shift),
            HookMode::Jobs => recording::<JOBS>(shift),
        };
        match jemalloc.install(calls) {
            Some(calls) => Some(Jemalloc { calls, ..jemalloc }),
            None => {
                jemalloc.unpin();
                None
            }
        }
    }

    /// Removes the calls. Calls that other threads are making at this moment still finish.
    pub fn unhook(self) {
        self.remove(self.calls);
        self.unpin();
    }

    fn unpin(&self) {
        // SAFETY: the handle comes from `dlopen` and is closed once.
        unsafe { libc::dlclose(self.library as *mut c_void) };
    }

    /// Allocates and frees a block. If the calls were as expected, returns by how much this release's numbers of the
    /// functions differ from those of older releases.
    fn try_out(&self) -> Option<usize> {
        TRIAL_NUMBER.store(-1, Ordering::Release);
        TRIAL_CALLS.store(0, Ordering::Release);
        let calls = self.install(Calls {
            alloc: trial_alloc,
            release: trial_release,
            resize: trial_resize,
            extra: null_mut(),
        })?;
        // SAFETY: the pinned library has jemalloc's functions of these names here, as `hook` has checked, and these
        // are their types.
        unsafe {
            let mallocx = std::mem::transmute::<usize, Mallocx>(self.functions.mallocx.address);
            let sdallocx = std::mem::transmute::<usize, Sdallocx>(self.functions.sdallocx.address);
            let block = mallocx(TRIAL_BYTES, 0);
            if !block.is_null() {
                sdallocx(block, TRIAL_BYTES, 0);
            }
        }
        self.remove(calls);
        let shift = TRIAL_NUMBER.load(Ordering::Acquire) - MALLOCX;
        let is_right = TRIAL_CALLS.load(Ordering::Acquire) == 2 && (0..=1).contains(&shift);
        is_right.then_some(shift as usize)
    }

    fn install(&self, mut calls: Calls) -> Option<usize> {
        let mut handle = 0usize;
        let mut len = size_of::<usize>();
        // SAFETY: this is jemalloc's `mallctl` in a pinned library. It checks both lengths and copies the struct.
        let result = unsafe {
            std::mem::transmute::<usize, Mallctl>(self.functions.mallctl.address)(
                INSTALL.as_ptr(),
                (&raw mut handle).cast(),
                &raw mut len,
                (&raw mut calls).cast(),
                size_of::<Calls>(),
            )
        };
        (result == 0 && handle != 0).then_some(handle)
    }

    fn remove(&self, mut handle: usize) {
        // SAFETY: this is jemalloc's `mallctl` in a pinned library, and `install` got this handle from it.
        unsafe {
            std::mem::transmute::<usize, Mallctl>(self.functions.mallctl.address)(
                REMOVE.as_ptr(),
                null_mut(),
                null_mut(),
                (&raw mut handle).cast(),
                size_of::<usize>(),
            );
        }
    }
}

/// Keeps a library loaded, if it is the one at `base`.
fn pin(path: &[u8], base: usize) -> Option<usize> {
    let path = CString::new(path).ok()?;
    let name = match path.is_empty() {
        true => std::ptr::null(),
        false => path.as_ptr(),
    };
    // SAFETY: the name is null or a C string, and RTLD_NOLOAD loads nothing.
    let handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    let mut map: *const usize = std::ptr::null();
    // SAFETY: `dlopen` returned the handle. The linker writes a pointer to its entry, which begins with the base address and
    // lives as long as the handle is open.
    let is_same = unsafe {
        libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) == 0
            && !map.is_null()
            && *map == base
    };
    if !is_same {
        // SAFETY: the handle comes from `dlopen` and is closed once.
        unsafe { libc::dlclose(handle) };
        return None;
    }
    Some(handle as usize)
}

/// The calls for a mode. `shift` is the difference between the numbers from `MALLOCX` on and those of older releases.
fn recording<const MODE: u8>(shift: usize) -> Calls {
    Calls {
        alloc: on_alloc::<MODE>,
        release: on_release::<MODE>,
        resize: on_resize::<MODE>,
        extra: shift as *mut c_void,
    }
}

/// # Safety
/// Only jemalloc calls this function, with a block's address and at least three arguments of the call that allocated it.
unsafe extern "C" fn on_alloc<const MODE: u8>(
    shift: *mut c_void,
    number: c_int,
    block: usize,
    _: usize,
    arguments: *const usize,
) {
    // SAFETY: jemalloc passes at least three arguments, as the contract above says.
    let argument = |n: usize| unsafe { arguments.add(n).read() };
    let number = match number {
        MALLOCX.. => number - shift as c_int,
        _ => number,
    };
    let (allocator, size) = match number {
        0 => (Allocator::Malloc, argument(0)),
        1 => (Allocator::PosixMemalign, argument(2)),
        2 => (Allocator::AlignedAlloc, argument(1)),
        3 => (Allocator::Calloc, argument(0).wrapping_mul(argument(1))),
        4 => (Allocator::Memalign, argument(1)),
        5 => (Allocator::Valloc, argument(0)),
        MALLOCX => (Allocator::Malloc, argument(0)),
        _ => (Allocator::Realloc, argument(1)),
    };
    record_allocation::<MODE>(allocator, size, block as *mut c_void, None);
}

/// # Safety
/// As for [`on_alloc`]; the block is not released yet. None of the pointers is read.
unsafe extern "C" fn on_release<const MODE: u8>(
    _: *mut c_void,
    _: c_int,
    block: usize,
    _: *const usize,
) {
    if block != 0 {
        record_release::<MODE>(block, false);
    }
}

/// # Safety
/// As for [`on_alloc`]. The block belongs to the caller before and after, so no other thread gets its address meanwhile. None
/// of the pointers is read.
unsafe extern "C" fn on_resize<const MODE: u8>(
    _: *mut c_void,
    _: c_int,
    block: usize,
    _old_bytes: usize,
    new_bytes: usize,
    _: usize,
    _: *const usize,
) {
    record_release::<MODE>(block, false);
    record_allocation::<MODE>(Allocator::Realloc, new_bytes, block as *mut c_void, None);
}

/// # Safety
/// As for [`on_alloc`], on any thread that allocates during the trial: at least one argument.
unsafe extern "C" fn trial_alloc(
    _: *mut c_void,
    number: c_int,
    block: usize,
    _: usize,
    arguments: *const usize,
) {
    // SAFETY: jemalloc passes at least one argument, as the contract above says.
    if block != 0 && unsafe { arguments.read() } == TRIAL_BYTES {
        TRIAL_NUMBER.store(number, Ordering::Release);
        TRIAL_CALLS.fetch_add(1, Ordering::AcqRel);
    }
}

/// # Safety
/// As for [`on_alloc`], on any thread that frees during the trial: memory for at least two arguments.
unsafe extern "C" fn trial_release(
    _: *mut c_void,
    _: c_int,
    block: usize,
    arguments: *const usize,
) {
    // SAFETY: jemalloc passes memory for at least two arguments, as the contract above says.
    if block != 0 && unsafe { (arguments.read(), arguments.add(1).read()) } == (block, TRIAL_BYTES)
    {
        TRIAL_CALLS.fetch_add(1, Ordering::AcqRel);
    }
}

/// # Safety
/// None: the function does nothing.
unsafe extern "C" fn trial_resize(
    _: *mut c_void,
    _: c_int,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: *const usize,
) {
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_is_not_in_memory_is_not_read() {
        let page = std::hint::black_box([7u8; 64]);
        let start = page.as_ptr() as usize;
        let library = start..start + page.len();
        let is_loaded = |address, code| {
            let function = InMemory { address, code };
            // SAFETY: the array is alive.
            unsafe { function.is_loaded(&library) }
        };
        assert!(is_loaded(start + 48, [7; 16]));
        assert!(!is_loaded(start + 48, [8; 16]));
        assert!(!is_loaded(start + 49, [7; 16]));
        assert!(!is_loaded(start - 1, [7; 16]));
        assert!(!is_loaded(usize::MAX, [7; 16]));
        // A library has gaps between its segments.
        let function = InMemory {
            address: 16,
            code: [0; 16],
        };
        // SAFETY: nothing is readable there.
        assert!(!unsafe { function.is_loaded(&(0..64)) });
    }
}
