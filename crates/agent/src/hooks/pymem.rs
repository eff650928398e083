//! Hooks of Python's own allocators (raw, mem and object domain). Sessions with objects and traced jobs install them.
//!
//! A hook calls the allocator that the interpreter had before (pymalloc, malloc, debug hooks). The calls to the C
//! library that this allocator makes meanwhile belong to the same allocation and are not recorded again.
//!
//! Another tool (`tracemalloc`, for example) may install its own hooks later, which call Heaptide's. So Heaptide's hooks
//! stay installed when the recording stops, and then only forward calls. The next recording installs further hooks above
//! those of the tool, each with its own original: hooks that shared one would call each other for ever.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use heaptide_capture::Allocator;

use super::events::{Release, record_allocation, record_release, record_resize, undo_release};
use super::job_events::{NestedForJobs, WholeCall};
use super::{EXACT, HookMode, JOBS, Pointer, SAMPLED};
use crate::cpython::{MemAllocator, Symbols};
use crate::record::threads::Nested;

const N_DOMAINS: usize = 3;
/// The domain whose functions are also called without the GIL.
const RAW: usize = 0;
/// The number of levels of one domain. A tool that was installed above the hooks of a level keeps the level in use.
///
/// In the raw domain, a level never gets another original (see [`free_level`]), so hooks can replace at most this many
/// different allocators there. The hooks of the C library record the blocks of further ones.
const MAX_LEVELS: usize = 32;

/// The state of the hooks that were installed together in one domain. The interpreter passes its address to them.
struct Level {
    /// The allocator that the hooks replaced.
    original: UnsafeCell<MemAllocator>,
    /// Whether the interpreter or another tool may call the hooks.
    is_used: AtomicBool,
    /// Whether the hooks record. Otherwise they only forward calls.
    is_recording: AtomicBool,
}

impl Level {
    const fn new() -> Level {
        Level {
            original: UnsafeCell::new(NO_ALLOCATOR),
            is_used: AtomicBool::new(false),
            is_recording: AtomicBool::new(false),
        }
    }
}

// SAFETY: `install` writes the original with the GIL held, and only while no thread can be in a hook that reads it: see
// `free_level`.
unsafe impl Sync for Level {}

const NO_ALLOCATOR: MemAllocator = MemAllocator {
    ctx: std::ptr::null_mut(),
    malloc: None,
    calloc: None,
    realloc: None,
    free: None,
};

static LEVELS: [[Level; MAX_LEVELS]; N_DOMAINS] =
    [const { [const { Level::new() }; MAX_LEVELS] }; N_DOMAINS];
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Installs the hooks of a mode. They replace those of another mode, if there are any.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn install(symbols: &Symbols, mode: HookMode) {
    for (domain, levels) in LEVELS.iter().enumerate() {
        // SAFETY: the caller holds the GIL.
        let present = unsafe { present(symbols, domain) };
        // If a hook of another mode is installed, its original stays the original.
        let level = match level_of(levels, &present) {
            Some(level) => level,
            None => {
                if !is_complete(&present) {
                    continue;
                }
                // SAFETY: the caller holds the GIL.
                let Some(level) = (unsafe { free_level(domain, levels, &present) }) else {
                    continue;
                };
                // SAFETY: the caller holds the GIL, so no other thread writes.
                if !is_same(unsafe { &*level.original.get() }, &present) {
                    // SAFETY: as above, and no thread is in a hook of this level: see `free_level`.
                    unsafe { *level.original.get() = present };
                }
                level
            }
        };
        stop_recording(levels);
        level.is_used.store(true, Ordering::Release);
        level.is_recording.store(true, Ordering::Release);
        let mut hooks = match mode {
            HookMode::Exact => level.hooks::<EXACT>(),
            HookMode::Sampled => level.hooks::<SAMPLED>(),
            HookMode::Jobs => level.hooks::<JOBS>(),
        };
        // SAFETY: the caller holds the GIL, and the hooks have the types that the interpreter expects.
        unsafe { (symbols.set_allocator)(domain as c_int, &mut hooks) };
    }
    INSTALLED.store(true, Ordering::Release);
}

/// Whether hooks of any mode are installed.
pub fn are_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Restores the interpreter's allocators.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn remove(symbols: &Symbols) {
    if !INSTALLED.swap(false, Ordering::AcqRel) {
        return;
    }
    for (domain, levels) in LEVELS.iter().enumerate() {
        stop_recording(levels);
        // SAFETY: the caller holds the GIL.
        let present = unsafe { present(symbols, domain) };
        // If another tool has hooked this domain meanwhile, it calls these hooks, so they must stay.
        if let Some(level) = level_of(levels, &present) {
            // SAFETY: the caller holds the GIL, so no other thread writes, and the interpreter had this allocator before.
            unsafe { (symbols.set_allocator)(domain as c_int, level.original.get()) };
            level.is_used.store(false, Ordering::Release);
        }
    }
}

