//! A jemalloc inside a library, asked to call us for each of its blocks.
//!
//! jemalloc has a switch for that, `experimental.hooks.install`, reached by its function `mallctl`, which the library's
//! table of symbols names even where nothing is exported. The switch is no promise of jemalloc's, so it is tried first: a
//! block is made and released, and only if the calls come as expected are they used. What is called by number differs
//! between releases by one, which the trial tells, too.
//!
//! Allocations are told after they happened and releases before they do, as `record` wants them.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use heaptide_capture::Allocator;

use super::elf_file::{ElfFile, Function};
use crate::hooks::{EXACT, HookMode, JOBS, SAMPLED, record_allocation, record_release};

type Mallctl =
    unsafe extern "C" fn(*const libc::c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;
type Mallocx = unsafe extern "C" fn(usize, c_int) -> *mut c_void;
type Sdallocx = unsafe extern "C" fn(*mut c_void, usize, c_int);
type OnAlloc = unsafe extern "C" fn(*mut c_void, c_int, usize, usize, *const usize);
type OnRelease = unsafe extern "C" fn(*mut c_void, c_int, usize, *const usize);
type OnResize = unsafe extern "C" fn(*mut c_void, c_int, usize, usize, usize, usize, *const usize);

/// What jemalloc is told to call.
#[repr(C)]
struct Calls {
    alloc: OnAlloc,
    release: OnRelease,
    resize: OnResize,
    extra: *mut c_void,
}

const INSTALL: &CStr = c"experimental.hooks.install";
const REMOVE: &CStr = c"experimental.hooks.remove";
/// A size that nobody else asks for.
const TRIAL_BYTES: usize = 4099;
/// `mallocx` by number, in releases before 5.3.1.
const MALLOCX: c_int = 6;

/// What the trial saw: which number, and how often.
static TRIAL_NUMBER: AtomicI32 = AtomicI32::new(-1);
static TRIAL_CALLS: AtomicUsize = AtomicUsize::new(0);

/// Where the functions are that are needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Functions {
    mallctl: usize,
    mallocx: usize,
    sdallocx: usize,
}

impl Functions {
    /// Looks for them in the file of a library that is loaded at `base`.
    pub fn find(file: &ElfFile, base: usize) -> Option<Functions> {
        for mallctl in file.functions_ending(b"mallctl") {
            let prefix = mallctl.name.strip_suffix(b"mallctl").unwrap_or_default();
            let sibling = |name: &[u8]| {
                let name = [prefix, name].concat();
                let found = file.functions_ending(&name);
                found.into_iter().find(|function| function.name == name)
            };
            if let (Some(mallocx), Some(sdallocx)) = (sibling(b"mallocx"), sibling(b"sdallocx")) {
                return Some(Functions {
                    mallctl: loaded(base, &mallctl)?,
                    mallocx: loaded(base, &mallocx)?,
                    sdallocx: loaded(base, &sdallocx)?,
                });
            }
        }
        None
    }
}

/// The function's address, if what is there is what the file has: it may have been replaced since.
fn loaded(base: usize, function: &Function) -> Option<usize> {
    let address = base.checked_add(function.address)?;
    // SAFETY: the library is loaded at `base`, and its file has a function there, whose code is readable.
    let code = unsafe { (address as *const [u8; 16]).read_unaligned() };
    (code == function.code).then_some(address)
}

/// A jemalloc that calls us.
pub struct Jemalloc {
    functions: Functions,
    calls: usize,
    /// The linker's, so that the library stays.
    library: usize,
}

impl Jemalloc {
    pub fn functions(&self) -> Functions {
        self.functions
    }

