//! Hooks of the C library's allocation functions: each calls the real function, records the event and returns the result.
//!
//! A release is recorded before the real call, an allocation after the real call (see [`crate::record`]). A call that
//! fails leaves no record, or the hook undoes its record. The caller sees exactly the results of the real function,
//! `errno` included.
//!
//! Each hook has the type that the list in [`super`] declares for its function.

use std::ffi::c_int;

use heaptide_capture::{Allocator, Frame};

use super::events::{
    Release, record_allocation, record_range_release, record_release, record_resize,
    undo_range_release, undo_release,
};
use super::{Mmap, Pointer, real};
use crate::arenas::{self, Treatment};
use crate::native::modules;
use crate::record::threads::Nested;

pub unsafe extern "C" fn malloc<const MODE: u8>(size: usize) -> Pointer {
    // SAFETY: this is the function's hook.
    let block = unsafe { real::malloc.get()(size) };
    record_allocation::<MODE>(Allocator::Malloc, size, block, None);
    block
}

pub unsafe extern "C" fn calloc<const MODE: u8>(n_items: usize, item_len: usize) -> Pointer {
    // SAFETY: this is the function's hook.
    let block = unsafe { real::calloc.get()(n_items, item_len) };
    // The product cannot overflow where the real function succeeded.
    let size = n_items.wrapping_mul(item_len);
    record_allocation::<MODE>(Allocator::Calloc, size, block, None);
    block
}

#[inline(always)]
fn resize<const MODE: u8>(
    allocator: Allocator,
    old: Pointer,
    size: usize,
    call: impl FnOnce() -> Pointer,
) -> Pointer {
    let released = record_resize::<MODE>(old as usize, false);
    let new = call();
    if !new.is_null() {
        record_allocation::<MODE>(allocator, size, new, None);
    } else if released && size != 0 {
        // The call failed, and the old block stays allocated. (With size 0, null means that the block was freed.)
        undo_release::<MODE>(old as usize);
    }
    new
}

pub unsafe extern "C" fn realloc<const MODE: u8>(old: Pointer, size: usize) -> Pointer {
    resize::<MODE>(Allocator::Realloc, old, size, || {
        // SAFETY: this is the function's hook.
        unsafe { real::realloc.get()(old, size) }
    })
}

pub unsafe extern "C" fn reallocarray<const MODE: u8>(
    old: Pointer,
    n_items: usize,
    item_len: usize,
) -> Pointer {
    // A product that overflows makes the real function fail, which differs from a size of 0.
    let size = n_items.saturating_mul(item_len);
    resize::<MODE>(Allocator::Reallocarray, old, size, || {
        // glibc's function calls `realloc` through an import slot, which is hooked.
        let _nested = Nested::begin();
        // SAFETY: this is the function's hook.
        unsafe { real::reallocarray.get()(old, n_items, item_len) }
    })
}

pub unsafe extern "C" fn free<const MODE: u8>(block: Pointer) {
    if !block.is_null() {
        record_release::<MODE>(block as usize, false);
    }
    // SAFETY: this is the function's hook.
    unsafe { real::free.get()(block) };
}

/// From C23, like `free_aligned_sized`. The real function may call `free` through an import slot, which is hooked.
pub unsafe extern "C" fn free_sized<const MODE: u8>(block: Pointer, size: usize) {
    if !block.is_null() {
        record_release::<MODE>(block as usize, false);
    }
    let _nested = Nested::begin();
    // SAFETY: this is the function's hook.
    unsafe { real::free_sized.get()(block, size) };
}

pub unsafe extern "C" fn free_aligned_sized<const MODE: u8>(
    block: Pointer,
    align: usize,
    size: usize,
) {
    if !block.is_null() {
        record_release::<MODE>(block as usize, false);
    }
    let _nested = Nested::begin();
    // SAFETY: this is the function's hook.
    unsafe { real::free_aligned_sized.get()(block, align, size) };
}

pub unsafe extern "C" fn posix_memalign<const MODE: u8>(
    block: *mut Pointer,
    align: usize,
    size: usize,
) -> c_int {
    // SAFETY: this is the function's hook.
    let result = unsafe { real::posix_memalign.get()(block, align, size) };
    if result == 0 {
        // SAFETY: the real function succeeded, so it has just written the block's address there.
        let block = unsafe { *block };
        record_allocation::<MODE>(Allocator::PosixMemalign, size, block, None);
    }
    result
}

pub unsafe extern "C" fn aligned_alloc<const MODE: u8>(align: usize, size: usize) -> Pointer {
    // SAFETY: this is the function's hook.
    let block = unsafe { real::aligned_alloc.get()(align, size) };
    record_allocation::<MODE>(Allocator::AlignedAlloc, size, block, None);
    block
}

pub unsafe extern "C" fn memalign<const MODE: u8>(align: usize, size: usize) -> Pointer {
    // SAFETY: this is the function's hook.
    let block = unsafe { real::memalign.get()(align, size) };
    record_allocation::<MODE>(Allocator::Memalign, size, block, None);
    block
}

