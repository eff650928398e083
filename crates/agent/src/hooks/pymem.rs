//! Hooks of Python's own allocators (raw, mem and object domain), which sessions with objects record.
//!
//! A hook calls the allocator that the interpreter had before (pymalloc, malloc, debug hooks). The calls to the C
//! library that this allocator makes meanwhile belong to the same allocation and are not recorded again.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use heaptide_capture::Allocator;

use super::events::{record_allocation, record_release, record_resize, undo_release};
use super::job_events::NestedForJobs;
use super::{EXACT, HookMode, JOBS, Pointer, SAMPLED};
use crate::cpython::{MemAllocator, Symbols};
use crate::record::threads::Nested;

const N_DOMAINS: usize = 3;

/// The allocators that the hooks replaced, by domain.
struct Originals(UnsafeCell<[Option<MemAllocator>; N_DOMAINS]>);

// SAFETY: `install` writes it with the GIL held, and before it installs the hooks that read it.
unsafe impl Sync for Originals {}

static ORIGINALS: Originals = Originals(UnsafeCell::new([None; N_DOMAINS]));
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Installs the hooks of a mode. They replace those of another mode, if there are any.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn install(symbols: &Symbols, mode: HookMode) {
    for domain in 0..N_DOMAINS {
        let mut present = MemAllocator {
            ctx: std::ptr::null_mut(),
            malloc: None,
            calloc: None,
            realloc: None,
            free: None,
        };
        // SAFETY: the caller holds the GIL, and the function fills the struct it is given.
        unsafe { (symbols.get_allocator)(domain as c_int, &mut present) };
        // If a hook of another mode is installed, its original stays the original.
        if !is_hook(&present) {
            // SAFETY: the caller holds the GIL, so no other thread writes, and no hook of this domain is installed yet.
            unsafe { (*ORIGINALS.0.get())[domain] = Some(present) };
        }
        let mut hooks = match mode {
            HookMode::Exact => hooks::<EXACT>(domain),
            HookMode::Sampled => hooks::<SAMPLED>(domain),
            HookMode::Jobs => hooks::<JOBS>(domain),
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
    for domain in 0..N_DOMAINS {
        let mut present = hooks::<EXACT>(domain);
        // SAFETY: the caller holds the GIL, and the function fills the struct it is given.
        unsafe { (symbols.get_allocator)(domain as c_int, &mut present) };
        // SAFETY: the caller holds the GIL, so no other thread writes.
        let original = unsafe { (*ORIGINALS.0.get())[domain] };
        // If another tool has hooked this domain meanwhile, it calls these hooks, so they must stay. They then only
        // forward calls.
        if let (true, Some(mut original)) = (is_hook(&present), original) {
            // SAFETY: the caller holds the GIL, and the interpreter had this allocator before.
            unsafe { (symbols.set_allocator)(domain as c_int, &mut original) };
        }
    }
}

fn hooks<const MODE: u8>(domain: usize) -> MemAllocator {
    MemAllocator {
        ctx: domain as Pointer,
        malloc: Some(malloc::<MODE>),
        calloc: Some(calloc::<MODE>),
        realloc: Some(realloc::<MODE>),
        free: Some(free::<MODE>),
    }
}

fn is_hook(allocator: &MemAllocator) -> bool {
    let free_address = allocator
        .free
        .map_or(0, |function| function as *const () as usize);
    [
        free::<EXACT> as *const () as usize,
        free::<SAMPLED> as *const () as usize,
        free::<JOBS> as *const () as usize,
    ]
    .contains(&free_address)
}

/// The allocator that the hooks of this domain replaced.
#[inline(always)]
fn original(domain: Pointer) -> Option<&'static MemAllocator> {
    // SAFETY: `install` stores the original before a hook of its domain can be called, and changes it only while no hook of
    // that domain is installed.
    unsafe { (*ORIGINALS.0.get()).get(domain as usize)?.as_ref() }
}

/// Marks the time inside the original allocator.
#[inline(always)]
fn nested<const MODE: u8>() -> (Option<Nested>, Option<NestedForJobs>) {
    if MODE == JOBS {
        (None, Some(NestedForJobs::begin()))
    } else {
        (Some(Nested::begin()), None)
    }
}

unsafe extern "C" fn malloc<const MODE: u8>(domain: Pointer, size: usize) -> Pointer {
    let Some(real) = original(domain) else {
        return std::ptr::null_mut();
    };
    let Some(call) = real.malloc else {
        return std::ptr::null_mut();
    };
    let nested = nested::<MODE>();
    // SAFETY: the interpreter passed these arguments for an allocator of this domain, and this is its original.
    let block = unsafe { call(real.ctx, size) };
    drop(nested);
    record_allocation::<MODE>(Allocator::PymallocMalloc, size, block, None);
    block
}

unsafe extern "C" fn calloc<const MODE: u8>(
    domain: Pointer,
    n_items: usize,
    item_len: usize,
) -> Pointer {
    let Some(real) = original(domain) else {
        return std::ptr::null_mut();
    };
    let Some(call) = real.calloc else {
        return std::ptr::null_mut();
    };
    let nested = nested::<MODE>();
    // SAFETY: the interpreter passed these arguments for an allocator of this domain, and this is its original.
    let block = unsafe { call(real.ctx, n_items, item_len) };
    drop(nested);
    // The product cannot overflow where the original succeeded.
    let size = n_items.wrapping_mul(item_len);
    record_allocation::<MODE>(Allocator::PymallocCalloc, size, block, None);
    block
}

unsafe extern "C" fn realloc<const MODE: u8>(
    domain: Pointer,
    old: Pointer,
    size: usize,
) -> Pointer {
    let Some(real) = original(domain) else {
        return std::ptr::null_mut();
    };
    let Some(call) = real.realloc else {
        return std::ptr::null_mut();
    };
    let released = record_resize::<MODE>(old as usize, true);
    let nested = nested::<MODE>();
    // SAFETY: the interpreter passed these arguments for an allocator of this domain, and this is its original.
    let new = unsafe { call(real.ctx, old, size) };
    drop(nested);
    if !new.is_null() {
        record_allocation::<MODE>(Allocator::PymallocRealloc, size, new, None);
    } else if released {
        undo_release::<MODE>(old as usize);
    }
    new
}

unsafe extern "C" fn free<const MODE: u8>(domain: Pointer, block: Pointer) {
    let Some(real) = original(domain) else { return };
    let Some(call) = real.free else { return };
    if !block.is_null() {
        record_release::<MODE>(block as usize, true);
    }
    let _nested = nested::<MODE>();
    // SAFETY: the interpreter passed these arguments for an allocator of this domain, and this is its original.
    unsafe { call(real.ctx, block) };
}
