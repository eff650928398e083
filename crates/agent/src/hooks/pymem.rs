//! Python's own allocators, recorded when a session asks for objects: the raw, mem and object domains.
//!
//! The hooks stand between the interpreter and whatever allocators it has (pymalloc, malloc, debug hooks); what those
//! ask of libc meanwhile is part of the same allocation and not recorded again.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use heaptide_capture::Allocator;

use super::events::{allocated, not_released, releasing_of, resizing};
use super::traced;
use super::{EXACT, JOBS, Kind, SAMPLED};
use crate::cpython::{MemAllocator, Symbols};
use crate::record::threads::Inner;

type Pointer = *mut c_void;

const N_DOMAINS: usize = 3;

/// The allocators that ours stand before.
struct Originals(UnsafeCell<[Option<MemAllocator>; N_DOMAINS]>);

// SAFETY: written by `install` before the hooks that read it are in place, and only with the GIL held.
unsafe impl Sync for Originals {}

static ORIGINALS: Originals = Originals(UnsafeCell::new([None; N_DOMAINS]));
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn install(symbols: &Symbols, kind: Kind) {
    for domain in 0..N_DOMAINS {
        let mut present = MemAllocator {
            ctx: std::ptr::null_mut(),
            malloc: None,
            calloc: None,
            realloc: None,
            free: None,
        };
        // SAFETY: the caller holds the GIL; `present` is a valid place.
        unsafe { (symbols.get_allocator)(domain as c_int, &mut present) };
        // Hooks of another kind are replaced by those of this one; what they stand before stays.
        if !is_ours(&present) {
            // SAFETY: see `Originals`.
            unsafe { (*ORIGINALS.0.get())[domain] = Some(present) };
        }
        let mut ours = match kind {
            Kind::Exact => hooks::<EXACT>(domain),
            Kind::Sampled => hooks::<SAMPLED>(domain),
            Kind::Jobs => hooks::<JOBS>(domain),
        };
        // SAFETY: as above.
        unsafe { (symbols.set_allocator)(domain as c_int, &mut ours) };
    }
    INSTALLED.store(true, Ordering::Release);
}

/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn remove(symbols: &Symbols) {
    if !INSTALLED.swap(false, Ordering::AcqRel) {
        return;
    }
    for domain in 0..N_DOMAINS {
        let mut present = hooks::<EXACT>(domain);
        // SAFETY: the caller holds the GIL.
        unsafe { (symbols.get_allocator)(domain as c_int, &mut present) };
        // SAFETY: see `Originals`.
        let original = unsafe { (*ORIGINALS.0.get())[domain] };
        // If somebody else stands before ours, ours must stay: it only passes calls on from now.
        if let (true, Some(mut original)) = (is_ours(&present), original) {
            // SAFETY: as above.
            unsafe { (symbols.set_allocator)(domain as c_int, &mut original) };
        }
    }
}

fn hooks<const KIND: u8>(domain: usize) -> MemAllocator {
    MemAllocator {
        ctx: domain as Pointer,
        malloc: Some(malloc::<KIND>),
        calloc: Some(calloc::<KIND>),
        realloc: Some(realloc::<KIND>),
        free: Some(free::<KIND>),
    }
}

fn is_ours(allocator: &MemAllocator) -> bool {
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

/// The allocator behind the hook of this domain.
#[inline(always)]
fn original(domain: Pointer) -> Option<&'static MemAllocator> {
    // SAFETY: see `Originals`; a hook is only called after `install` has stored what it stands before.
    unsafe { (*ORIGINALS.0.get()).get(domain as usize)?.as_ref() }
}

/// Marks the time inside the allocator behind a hook.
#[inline(always)]
fn inside<const KIND: u8>() -> (Option<Inner>, Option<traced::Inside>) {
    if KIND == JOBS {
        (None, Some(traced::Inside::begin()))
    } else {
        (Some(Inner::begin()), None)
    }
}

unsafe extern "C" fn malloc<const KIND: u8>(domain: Pointer, size: usize) -> Pointer {
    let Some(real) = original(domain) else {
        return std::ptr::null_mut();
    };
    let Some(call) = real.malloc else {
        return std::ptr::null_mut();
    };
    let inner = inside::<KIND>();
    // SAFETY: called as the interpreter called us.
    let block = unsafe { call(real.ctx, size) };
    drop(inner);
    if !block.is_null() {
        allocated::<KIND>(Allocator::PymallocMalloc, size, block as usize);
    }
    block
}

unsafe extern "C" fn calloc<const KIND: u8>(
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
    let inner = inside::<KIND>();
    // SAFETY: called as the interpreter called us.
    let block = unsafe { call(real.ctx, n_items, item_len) };
    drop(inner);
    if !block.is_null() {
        allocated::<KIND>(
            Allocator::PymallocCalloc,
            n_items.wrapping_mul(item_len),
            block as usize,
        );
    }
    block
}

unsafe extern "C" fn realloc<const KIND: u8>(
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
    let released = resizing::<KIND, true>(old as usize);
    let inner = inside::<KIND>();
    // SAFETY: called as the interpreter called us.
    let new = unsafe { call(real.ctx, old, size) };
    drop(inner);
    if !new.is_null() {
        allocated::<KIND>(Allocator::PymallocRealloc, size, new as usize);
    } else if released {
        not_released::<KIND>(old as usize);
    }
    new
}

unsafe extern "C" fn free<const KIND: u8>(domain: Pointer, block: Pointer) {
    let Some(real) = original(domain) else { return };
    let Some(call) = real.free else { return };
    if !block.is_null() {
        releasing_of::<KIND, true>(block as usize);
    }
    let _inner = inside::<KIND>();
    // SAFETY: called as the interpreter called us.
    unsafe { call(real.ctx, block) };
}
