//! Stand-ins for the C library's allocation functions: call the real one, record, return its answer.
//!
//! A release is recorded before it happens, an allocation after (see `record.rs`). A call that fails leaves no record,
//! or takes back the one it made. What the caller gets, `errno` included, is exactly what the real function gave.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering};

use heaptide_capture::{Allocator, Frame, Lost};

use super::{EXACT, JOBS, SAMPLED, real, traced};
use crate::arenas::{self, Treatment};
use crate::native::modules;
use crate::{record, sampler, session, threads};

type Pointer = *mut c_void;

/// The real function as a callable of the type that the context asks for.
macro_rules! real {
    ($name:ident as $type:ty) => {{
        let address = load(&real::$name);
        // SAFETY: the place holds the address of the C library's function of this name, whose type this is; a hook
        // runs only after its function was found.
        unsafe { transmute::<usize, $type>(address) }
    }};
}

#[inline(always)]
fn load(place: &AtomicUsize) -> usize {
    place.load(Ordering::Relaxed)
}

/// A block was handed out.
#[inline(always)]
pub fn allocated<const KIND: u8>(allocator: Allocator, size: usize, address: usize) {
    allocated_below::<KIND>(allocator, size, address, None);
}

/// The same, with one more frame below the innermost.
#[inline(always)]
fn allocated_below<const KIND: u8>(
    allocator: Allocator,
    size: usize,
    address: usize,
    frame: Option<Frame>,
) {
    let state = threads::enter();
    if state.is_null() {
        return;
    }
    // SAFETY: `state` is this thread's, marked busy until `leave`.
    unsafe {
        if KIND == JOBS {
            traced::allocated(state, allocator, size, address, frame);
        } else {
            note_allocated::<KIND>(state, allocator, size, address, frame);
        }
        threads::leave(state);
    }
}

/// Writes a block into the capture, if the sampler takes it.
///
/// # Safety
/// `state` comes from `threads::enter` on this thread.
#[inline(always)]
pub unsafe fn note_allocated<const KIND: u8>(
    state: *mut threads::ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    frame: Option<Frame>,
) {
    // SAFETY: as the caller says.
    unsafe {
        if KIND == EXACT {
            record::alloc(state, allocator, size, address, frame);
        } else if (*state).sampler.takes(size) {
            note_sampled(state, allocator, size, address, frame);
        }
    }
}

/// Out of the way of all those that are not sampled.
///
/// # Safety
/// As [`note_allocated`].
#[cold]
#[inline(never)]
unsafe fn note_sampled(
    state: *mut threads::ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    frame: Option<Frame>,
) {
    if sampler::follow(address) {
        // SAFETY: as the caller says.
        unsafe { record::alloc(state, allocator, size, address, frame) };
    } else {
        session::count_lost(Lost::SampleTableFull, 1);
    }
}

/// A block is about to be released. Returns whether that was recorded.
#[inline(always)]
pub fn releasing<const KIND: u8>(address: usize) -> bool {
    releasing_of::<KIND, false>(address)
}

/// The same; `PYTHONS`: a block of Python's own allocators.
#[inline(always)]
pub fn releasing_of<const KIND: u8, const PYTHONS: bool>(address: usize) -> bool {
    if KIND == SAMPLED {
        return sampler::may_follow(address) && releasing_sampled(address);
    }
    noting_release::<KIND, PYTHONS>(address)
}

/// Out of the way of all those that were not sampled.
#[cold]
#[inline(never)]
fn releasing_sampled(address: usize) -> bool {
    sampler::unfollow(address) && noting_release::<SAMPLED, false>(address)
}

#[inline(always)]
fn noting_release<const KIND: u8, const PYTHONS: bool>(address: usize) -> bool {
    let state = threads::enter();
    if state.is_null() {
        return false;
    }
    // SAFETY: as in `allocated`.
    unsafe {
        if KIND == JOBS {
            traced::releasing(state, address, PYTHONS);
        } else {
            record::free(state, address);
        }
        threads::leave(state);
    }
    true
}

#[inline(always)]
fn releasing_range<const KIND: u8>(address: usize, length: usize) -> bool {
    // The kernel releases whole pages, of 4096 bytes at least.
    let length = length.checked_next_multiple_of(4096).unwrap_or(length);
    let state = threads::enter();
    if state.is_null() {
        return false;
    }
    // SAFETY: as in `allocated`.
    unsafe {
        if KIND == JOBS {
            traced::releasing_range(state, address, length);
        } else {
            record::free_range(state, address, length);
        }
        threads::leave(state);
    }
    true
}

