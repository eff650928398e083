//! Stand-ins for the C library's allocation functions: call the real one, record, return its answer.
//!
//! A release is recorded before it happens, an allocation after (see [`crate::record`]). A call that fails leaves no record,
//! or takes back the one it made. What the caller gets, `errno` included, is exactly what the real function gave.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering};

use heaptide_capture::{Allocator, Frame};

use super::events::{
    allocated, allocated_below, not_released, not_released_range, releasing, releasing_range,
    resizing,
};
use super::real;
use crate::arenas::{self, Treatment};
use crate::native::modules;
use crate::record::threads;

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
    let released = resizing::<KIND, false>(old as usize);
    let new = call();
    if !new.is_null() {
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
