//! The list of hooked functions, and the installation of their hooks.
//!
//! [`HOOKS`] is the one list: it declares each function's type, and the allocators of its blocks in a capture.
//! [`named`] finds in it the function that a lookup or an import slot names. Tests compare the list with the
//! documentation.
//!
//! Each function that records has one hook per [`HookMode`]. A session installs the hooks of its mode, and others if
//! the mode changes, so the hooks for one mode do not check it. Only the hooks for jobs check it on every call.

pub(crate) mod events;
mod job_events;
mod libc_memory;
mod own_events;
mod pymem;
mod symbol_lookup;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

#[cfg(test)]
use heaptide_capture::Allocator;
use heaptide_capture::Mode;

use crate::cpython::Symbols;
use crate::host::{bus_error, exec, signals};
use crate::session::error::StartError;
use crate::{arenas, jobs, libraries, session};

pub use self::events::{record_allocation, record_release};

/// The type of `void *`.
type Pointer = *mut c_void;
/// The type of `char *const *`.
type Words = *const *const c_char;
type Mmap = extern "C" fn(Pointer, usize, c_int, c_int, c_int, i64) -> Pointer;

/// Declares the hooked functions: their real addresses in [`real`] and their entries in [`HOOKS`].
///
/// `memory` functions record. Each is `name: type = [allocators of its blocks]`, and `libc_memory` has a hook of the same
/// name, compiled for each mode. `other` functions record nothing and have one hook: these hooks detect loaded and
/// closed libraries, keep Heaptide's handler of SIGBUS installed and the signal unblocked, and report exec.
macro_rules! hooks {
    (
        memory { $($name:ident: $type:ty = [$($allocator:ident),*] $(by library $is_64:literal)?;)* }
        other { $($other:ident: $other_type:ty = $hook:expr;)* }
    ) => {
        /// The real functions, by name.
        pub mod real {
            use super::*;

            $( hooks!(@real $name: $type); )*
            $( hooks!(@real $other: $other_type); )*
        }

        pub static HOOKS: &[Hook] = &[
            $( Hook {
                name: hooks!(@name $name),
                real: &real::$name.address,
                #[cfg(test)]
                allocators: &[$(Allocator::$allocator),*],
                by_mode: [
                    || libc_memory::$name::<EXACT> as *const () as usize,
                    || libc_memory::$name::<SAMPLED> as *const () as usize,
                    || libc_memory::$name::<JOBS> as *const () as usize,
                ],
                by_library: hooks!(@by_library $($is_64)?),
            }, )*
            $( Hook {
                name: hooks!(@name $other),
                real: &real::$other.address,
                #[cfg(test)]
                allocators: &[],
                by_mode: [|| $hook as *const () as usize; 3],
                by_library: &[],
            }, )*
        ];
    };
    (@real $name:ident: $type:ty) => {
        #[allow(non_upper_case_globals, reason = "named like the function whose address it holds")]
        pub static $name: Real<$type> = Real { address: AtomicUsize::new(0), function: PhantomData };
    };
    (@name $name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a function's name holds a null byte"),
        }
    };
    (@by_library) => { &[] };
    (@by_library $is_64:literal) => {
        &[
            hooks!(@by_library $is_64 EXACT 0 1 2 3 4 5 6 7 8),
            hooks!(@by_library $is_64 SAMPLED 0 1 2 3 4 5 6 7 8),
            hooks!(@by_library $is_64 JOBS 0 1 2 3 4 5 6 7 8),
        ]
    };
    (@by_library $is_64:literal $mode:ident $($number:literal)*) => {
        [$(|| libc_memory::mmap_by_library::<{ $mode }, $number, $is_64> as *const () as usize),*]
    };
}

hooks! {
    memory {
        malloc: extern "C" fn(usize) -> Pointer = [Malloc];
        calloc: extern "C" fn(usize, usize) -> Pointer = [Calloc];
        realloc: extern "C" fn(Pointer, usize) -> Pointer = [Realloc];
        reallocarray: extern "C" fn(Pointer, usize, usize) -> Pointer = [Reallocarray];
        free: extern "C" fn(Pointer) = [];
        free_sized: extern "C" fn(Pointer, usize) = [];
        free_aligned_sized: extern "C" fn(Pointer, usize, usize) = [];
        posix_memalign: extern "C" fn(*mut Pointer, usize, usize) -> c_int = [PosixMemalign];
        aligned_alloc: extern "C" fn(usize, usize) -> Pointer = [AlignedAlloc];
        memalign: extern "C" fn(usize, usize) -> Pointer = [Memalign];
        valloc: extern "C" fn(usize) -> Pointer = [Valloc];
        pvalloc: extern "C" fn(usize) -> Pointer = [Pvalloc];
        mmap: Mmap = [Mmap, MmapFile] by library false;
        mmap64: Mmap = [Mmap, MmapFile] by library true;
        munmap: extern "C" fn(Pointer, usize) -> c_int = [];
        mremap: unsafe extern "C" fn(Pointer, usize, usize, c_int, ...) -> Pointer = [Mremap];
    }
    other {
        dlsym: extern "C" fn(Pointer, *const c_char) -> Pointer = symbol_lookup::hook();
        dlclose: extern "C" fn(Pointer) -> c_int = libc_memory::dlclose;
        sigaction: extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int = bus_error::sigaction;
        signal: extern "C" fn(c_int, usize) -> usize = bus_error::signal;
        pthread_sigmask: signals::ChangeMask = signals::pthread_sigmask;
        sigprocmask: signals::ChangeMask = signals::sigprocmask;
        execv: extern "C" fn(*const c_char, Words) -> c_int = exec::execv;
        execve: extern "C" fn(*const c_char, Words, Words) -> c_int = exec::execve;
    }
}

