//! The address of a function's definition; stubs in the executable are skipped.

use std::ffi::{CStr, CString, c_int, c_void};

use super::slots::Library;

/// Returns the address that a call to `name` reaches; 0 if there is none. In an executable at a fixed address, the
/// dynamic linker may return a stub of that executable. Then this returns the address in the first loaded library that
/// defines the function.
pub fn definition(name: &CStr) -> usize {
    struct Loaded {
        name: CString,
        start: usize,
        end: usize,
    }
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the linker passes valid information, and `data` is the list below.
        let (info, loaded) = unsafe { (&*info, &mut *data.cast::<Vec<Loaded>>()) };
        // SAFETY: the linker holds its lock during the callback, so the library and its name, a C string, stay. The
        // name is copied, because another thread may unload the library after the callback.
        let (name, (start, end)) = unsafe {
            let name = CStr::from_ptr(info.dlpi_name).to_owned();
            (name, Library::bounds(info))
        };
        loaded.push(Loaded { name, start, end });
        0
    }
    // SAFETY: the name is a C string, and `dlsym` has no other precondition.
    let default = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
    let mut loaded: Vec<Loaded> = Vec::new();
    // SAFETY: the callback gets the list that it expects.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut loaded).cast()) };
    let is_stub = loaded
        .first()
        .is_some_and(|main| (main.start..main.end).contains(&default));
    if !is_stub {
        return default;
    }
    for library in &loaded[1..] {
        let name_of_library = library.name.as_ptr();
        // SAFETY: the name is a C string of the list. RTLD_NOLOAD loads nothing.
        let handle = unsafe { libc::dlopen(name_of_library, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            continue;
        }
        // SAFETY: `dlopen` returned the handle, which is closed once.
        let address = unsafe {
            let address = libc::dlsym(handle, name.as_ptr()) as usize;
            libc::dlclose(handle);
            address
        };
        if (library.start..library.end).contains(&address) {
            return address;
        }
    }
    // The executable itself defines the function.
    default
}