/// The release that was recorded last did not happen.
#[cold]
pub fn not_released<const KIND: u8>(address: usize) {
    if KIND == SAMPLED {
        sampler::follow(address);
    }
    take_back::<KIND>(address, true);
}

/// The same of a range, which no sampler follows.
#[cold]
fn not_released_range<const KIND: u8>(address: usize) {
    take_back::<KIND>(address, false);
}

fn take_back<const KIND: u8>(address: usize, follows: bool) {
    let state = threads::enter();
    if !state.is_null() {
        // SAFETY: as in `allocated`.
        unsafe {
            if KIND == JOBS {
                traced::not_released(state, address, follows);
            } else {
                record::unfree(state);
            }
            threads::leave(state);
        }
    }
}

#[inline(always)]
fn handed_out<const KIND: u8>(allocator: Allocator, size: usize, block: Pointer) -> Pointer {
    if !block.is_null() {
        allocated::<KIND>(allocator, size, block as usize);
    }
    block
}

pub unsafe extern "C" fn malloc<const KIND: u8>(size: usize) -> Pointer {
    let block = real!(malloc as extern "C" fn(usize) -> Pointer)(size);
    handed_out::<KIND>(Allocator::Malloc, size, block)
}

pub unsafe extern "C" fn calloc<const KIND: u8>(n_items: usize, item_len: usize) -> Pointer {
    let block = real!(calloc as extern "C" fn(usize, usize) -> Pointer)(n_items, item_len);
    // The product cannot overflow where the real function succeeded.
    handed_out::<KIND>(Allocator::Calloc, n_items.wrapping_mul(item_len), block)
}

#[inline(always)]
fn resized<const KIND: u8>(
    allocator: Allocator,
    old: Pointer,
    size: usize,
    call: impl FnOnce() -> Pointer,
) -> Pointer {
    let released = !old.is_null() && releasing::<KIND>(old as usize);
    let new = call();
    if !new.is_null() {
        let allocator = if KIND == JOBS && old.is_null() {
            Allocator::Malloc // nothing was made longer
        } else {
            allocator
        };
        allocated::<KIND>(allocator, size, new as usize);
    } else if released && size != 0 {
        // It failed, and the old block lives on. (With size 0 the answer null means that it was freed.)
        not_released::<KIND>(old as usize);
    }
    new
}

pub unsafe extern "C" fn realloc<const KIND: u8>(old: Pointer, size: usize) -> Pointer {
    resized::<KIND>(Allocator::Realloc, old, size, || {
        real!(realloc as extern "C" fn(Pointer, usize) -> Pointer)(old, size)
    })
}

pub unsafe extern "C" fn reallocarray<const KIND: u8>(
    old: Pointer,
    n_items: usize,
    item_len: usize,
) -> Pointer {
    // A product that overflows makes the real function fail, which is not the same as a size of 0.
    let size = n_items.saturating_mul(item_len);
    resized::<KIND>(Allocator::Reallocarray, old, size, || {
        // glibc's function is a call of `realloc` through an import slot, which is hooked too.
        let _inner = threads::Inner::begin();
        real!(reallocarray as extern "C" fn(Pointer, usize, usize) -> Pointer)(
            old, n_items, item_len,
        )
    })
}

pub unsafe extern "C" fn free<const KIND: u8>(block: Pointer) {
    if !block.is_null() {
        releasing::<KIND>(block as usize);
    }
    real!(free as extern "C" fn(Pointer))(block);
}

pub unsafe extern "C" fn posix_memalign<const KIND: u8>(
    place: *mut Pointer,
    align: usize,
    size: usize,
) -> c_int {
    let result = real!(posix_memalign as extern "C" fn(*mut Pointer, usize, usize) -> c_int)(
        place, align, size,
    );
    if result == 0 {
        // SAFETY: the real function has just written the block's address there.
        handed_out::<KIND>(Allocator::PosixMemalign, size, unsafe { *place });
    }
    result
}

pub unsafe extern "C" fn aligned_alloc<const KIND: u8>(align: usize, size: usize) -> Pointer {
    let block = real!(aligned_alloc as extern "C" fn(usize, usize) -> Pointer)(align, size);
    handed_out::<KIND>(Allocator::AlignedAlloc, size, block)
}