/// The address of a real function of type `F`.
pub struct Real<F> {
    address: AtomicUsize,
    function: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// The function.
    ///
    /// # Safety
    /// [`prepare`] has found the function. A hook of the function may rely on that: only then can it be installed.
    #[inline(always)]
    pub unsafe fn get(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let address = self.address.load(Ordering::Relaxed);
        // SAFETY: `prepare` has stored the function's address here, as the caller promises. `F` is the type that
        // [`hooks`] declares for that function, and an address has the size and the bits of a function pointer.
        unsafe { std::mem::transmute_copy(&address) }
    }

    /// The function, if [`prepare`] has found it.
    pub fn get_if_found(&self) -> Option<F> {
        // SAFETY: only `prepare` stores an address.
        (self.address.load(Ordering::Relaxed) != 0).then(|| unsafe { self.get() })
    }
}

/// One hooked function.
pub struct Hook {
    pub name: &'static CStr,
    real: &'static AtomicUsize,
    /// The allocators of this function's blocks in a capture; tests compare them with the format's numbers.
    #[cfg(test)]
    allocators: &'static [Allocator],
    /// The hooks, by `HookMode as usize`.
    by_mode: [fn() -> usize; 3],
    /// Hooks for libraries with a bundled allocator, by mode and by the number that `arenas` gave the library. Empty for
    /// functions that do not map memory.
    by_library: &'static [[fn() -> usize; arenas::N_HOOKS]],
}

/// What a hook does with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HookMode {
    /// Records every event.
    Exact = EXACT,
    /// Records a sample.
    Sampled = SAMPLED,
    /// Updates the accounts of jobs, and records if a session runs at the same time.
    Jobs = JOBS,
}

// As numbers, because hooks are compiled for each mode and a const parameter cannot be an enum.
pub const EXACT: u8 = 0;
pub const SAMPLED: u8 = 1;
pub const JOBS: u8 = 2;

/// The mode of the hooks that were installed last.
static INSTALLED_MODE: AtomicU8 = AtomicU8::new(EXACT);
/// The [`SessionMode`] as bits; 0 without a session.
static SESSION_MODE: AtomicU8 = AtomicU8::new(0);

/// The part of the current session's mode that hooks for jobs need.
#[derive(Clone, Copy)]
pub struct SessionMode {
    pub sampled: bool,
    pub objects: bool,
}

impl SessionMode {
    const ACTIVE: u8 = 1;
    const SAMPLED: u8 = 2;
    const OBJECTS: u8 = 4;

    /// The current session's mode; `None` without a session.
    #[inline]
    fn current() -> Option<SessionMode> {
        let bits = SESSION_MODE.load(Ordering::Relaxed);
        (bits & Self::ACTIVE != 0).then_some(SessionMode {
            sampled: bits & Self::SAMPLED != 0,
            objects: bits & Self::OBJECTS != 0,
        })
    }

    fn set(mode: &Mode) {
        let mut bits = Self::ACTIVE;
        if mode.sample_bytes > 0 {
            bits |= Self::SAMPLED;
        }
        if mode.objects {
            bits |= Self::OBJECTS;
        }
        SESSION_MODE.store(bits, Ordering::Release);
    }
}

impl HookMode {
    /// The mode of the hooks that were installed last.
    pub fn installed() -> HookMode {
        match INSTALLED_MODE.load(Ordering::Relaxed) {
            SAMPLED => HookMode::Sampled,
            JOBS => HookMode::Jobs,
            _ => HookMode::Exact,
        }
    }
}

/// The address of the program's `malloc`.
pub fn real_malloc() -> usize {
    real::malloc.address.load(Ordering::Relaxed)
}

impl Hook {
    /// The address of the function itself; 0 if the process has none of that name.
    pub fn real(&self) -> usize {
        self.real.load(Ordering::Relaxed)
    }

