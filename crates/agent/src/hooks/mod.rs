//! The one list of hooked functions, and putting the hooks in place.
//!
//! A function is recorded if and only if it stands in [`HOOKS`]; look-up, patching and restoring all read that list.
//! For each there is a hook that records everything, one that samples and one that keeps the accounts of jobs; which of
//! them is installed is decided once a session, so the hooks themselves never ask.

mod events;
mod libc_memory;
mod pymem;
mod symbol_lookup;
mod traced;

use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::cpython::Symbols;
use crate::session::error::StartError;
use crate::{arenas, jobs, libraries, session};

pub struct Hook {
    pub name: &'static CStr,
    real: &'static AtomicUsize,
    /// By `Kind as usize`.
    ours: [fn() -> usize; 3],
    /// Of functions that a library with an allocator of its own has a hook of its own for: by kind and by number.
    arenas: &'static [[fn() -> usize; arenas::N_LIBRARIES]],
}

/// What a hook does with an event. As numbers, because a hook is compiled for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Exact = EXACT,
    Sampled = SAMPLED,
    /// Who allocated what is kept in `jobs`; it goes into a capture as well if a recording runs, too.
    Jobs = JOBS,
}

pub const EXACT: u8 = 0;
pub const SAMPLED: u8 = 1;
pub const JOBS: u8 = 2;

static CHOSEN: AtomicU8 = AtomicU8::new(EXACT);

/// How the session records: [`Recorded`] in two bits and one that says that there is one.
static RECORDED: AtomicU8 = AtomicU8::new(0);

/// What a session asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Exact or sampled.
    pub kind: Kind,
    /// Python's own allocators, too.
    pub objects: bool,
}

/// What the present session asked for, for hooks that do not know it.
#[inline]
pub fn recorded() -> Option<Recorded> {
    let bits = RECORDED.load(Ordering::Relaxed);
    (bits & 1 != 0).then_some(Recorded {
        kind: if bits & 2 != 0 {
            Kind::Sampled
        } else {
            Kind::Exact
        },
        objects: bits & 4 != 0,
    })
}

impl Kind {
    /// That of the hooks which were put in place last.
    pub fn chosen() -> Kind {
        match CHOSEN.load(Ordering::Relaxed) {
            SAMPLED => Kind::Sampled,
            JOBS => Kind::Jobs,
            _ => Kind::Exact,
        }
    }
}

/// The program's `malloc`.
pub fn real_malloc() -> usize {
    real::malloc.load(Ordering::Relaxed)
}

impl Hook {
    /// The function itself; 0 if the C library has none of that name.
    pub fn real(&self) -> usize {
        self.real.load(Ordering::Relaxed)
    }

    /// What is to be called instead in this session, by a library with or without an allocator of its own.
    pub fn chosen(&self, arena: Option<usize>) -> usize {
        let kind = usize::from(CHOSEN.load(Ordering::Relaxed));
        match (arena, self.arenas.get(kind)) {
            (Some(number), Some(hooks)) => (hooks[number])(),
            _ => (self.ours[kind])(),
        }
    }

    /// What whoever looks the function up by name is given, and may keep longer than this session lasts: the hook that asks
    /// what is recorded each time.
    pub fn for_any_session(&self) -> usize {
        (self.ours[usize::from(JOBS)])()
    }

    pub fn is_ours(&self, address: usize) -> bool {
        let mut all = self.ours.iter().chain(self.arenas.iter().flatten());
        all.any(|ours| address == ours())
    }

    /// Whether it takes memory from the kernel.
    pub fn maps(&self) -> bool {
        !self.arenas.is_empty()
    }
}

/// Where the real functions are, by name.
pub mod real {
    use std::sync::atomic::AtomicUsize;
    macro_rules! places {
        ($($name:ident)*) => { $(
            #[allow(non_upper_case_globals, reason = "named like the function whose address it holds")]
            pub static $name: AtomicUsize = AtomicUsize::new(0);
        )* };
    }
    places! { malloc calloc realloc reallocarray free posix_memalign aligned_alloc memalign valloc pvalloc
    mmap mmap64 munmap mremap dlsym dlclose }
}

macro_rules! hooks {
    (@arenas) => { &[] };
    (@arenas $arenas:expr) => { $arenas };
    ($($name:ident => $exact:expr, $sampled:expr, $jobs:expr $(, $arenas:expr)?;)*) => {
        pub static HOOKS: &[Hook] = &[ $( Hook {
            name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a function's name holds a null byte"),
            },
            real: &real::$name,
            ours: [
                || $exact as *const () as usize,
                || $sampled as *const () as usize,
                || $jobs as *const () as usize,
            ],
            arenas: hooks!(@arenas $($arenas)?),
        } ),* ];
    };
}

pub use events::{allocated, releasing};
use libc_memory as hook;
use libc_memory::NO_ARENA;