pub unsafe extern "C" fn valloc<const MODE: u8>(size: usize) -> Pointer {
    // SAFETY: this is the function's hook.
    let block = unsafe { real::valloc.get()(size) };
    record_allocation::<MODE>(Allocator::Valloc, size, block, None);
    block
}

pub unsafe extern "C" fn pvalloc<const MODE: u8>(size: usize) -> Pointer {
    // SAFETY: this is the function's hook.
    let block = unsafe { real::pvalloc.get()(size) };
    record_allocation::<MODE>(Allocator::Pvalloc, size, block, None);
    block
}

/// The arguments of `mmap` and of `mmap64`, which have the same type where pointers have 64 bits.
#[derive(Clone, Copy)]
struct MapRequest {
    address: Pointer,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
}

impl MapRequest {
    #[inline(always)]
    fn call(self, real: Mmap) -> Pointer {
        let MapRequest {
            address,
            length,
            protection,
            flags,
            fd,
            offset,
        } = self;
        real(address, length, protection, flags, fd, offset)
    }

    #[inline(always)]
    fn record<const MODE: u8>(self, real: Mmap, arena: Option<Frame>) -> Pointer {
        // A mapping at a fixed address replaces earlier mappings in its range.
        let replaces = self.flags & libc::MAP_FIXED != 0
            && record_range_release::<MODE>(self.address as usize, self.length, Release::Final);
        let mapping = self.call(real);
        if mapping != libc::MAP_FAILED {
            let allocator = if self.flags & libc::MAP_ANONYMOUS != 0 {
                Allocator::Mmap
            } else {
                Allocator::MmapFile
            };
            record_allocation::<MODE>(allocator, self.length, mapping, arena);
        } else if replaces {
            undo_range_release::<MODE>(self.address as usize);
        }
        mapping
    }
}

/// Defines a hook of `mmap` or `mmap64`.
macro_rules! map_hook {
    ($(#[$doc:meta])* $name:ident<$(const $constant:ident: $type:ty),*>, $request:ident => $body:expr) => {
        $(#[$doc])*
        pub unsafe extern "C" fn $name<$(const $constant: $type),*>(
            address: Pointer,
            length: usize,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: i64,
        ) -> Pointer {
            let $request = MapRequest { address, length, protection, flags, fd, offset };
            $body
        }
    };
}

map_hook!(mmap<const MODE: u8>, request => {
    // SAFETY: this is the function's hook.
    request.record::<MODE>(unsafe { real::mmap.get() }, None)
});
map_hook!(mmap64<const MODE: u8>, request => {
    // SAFETY: this is the function's hook.
    request.record::<MODE>(unsafe { real::mmap64.get() }, None)
});
map_hook!(
    /// The hook of both functions for the library with this number: one that bundles an allocator, or the interpreter.
    mmap_by_library<const MODE: u8, const LIBRARY: usize, const IS_64: bool>,
    request => {
        // SAFETY: this is the hook of the function that `IS_64` chooses.
        let real = unsafe { if IS_64 { real::mmap64.get() } else { real::mmap.get() } };
        match arenas::treatment(LIBRARY, request.length, request.flags) {
            Treatment::Plain => request.record::<MODE>(real, None),
            Treatment::Below(frame) => request.record::<MODE>(real, Some(frame)),
            Treatment::Not => request.call(real),
        }
    }
);

pub unsafe extern "C" fn munmap<const MODE: u8>(address: Pointer, length: usize) -> c_int {
    let released = record_range_release::<MODE>(address as usize, length, Release::Final);
    // SAFETY: this is the function's hook.
    let result = unsafe { real::munmap.get()(address, length) };
    if result != 0 && released {
        undo_range_release::<MODE>(address as usize);
    }
    result
}

/// The C function takes its last argument only with MREMAP_FIXED. Always passing it is correct on both architectures: they
/// pass integer arguments of variadic functions like those of other functions.
pub unsafe extern "C" fn mremap<const MODE: u8>(
    old: Pointer,
    old_length: usize,
    new_length: usize,
    flags: c_int,
    target: Pointer,
) -> Pointer {
    let moves_away = old_length != 0 && flags & libc::MREMAP_DONTUNMAP == 0;
    let released =
        moves_away && record_range_release::<MODE>(old as usize, old_length, Release::Resize);
    // SAFETY: this is the function's hook. The program called it with these arguments, and the call passes them on
    // unchanged.
    let new = unsafe { real::mremap.get()(old, old_length, new_length, flags, target) };
    if new == libc::MAP_FAILED {
        if released {
            undo_range_release::<MODE>(old as usize);
        }
        return new;
    }
    // A fixed target replaces earlier mappings in its range; readers expect that of every mapping.
    record_allocation::<MODE>(Allocator::Mremap, new_length, new, None);
    new
}

/// Records nothing. Reports the unload to `modules`, because another library may now get the same addresses.
pub unsafe extern "C" fn dlclose(library: Pointer) -> c_int {
    // SAFETY: this is the function's hook.
    modules::unload(|| unsafe { real::dlclose.get()(library) })
}