    /// The hook that import slots hold in this session. `library` is the number of a library with a bundled allocator.
    pub fn installed(&self, library: Option<usize>) -> usize {
        let mode = usize::from(INSTALLED_MODE.load(Ordering::Relaxed));
        match (library, self.by_library.get(mode)) {
            (Some(number), Some(hooks)) => (hooks[number])(),
            _ => (self.by_mode[mode])(),
        }
    }

    /// The address `dlsym` returns for this function. Callers may keep it after the session ends, so this hook
    /// checks the mode on every call.
    pub fn for_any_session(&self) -> usize {
        (self.by_mode[usize::from(JOBS)])()
    }

    /// Whether `address` is one of this function's hooks.
    pub fn has_hook_at(&self, address: usize) -> bool {
        let mut all = self.by_mode.iter().chain(self.by_library.iter().flatten());
        all.any(|hook| address == hook())
    }

    /// Whether the function is `mmap` or `mmap64`, with which a bundled allocator takes memory from the kernel.
    pub fn maps(&self) -> bool {
        !self.by_library.is_empty()
    }
}

/// The first letters of all hooked functions, as bits from `a`.
const FIRST_LETTERS: u32 = {
    let mut letters = 0;
    let mut i = 0;
    while i < HOOKS.len() {
        letters |= 1 << (HOOKS[i].name.to_bytes()[0] - b'a');
        i += 1;
    }
    letters
};

/// The hook of a function that the process has.
pub fn named(name: &CStr) -> Option<&'static Hook> {
    // Rejects most names without comparing them, because this runs for every lookup and every import slot of the process.
    let letter = name.to_bytes().first()?.wrapping_sub(b'a');
    if letter >= 26 || FIRST_LETTERS >> letter & 1 == 0 {
        return None;
    }
    HOOKS
        .iter()
        .find(|hook| hook.name == name && hook.real() != 0)
}

/// Finds the real functions. Call before [`install`].
pub fn prepare() -> Result<(), StartError> {
    for hook in HOOKS {
        if hook.real() == 0 {
            hook.real
                .store(libraries::definition(hook.name), Ordering::Release);
        }
    }
    for (real, name) in [
        (&real::malloc.address, "malloc"),
        (&real::free.address, "free"),
        (&real::mmap.address, "mmap"),
        (&real::dlsym.address, "dlsym"),
    ] {
        if real.load(Ordering::Relaxed) == 0 {
            return Err(StartError::NoAllocator(name));
        }
    }
    symbol_lookup::prepare();
    Ok(())
}

/// Installs the hooks of a session. While jobs are traced, their hooks are already installed and serve both.
///
/// # Safety
/// The calling thread holds the GIL, and [`prepare`] succeeded.
pub unsafe fn install(symbols: &Symbols, mode: &Mode) {
    SessionMode::set(mode);
    let is_traced = jobs::is_active();
    let hook_mode = match mode.sample_bytes {
        _ if is_traced => HookMode::Jobs,
        0 => HookMode::Exact,
        _ => HookMode::Sampled,
    };
    // SAFETY: the caller promises what `install_mode` requires.
    unsafe { install_mode(symbols, hook_mode, mode.objects || is_traced) };
}

/// Installs the hooks of a session's new mode. If the session recorded objects, hooks of Python's allocators stay: they
/// record the release of these objects.
///
/// # Safety
/// As for [`install`]. A session is active.
pub unsafe fn change(symbols: &Symbols, mode: &Mode) {
    // SAFETY: the caller promises what both functions require.
    unsafe {
        install(symbols, mode);
        if !mode.objects && !jobs::is_active() && pymem::are_installed() {
            pymem::install(symbols, HookMode::Jobs);
        }
    }
}

/// Installs the hooks for the accounts of jobs. They replace those of a session, if there is one.
///
/// # Safety
/// As for [`install`].
pub unsafe fn install_for_jobs(symbols: &Symbols) {
    // SAFETY: the caller promises what `install_mode` requires.
    unsafe { install_mode(symbols, HookMode::Jobs, true) };
}

/// # Safety
/// As for [`install`].
unsafe fn install_mode(symbols: &Symbols, mode: HookMode, objects: bool) {
    INSTALLED_MODE.store(mode as u8, Ordering::Release);
    libraries::install();
    if objects {
        // SAFETY: the caller holds the GIL.
        unsafe { pymem::install(symbols, mode) };
    }
}

/// Removes the hooks when a session or the tracing of jobs ends. They stay if the other one continues.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn remove(symbols: &Symbols, other_continues: bool) {
    if !session::is_active() {
        SESSION_MODE.store(0, Ordering::Release);
    }
    if other_continues {
        return;
    }
    // SAFETY: the caller holds the GIL.
    unsafe { pymem::remove(symbols) };
    libraries::remove();
    arenas::remove();
}
