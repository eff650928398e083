//! The one list of hooked functions, and putting the hooks in place.
//!
//! A function is recorded if and only if it stands in [`HOOKS`]; look-up, patching and restoring all read that list.
//! For each there is a hook that records everything and one that samples; which of them is installed is decided once a
//! session, so the hooks themselves never ask.

mod libc_memory;
mod pymem;
mod symbol_lookup;

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::config::Config;
use crate::cpython::Symbols;
use crate::error::StartError;
use crate::libraries;

pub struct Hook {
    pub name: &'static CStr,
    real: &'static AtomicUsize,
    exact: fn() -> usize,
    sampled: fn() -> usize,
}

static SAMPLING: AtomicBool = AtomicBool::new(false);

impl Hook {
    /// The function itself; 0 if the C library has none of that name.
    pub fn real(&self) -> usize {
        self.real.load(Ordering::Relaxed)
    }

    /// What is to be called instead in this session.
    pub fn chosen(&self) -> usize {
        if SAMPLING.load(Ordering::Relaxed) {
            (self.sampled)()
        } else {
            (self.exact)()
        }
    }

    pub fn is_ours(&self, address: usize) -> bool {
        address == (self.exact)() || address == (self.sampled)()
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
    mmap mmap64 munmap mremap dlsym }
}

macro_rules! hooks {
    ($($name:ident => $exact:expr, $sampled:expr;)*) => {
        pub static HOOKS: &[Hook] = &[ $( Hook {
            name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a function's name holds a null byte"),
            },
            real: &real::$name,
            exact: || $exact as *const () as usize,
            sampled: || $sampled as *const () as usize,
        } ),* ];
    };
}

use libc_memory as hook;
hooks! {
    malloc => hook::malloc::<false>, hook::malloc::<true>;
    calloc => hook::calloc::<false>, hook::calloc::<true>;
    realloc => hook::realloc::<false>, hook::realloc::<true>;
    reallocarray => hook::reallocarray::<false>, hook::reallocarray::<true>;
    free => hook::free::<false>, hook::free::<true>;
    posix_memalign => hook::posix_memalign::<false>, hook::posix_memalign::<true>;
    aligned_alloc => hook::aligned_alloc::<false>, hook::aligned_alloc::<true>;
    memalign => hook::memalign::<false>, hook::memalign::<true>;
    valloc => hook::valloc::<false>, hook::valloc::<true>;
    pvalloc => hook::pvalloc::<false>, hook::pvalloc::<true>;
    mmap => hook::mmap::<false>, hook::mmap::<true>;
    mmap64 => hook::mmap64::<false>, hook::mmap64::<true>;
    munmap => hook::munmap, hook::munmap;
    mremap => hook::mremap::<false>, hook::mremap::<true>;
    dlsym => symbol_lookup::hook(), symbol_lookup::hook();
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

/// # Safety
/// The calling thread holds the GIL, and [`prepare`] went well.
pub unsafe fn install(symbols: &Symbols, config: &Config) {
    SAMPLING.store(config.sample_bytes > 0, Ordering::Release);
    libraries::install();
    if config.objects {
        // SAFETY: as the caller says.
        unsafe { pymem::install(symbols, config.sample_bytes > 0) };
    }
}

/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn remove(symbols: &Symbols) {
    // SAFETY: as the caller says.
    unsafe { pymem::remove(symbols) };
    libraries::remove();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_function_stands_twice_in_the_list_and_every_one_has_its_own_hook() {
        let mut names: Vec<_> = HOOKS.iter().map(|hook| hook.name).collect();
        let mut addresses: Vec<_> = HOOKS.iter().map(|hook| (hook.exact)()).collect();
        names.sort();
        names.dedup();
        addresses.sort();
        addresses.dedup();
        assert_eq!(names.len(), HOOKS.len());
        assert!(addresses.iter().all(|&address| address != 0));
    }
}