pub unsafe extern "C" fn memalign<const KIND: u8>(align: usize, size: usize) -> Pointer {
    let block = real!(memalign as extern "C" fn(usize, usize) -> Pointer)(align, size);
    handed_out::<KIND>(Allocator::Memalign, size, block)
}

pub unsafe extern "C" fn valloc<const KIND: u8>(size: usize) -> Pointer {
    let block = real!(valloc as extern "C" fn(usize) -> Pointer)(size);
    handed_out::<KIND>(Allocator::Valloc, size, block)
}

pub unsafe extern "C" fn pvalloc<const KIND: u8>(size: usize) -> Pointer {
    let block = real!(pvalloc as extern "C" fn(usize) -> Pointer)(size);
    handed_out::<KIND>(Allocator::Pvalloc, size, block)
}

#[inline(always)]
fn mapped<const KIND: u8>(
    address: Pointer,
    length: usize,
    flags: c_int,
    frame: Option<Frame>,
    call: impl FnOnce() -> Pointer,
) -> Pointer {
    // A mapping at a fixed place takes the place of whatever was there.
    let replaces =
        flags & libc::MAP_FIXED != 0 && releasing_range::<KIND>(address as usize, length);
    let mapping = call();
    if mapping != libc::MAP_FAILED {
        let allocator = if flags & libc::MAP_ANONYMOUS != 0 {
            Allocator::Mmap
        } else {
            Allocator::MmapFile
        };
        allocated_below::<KIND>(allocator, length, mapping as usize, frame);
    } else if replaces {
        not_released_range::<KIND>(address as usize);
    }
    mapping
}

type MmapFunction = extern "C" fn(Pointer, usize, c_int, c_int, c_int, i64) -> Pointer;

/// In place of the number of a library: it has no allocator of its own.
pub const NO_ARENA: usize = usize::MAX;

/// Both `mmap` and `mmap64`, which differ in their names alone where a pointer has 64 bits.
pub unsafe extern "C" fn mmap<const KIND: u8, const ARENA: usize, const IS_64: bool>(
    address: Pointer,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> Pointer {
    let real = if IS_64 {
        real!(mmap64 as MmapFunction)
    } else {
        real!(mmap as MmapFunction)
    };
    let call = || real(address, length, protection, flags, fd, offset);
    let treatment = if ARENA == NO_ARENA {
        Treatment::Plain
    } else {
        arenas::treatment(ARENA, length, flags)
    };
    match treatment {
        Treatment::Plain => mapped::<KIND>(address, length, flags, None, call),
        Treatment::Below(frame) => mapped::<KIND>(address, length, flags, Some(frame), call),
        Treatment::Not => call(),
    }
}

pub unsafe extern "C" fn munmap<const KIND: u8>(address: Pointer, length: usize) -> c_int {
    let released = releasing_range::<KIND>(address as usize, length);
    let result = real!(munmap as extern "C" fn(Pointer, usize) -> c_int)(address, length);
    if result != 0 && released {
        not_released_range::<KIND>(address as usize);
    }
    result
}

/// Not recorded, but what stands at the addresses of a library may be something else from now on.
pub unsafe extern "C" fn dlclose(library: Pointer) -> c_int {
    let result = real!(dlclose as extern "C" fn(Pointer) -> c_int)(library);
    modules::on_unload();
    result
}

/// The C function takes its last argument only with MREMAP_FIXED; passing it always is what the calling convention
/// of a variadic function with integer arguments allows on both architectures.
pub unsafe extern "C" fn mremap<const KIND: u8>(
    old: Pointer,
    old_length: usize,
    new_length: usize,
    flags: c_int,
    target: Pointer,
) -> Pointer {
    let moves_away = old_length != 0 && flags & libc::MREMAP_DONTUNMAP == 0;
    let released = moves_away && releasing_range::<KIND>(old as usize, old_length);
    let real = real!(mremap as unsafe extern "C" fn(Pointer, usize, usize, c_int, ...) -> Pointer);
    // SAFETY: the arguments are the caller's own.
    let new = unsafe { real(old, old_length, new_length, flags, target) };
    if new == libc::MAP_FAILED {
        if released {
            not_released_range::<KIND>(old as usize);
        }
        return new;
    }
    // A fixed target replaces what was there; readers know that of every mapping.
    allocated::<KIND>(Allocator::Mremap, new_length, new as usize);
    new
}