    /// Has the jemalloc of a library that is loaded at `base` call us. `None` if it does not do what is expected.
    pub fn hook(
        path: &[u8],
        base: usize,
        functions: Functions,
        mode: HookMode,
    ) -> Option<Jemalloc> {
        let library = pin(path, base)?;
        let jemalloc = Jemalloc {
            functions,
            calls: 0,
            library,
        };
        let Some(shift) = jemalloc.try_out() else {
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

    /// It calls us no longer, but for calls that are under way.
    pub fn unhook(self) {
        self.remove(self.calls);
        self.unpin();
    }

    fn unpin(&self) {
        // SAFETY: the handle comes from `dlopen` and is given back once.
        unsafe { libc::dlclose(self.library as *mut c_void) };
    }

    /// Makes and releases a block, and sees what is called for it.
    fn try_out(&self) -> Option<usize> {
        TRIAL_NUMBER.store(-1, Ordering::Release);
        TRIAL_CALLS.store(0, Ordering::Release);
        let calls = self.install(Calls {
            alloc: trial_alloc,
            release: trial_release,
            resize: trial_resize,
            extra: null_mut(),
        })?;
        // SAFETY: these are jemalloc's functions of these types, in a library that is pinned.
        unsafe {
            let mallocx = std::mem::transmute::<usize, Mallocx>(self.functions.mallocx);
            let sdallocx = std::mem::transmute::<usize, Sdallocx>(self.functions.sdallocx);
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
        // SAFETY: jemalloc's function, which checks both lengths and copies what it is given.
        let result = unsafe {
            std::mem::transmute::<usize, Mallctl>(self.functions.mallctl)(
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
        // SAFETY: as in `install`; the handle is one that it gave out.
        unsafe {
            std::mem::transmute::<usize, Mallctl>(self.functions.mallctl)(
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
    // SAFETY: the name is null or a C string; a library that is loaded already is not loaded again.
    let handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    let mut map: *const usize = std::ptr::null();
    // SAFETY: the handle is valid, and the answer a pointer, to a struct that begins with the base.
    let is_it = unsafe {
        libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) == 0
            && !map.is_null()
            && *map == base
    };
    if !is_it {
        // SAFETY: given back once.
        unsafe { libc::dlclose(handle) };
        return None;
    }
    Some(handle as usize)
}

/// `shift`: by how much the numbers behind the first ones are greater than in older releases.
fn recording<const MODE: u8>(shift: usize) -> Calls {
    Calls {
        alloc: on_alloc::<MODE>,
        release: on_release::<MODE>,
        resize: on_resize::<MODE>,
        extra: shift as *mut c_void,
    }
}

/// # Safety
/// The calls below come from jemalloc: a block's address, and the arguments of the call that it was made by, three or more.
unsafe extern "C" fn on_alloc<const MODE: u8>(
    shift: *mut c_void,
    number: c_int,
    block: usize,
    _: usize,
    arguments: *const usize,
) {
    // SAFETY: as the contract of these calls says.
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
/// As [`on_alloc`]; the block is not released yet. None of the pointers is followed.
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
/// As [`on_alloc`]; the block is the caller's before and after, so nobody else is given its address meanwhile. None of the
/// pointers is followed.
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
/// As [`on_alloc`], of any thread that allocates during the trial: one argument or more.
unsafe extern "C" fn trial_alloc(
    _: *mut c_void,
    number: c_int,
    block: usize,
    _: usize,
    arguments: *const usize,
) {
    // SAFETY: as for `on_alloc`.
    if block != 0 && unsafe { arguments.read() } == TRIAL_BYTES {
        TRIAL_NUMBER.store(number, Ordering::Release);
        TRIAL_CALLS.fetch_add(1, Ordering::AcqRel);
    }
}

/// # Safety
/// As [`on_alloc`], of any thread that releases during the trial: room for two arguments or more, whatever they are.
unsafe extern "C" fn trial_release(
    _: *mut c_void,
    _: c_int,
    block: usize,
    arguments: *const usize,
) {
    // SAFETY: as for `on_alloc`; the arguments are those of `sdallocx`.
    if block != 0 && unsafe { (arguments.read(), arguments.add(1).read()) } == (block, TRIAL_BYTES)
    {
        TRIAL_CALLS.fetch_add(1, Ordering::AcqRel);
    }
}

/// # Safety
/// Nothing is asked of the caller: it does nothing.
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
