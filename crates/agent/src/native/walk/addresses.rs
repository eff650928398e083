//! A thread's cache of code addresses: the rule for the step to the caller, the library, and the address in the
//! library's file. Unloading a library empties it.

use super::NativeStack;
use crate::native::modules::{self, Owner};
use crate::native::rules::{Rule, rule_of};

pub(super) const N_CACHED: usize = 2048;

/// The entry of one address.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Cached {
    pub pc: usize,
    pub rule: Rule,
    pub module: u32,
    pub offset: u32,
}

impl NativeStack {
    #[cold]
    #[inline(never)]
    pub(super) fn forget_addresses(&mut self) {
        self.generation = modules::generation();
        for cached in &mut self.cache {
            cached.pc = 0;
        }
        self.depth = 0;
    }

    /// # Safety
    /// A frame of this thread returns to `pc`, unless `after_guess` is set.
    #[inline(always)]
    pub(super) unsafe fn cached(&mut self, pc: usize) -> Cached {
        let cached = self.cache[slot_of(pc)];
        if cached.pc == pc {
            cached
        } else {
            // SAFETY: passed on from the caller.
            unsafe { self.learn(pc) }
        }
    }

    /// # Safety
    /// As for [`NativeStack::cached`].
    #[cold]
    #[inline(never)]
    unsafe fn learn(&mut self, pc: usize) -> Cached {
        let _errno = crate::host::sys::KeepErrno::now();
        let mut cached = Cached {
            pc,
            rule: Rule::default(),
            module: 0,
            offset: 0,
        };
        // SAFETY: a frame of this thread returns to the address, or no library is unloaded during the call.
        let mut fill = || unsafe { fill(&mut cached) };
        if !self.after_guess {
            fill();
        } else if modules::while_none_unloads(fill).is_none() {
            cached.pc = 0;
        }
        self.cache[slot_of(pc)] = cached;
        cached
    }
}

/// Finds the rule, the library and the offset of an address.
///
/// # Safety
/// As for [`modules::owner_of`].
unsafe fn fill(cached: &mut Cached) {
    let pc = cached.pc;
    // SAFETY: passed on from the caller.
    match unsafe { modules::owner_of(pc) } {
        Owner::Module(module) => {
            // SAFETY: a frame of this thread returns to the library, or `dlclose` waits for `while_none_unloads`. In both
            // cases the library stays loaded.
            cached.rule = unsafe { rule_of(&module, pc) };
            let own = modules::on_unload as *const () as usize;
            if !(module.start..module.end).contains(&own) {
                cached.module = module.id;
                cached.offset = u32::try_from(pc.wrapping_sub(module.base)).unwrap_or(u32::MAX - 1);
            }
        }
        Owner::Nowhere(id) => cached.module = id,
        // Not cached: the next event tries again.
        Owner::Busy => cached.pc = 0,
    }
}

#[inline(always)]
fn slot_of(pc: usize) -> usize {
    pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53 & (N_CACHED - 1)
}