/// The allocator that the interpreter calls in a domain.
///
/// # Safety
/// The calling thread holds the GIL.
unsafe fn present(symbols: &Symbols, domain: usize) -> MemAllocator {
    let mut present = NO_ALLOCATOR;
    // SAFETY: the caller holds the GIL, and the function fills the struct it is given.
    unsafe { (symbols.get_allocator)(domain as c_int, &mut present) };
    present
}

/// Whether an allocator has all functions, as the interpreter demands.
fn is_complete(allocator: &MemAllocator) -> bool {
    allocator.malloc.is_some()
        && allocator.calloc.is_some()
        && allocator.realloc.is_some()
        && allocator.free.is_some()
}

fn is_same(one: &MemAllocator, other: &MemAllocator) -> bool {
    let addresses = |it: &MemAllocator| {
        (
            it.ctx,
            it.malloc.map_or(0, |function| function as usize),
            it.calloc.map_or(0, |function| function as usize),
            it.realloc.map_or(0, |function| function as usize),
            it.free.map_or(0, |function| function as usize),
        )
    };
    addresses(one) == addresses(other)
}

/// The level for hooks that replace `present`; `None` if there is none.
///
/// A thread may still be in a hook of a free level: a hook of the raw domain runs without the GIL, also while it is
/// removed. It reads the original, so the level must have the same one already, or none because its hooks were never
/// installed. Hooks of the other domains run with the GIL, so no thread is in them, and their levels can get another
/// original.
///
/// # Safety
/// The calling thread holds the GIL.
unsafe fn free_level<'a>(
    domain: usize,
    levels: &'a [Level],
    present: &MemAllocator,
) -> Option<&'a Level> {
    let with = |original: &MemAllocator| {
        levels.iter().find(|level| {
            // SAFETY: the caller holds the GIL, so no other thread writes.
            !level.is_used() && is_same(unsafe { &*level.original.get() }, original)
        })
    };
    let with_any = || {
        levels
            .iter()
            .find(|level| !level.is_used() && domain != RAW)
    };
    with(present)
        .or_else(|| with(&NO_ALLOCATOR))
        .or_else(with_any)
}

/// The level of an allocator; `None` if it is not a hook.
fn level_of<'a>(levels: &'a [Level], allocator: &MemAllocator) -> Option<&'a Level> {
    levels
        .iter()
        .find(|&level| std::ptr::eq(level, allocator.ctx.cast()))
}

fn stop_recording(levels: &[Level]) {
    for level in levels {
        level.is_recording.store(false, Ordering::Release);
    }
}

impl Level {
    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    fn hooks<const MODE: u8>(&'static self) -> MemAllocator {
        MemAllocator {
            ctx: (&raw const *self).cast_mut().cast(),
            malloc: Some(malloc::<MODE>),
            calloc: Some(calloc::<MODE>),
            realloc: Some(realloc::<MODE>),
            free: Some(free::<MODE>),
        }
    }
}

/// The allocator that the hooks of this level replaced, and whether they record.
///
/// # Safety
/// `level` is the address that [`Level::hooks`] gave to the interpreter.
#[inline(always)]
unsafe fn original(level: Pointer) -> (&'static MemAllocator, bool) {
    // SAFETY: the caller promises the address of a level, which is a static. `install` stores the original before a hook of
    // the level can be called, and changes it only while no thread can be in one: see `free_level`.
    unsafe {
        let level = &*level.cast::<Level>();
        (
            &*level.original.get(),
            level.is_recording.load(Ordering::Relaxed),
        )
    }
}

/// Marks the thread as inside the original allocator, until the result is dropped.
#[inline(always)]
fn nested<const MODE: u8>() -> (Option<Nested>, Option<NestedForJobs>) {
    if MODE == JOBS {
        (None, Some(NestedForJobs::begin()))
    } else {
        (Some(Nested::begin()), None)
    }
}

/// Begins a call that only the accounts of jobs record.
#[inline(always)]
fn whole_call<const MODE: u8>() -> Option<WholeCall> {
    if MODE == JOBS {
        WholeCall::begin()
    } else {
        None
    }
}

unsafe extern "C" fn malloc<const MODE: u8>(level: Pointer, size: usize) -> Pointer {
    // SAFETY: the interpreter passes the address that it got with this function.
    let (real, is_recording) = unsafe { original(level) };
    // SAFETY: `install` replaces only allocators that have all functions.
    let call = unsafe { real.malloc.unwrap_unchecked() };
    if !is_recording {
        // SAFETY: the interpreter passed these arguments for an allocator of this domain, and this is its original.
        return unsafe { call(real.ctx, size) };
    }
    if let Some(whole) = whole_call::<MODE>() {
        // SAFETY: as above.
        let block = unsafe { call(real.ctx, size) };
        whole.allocated(Allocator::PymallocMalloc, size, block);
        return block;
    }
    let nested = nested::<MODE>();
    // SAFETY: as above.
    let block = unsafe { call(real.ctx, size) };
    drop(nested);
    record_allocation::<MODE>(Allocator::PymallocMalloc, size, block, None);
    block
}