/// Hooks of `mmap` or `mmap64` for libraries with an allocator of their own.
macro_rules! arena_hooks {
    ($is_64:literal) => {
        &[
            arena_hooks!($is_64 EXACT 0 1 2 3 4 5 6 7),
            arena_hooks!($is_64 SAMPLED 0 1 2 3 4 5 6 7),
            arena_hooks!($is_64 JOBS 0 1 2 3 4 5 6 7),
        ]
    };
    ($is_64:literal $kind:ident $($number:literal)*) => {
        [$(|| hook::mmap::<{ $kind }, $number, $is_64> as *const () as usize),*]
    };
}
hooks! {
    malloc => hook::malloc::<EXACT>, hook::malloc::<SAMPLED>, hook::malloc::<JOBS>;
    calloc => hook::calloc::<EXACT>, hook::calloc::<SAMPLED>, hook::calloc::<JOBS>;
    realloc => hook::realloc::<EXACT>, hook::realloc::<SAMPLED>, hook::realloc::<JOBS>;
    reallocarray => hook::reallocarray::<EXACT>, hook::reallocarray::<SAMPLED>, hook::reallocarray::<JOBS>;
    free => hook::free::<EXACT>, hook::free::<SAMPLED>, hook::free::<JOBS>;
    posix_memalign => hook::posix_memalign::<EXACT>, hook::posix_memalign::<SAMPLED>, hook::posix_memalign::<JOBS>;
    aligned_alloc => hook::aligned_alloc::<EXACT>, hook::aligned_alloc::<SAMPLED>, hook::aligned_alloc::<JOBS>;
    memalign => hook::memalign::<EXACT>, hook::memalign::<SAMPLED>, hook::memalign::<JOBS>;
    valloc => hook::valloc::<EXACT>, hook::valloc::<SAMPLED>, hook::valloc::<JOBS>;
    pvalloc => hook::pvalloc::<EXACT>, hook::pvalloc::<SAMPLED>, hook::pvalloc::<JOBS>;
    mmap => hook::mmap::<EXACT, NO_ARENA, false>, hook::mmap::<SAMPLED, NO_ARENA, false>, hook::mmap::<JOBS, NO_ARENA, false>,
        arena_hooks!(false);
    mmap64 => hook::mmap::<EXACT, NO_ARENA, true>, hook::mmap::<SAMPLED, NO_ARENA, true>, hook::mmap::<JOBS, NO_ARENA, true>,
        arena_hooks!(true);
    munmap => hook::munmap::<EXACT>, hook::munmap::<SAMPLED>, hook::munmap::<JOBS>;
    mremap => hook::mremap::<EXACT>, hook::mremap::<SAMPLED>, hook::mremap::<JOBS>;
    dlsym => symbol_lookup::hook(), symbol_lookup::hook(), symbol_lookup::hook();
    dlclose => hook::dlclose, hook::dlclose, hook::dlclose;
}

/// The hook of a function that the process has.
pub fn named(name: &CStr) -> Option<&'static Hook> {
    // Nearly all names end here, without being compared.
    let first = name.to_bytes().first()?;
    if !matches!(first, b'a' | b'c' | b'd' | b'f' | b'm' | b'p' | b'r' | b'v') {
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
        (&real::malloc, "malloc"),
        (&real::free, "free"),
        (&real::mmap, "mmap"),
        (&real::dlsym, "dlsym"),
    ] {
        if real.load(Ordering::Relaxed) == 0 {
            return Err(StartError::NoAllocator(name));
        }
    }
    symbol_lookup::prepare();
    Ok(())
}

/// Puts the hooks of a session in place. While jobs are traced, those are there already and do both.
///
/// # Safety
/// The calling thread holds the GIL, and [`prepare`] went well.
pub unsafe fn install(symbols: &Symbols, wanted: Recorded) {
    let bits = 1 | u8::from(wanted.kind == Kind::Sampled) << 1 | u8::from(wanted.objects) << 2;
    RECORDED.store(bits, Ordering::Release);
    let is_traced = jobs::is_active();
    let kind = if is_traced { Kind::Jobs } else { wanted.kind };
    // SAFETY: as the caller says.
    unsafe { put(symbols, kind, wanted.objects || is_traced) };
}

/// Puts the hooks for the accounts of jobs in place, in that of a session's if there are such.
///
/// # Safety
/// As [`install`].
pub unsafe fn install_for_jobs(symbols: &Symbols) {
    // SAFETY: as the caller says.
    unsafe { put(symbols, Kind::Jobs, true) };
}

unsafe fn put(symbols: &Symbols, kind: Kind, objects: bool) {
    CHOSEN.store(kind as u8, Ordering::Release);
    libraries::install();
    if objects {
        // SAFETY: as the caller says.
        unsafe { pymem::install(symbols, kind) };
    }
}

/// A session ends, or the tracing of jobs does; the hooks stay if the other goes on.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn remove(symbols: &Symbols, other_goes_on: bool) {
    if !session::is_active() {
        RECORDED.store(0, Ordering::Release);
    }
    if other_goes_on {
        return;
    }
    // SAFETY: as the caller says.
    unsafe { pymem::remove(symbols) };
    libraries::remove();
    arenas::remove();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_function_stands_twice_in_the_list_and_every_one_has_its_own_hook() {
        let mut names: Vec<_> = HOOKS.iter().map(|hook| hook.name).collect();
        let mut addresses: Vec<_> = HOOKS.iter().map(|hook| (hook.ours[0])()).collect();
        names.sort();
        names.dedup();
        addresses.sort();
        addresses.dedup();
        assert_eq!(names.len(), HOOKS.len());
        assert!(addresses.iter().all(|&address| address != 0));
    }
}
