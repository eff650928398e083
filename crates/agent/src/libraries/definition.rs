//! Where a function really is, whatever stands before it.

use std::ffi::{CStr, c_int, c_void};

use super::slots::Library;

/// The function that calls to `name` reach. The dynamic linker's answer for an executable at a fixed address may be a stub in
/// that executable; then it is the first library, in the order of loading, that has the function.
pub fn definition(name: &CStr) -> usize {
    struct Loaded {
        name: *const libc::c_char,
        start: usize,
        end: usize,
    }
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the linker passes valid information, and `data` is the list below.
        let (info, loaded) = unsafe { (&*info, &mut *data.cast::<Vec<Loaded>>()) };
        // SAFETY: as above.
        let (start, end) = unsafe { Library::bounds(info) };
        loaded.push(Loaded {
            name: info.dlpi_name,
            start,
            end,
        });
        0
    }
    // SAFETY: looking a symbol up has no preconditions.
    let default = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
    let mut loaded: Vec<Loaded> = Vec::new();
    // SAFETY: the callback adds to the list and returns.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut loaded).cast()) };
    let is_stub = loaded
        .first()
        .is_some_and(|main| (main.start..main.end).contains(&default));
    if !is_stub {
        return default;
    }
    for library in &loaded[1..] {
        // SAFETY: the name belongs to a loaded library; asking for one that is loaded already loads nothing.
        let handle = unsafe { libc::dlopen(library.name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            continue;
        }
        // SAFETY: the handle is valid, and given back afterwards.
        let address = unsafe {
            let address = libc::dlsym(handle, name.as_ptr()) as usize;
            libc::dlclose(handle);
            address
        };
        if (library.start..library.end).contains(&address) {
            return address;
        }
    }
    // The executable has the function itself.
    default
}