unsafe extern "C" fn calloc<const MODE: u8>(
    level: Pointer,
    n_items: usize,
    item_len: usize,
) -> Pointer {
    // SAFETY: the interpreter passes the address that it got with this function.
    let (real, is_recording) = unsafe { original(level) };
    // SAFETY: `install` replaces only allocators that have all functions.
    let call = unsafe { real.calloc.unwrap_unchecked() };
    if !is_recording {
        // SAFETY: the interpreter passed these arguments for an allocator of this domain, and this is its original.
        return unsafe { call(real.ctx, n_items, item_len) };
    }
    if let Some(whole) = whole_call::<MODE>() {
        // SAFETY: as above.
        let block = unsafe { call(real.ctx, n_items, item_len) };
        // The product cannot overflow where the original succeeded.
        whole.allocated(
            Allocator::PymallocCalloc,
            n_items.wrapping_mul(item_len),
            block,
        );
        return block;
    }
    let nested = nested::<MODE>();
    // SAFETY: as above.
    let block = unsafe { call(real.ctx, n_items, item_len) };
    drop(nested);
    // The product cannot overflow where the original succeeded.
    let size = n_items.wrapping_mul(item_len);
    record_allocation::<MODE>(Allocator::PymallocCalloc, size, block, None);
    block
}

unsafe extern "C" fn realloc<const MODE: u8>(level: Pointer, old: Pointer, size: usize) -> Pointer {
    // SAFETY: the interpreter passes the address that it got with this function.
    let (real, is_recording) = unsafe { original(level) };
    // SAFETY: `install` replaces only allocators that have all functions.
    let call = unsafe { real.realloc.unwrap_unchecked() };
    if !is_recording {
        // SAFETY: the interpreter passed these arguments for an allocator of this domain, and this is its original.
        return unsafe { call(real.ctx, old, size) };
    }
    if let Some(whole) = whole_call::<MODE>() {
        whole.releasing(old, Release::Resize);
        // SAFETY: as above.
        let new = unsafe { call(real.ctx, old, size) };
        whole.allocated(Allocator::PymallocRealloc, size, new);
        if new.is_null() && !old.is_null() {
            whole.not_released(old);
        }
        return new;
    }
    let released = record_resize::<MODE>(old as usize, true);
    let nested = nested::<MODE>();
    // SAFETY: as above.
    let new = unsafe { call(real.ctx, old, size) };
    drop(nested);
    if !new.is_null() {
        record_allocation::<MODE>(Allocator::PymallocRealloc, size, new, None);
    } else if released {
        undo_release::<MODE>(old as usize);
    }
    new
}

unsafe extern "C" fn free<const MODE: u8>(level: Pointer, block: Pointer) {
    // SAFETY: the interpreter passes the address that it got with this function.
    let (real, is_recording) = unsafe { original(level) };
    // SAFETY: `install` replaces only allocators that have all functions.
    let call = unsafe { real.free.unwrap_unchecked() };
    if !is_recording {
        // SAFETY: the interpreter passed these arguments for an allocator of this domain, and this is its original.
        return unsafe { call(real.ctx, block) };
    }
    if let Some(whole) = whole_call::<MODE>() {
        if !block.is_null() {
            whole.releasing(block, Release::Final);
        }
        // SAFETY: as above.
        return unsafe { call(real.ctx, block) };
    }
    if !block.is_null() {
        record_release::<MODE>(block as usize, true);
    }
    let _nested = nested::<MODE>();
    // SAFETY: as above.
    unsafe { call(real.ctx, block) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_of_the_raw_domain_never_gets_another_original() {
        let allocator = |number: usize| MemAllocator {
            ctx: std::ptr::without_provenance_mut(number),
            ..NO_ALLOCATOR
        };
        let levels = [const { Level::new() }; 2];
        let index_in = |domain, present: &MemAllocator| {
            // SAFETY: the test has one thread.
            let level = unsafe { free_level(domain, &levels, present) }?;
            levels.iter().position(|it| std::ptr::eq(it, level))
        };
        for (number, level) in levels.iter().enumerate() {
            assert_eq!(index_in(RAW, &allocator(number + 1)), Some(number));
            // SAFETY: as above.
            unsafe { *level.original.get() = allocator(number + 1) };
        }
        assert_eq!(index_in(RAW, &allocator(2)), Some(1));
        assert_eq!(index_in(RAW, &allocator(3)), None);
        assert_eq!(index_in(RAW + 1, &allocator(3)), Some(0));
        levels[0].is_used.store(true, Ordering::Relaxed);
        assert_eq!(index_in(RAW, &allocator(1)), None);
        assert_eq!(index_in(RAW + 1, &allocator(3)), Some(1));
    }
}
