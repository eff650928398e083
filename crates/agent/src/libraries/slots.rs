//! The import slots of one library: finds those of hooked functions and changes them.
//!
//! A slot that the linker has not bound yet is assumed to refer to the process-wide function of that name. Only a library
//! loaded with RTLD_DEEPBIND that has its own allocator could differ.
//!
//! A slot is changed only if it holds the real function that the hook would call, another hook of Heaptide, or the library's
//! own stub for a function that is not bound yet. A slot that another tool has changed stays unchanged.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Task;
use crate::hooks::{self, Hook};
use crate::host::sys;

#[cfg(target_arch = "x86_64")]
mod relocation {
    pub const ABSOLUTE: u32 = 1;
    pub const GLOBAL_DATA: u32 = 6;
    pub const JUMP_SLOT: u32 = 7;
}

#[cfg(target_arch = "aarch64")]
mod relocation {
    pub const ABSOLUTE: u32 = 257;
    pub const GLOBAL_DATA: u32 = 1025;
    pub const JUMP_SLOT: u32 = 1026;
}

/// A loaded library as its program headers and dynamic section describe it.
pub(super) struct Library {
    pub base: usize,
    dynamic: usize,
    /// Lowest and highest loaded address.
    pub start: usize,
    pub end: usize,
    /// The pages that the linker made read-only after relocation: start and length.
    read_only: (usize, usize),
    symbols: usize,
    names: usize,
    names_len: usize,
    tables: [(usize, usize); 2],
}

impl Library {
    /// The lowest and the highest loaded address.
    ///
    /// # Safety
    /// `info` describes a library that stays loaded during the call.
    pub unsafe fn bounds(info: &libc::dl_phdr_info) -> (usize, usize) {
        if info.dlpi_phdr.is_null() {
            return (0, 0);
        }
        // SAFETY: the linker gives the address and number of the program headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let (mut start, mut end) = (usize::MAX, 0);
        for header in headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
        {
            let address = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            start = start.min(address);
            end = end.max(address + header.p_memsz as usize);
        }
        (start, end)
    }

    /// # Safety
    /// `info` describes a library that stays loaded during the call.
    pub unsafe fn new(info: &libc::dl_phdr_info) -> Option<Library> {
        let base = info.dlpi_addr as usize;
        let mut library = Library {
            base,
            dynamic: 0,
            start: 0,
            end: 0,
            read_only: (0, 0),
            symbols: 0,
            names: 0,
            names_len: 0,
            tables: [(0, 0); 2],
        };
        if info.dlpi_phdr.is_null() {
            return None;
        }
        // SAFETY: the linker gives the address and number of the program headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let page_len = sys::page_len() as usize;
        for header in headers {
            let address = base.wrapping_add(header.p_vaddr as usize);
            match header.p_type {
                libc::PT_DYNAMIC => library.dynamic = address,
                libc::PT_GNU_RELRO => {
                    // The linker protects whole pages only, and rounds the end down.
                    let start = address / page_len * page_len;
                    let end = (address + header.p_memsz as usize) / page_len * page_len;
                    library.read_only = (start, end.saturating_sub(start));
                }
                _ => {}
            }
        }
        if library.dynamic == 0 {
            return None;
        }
        // SAFETY: the caller promises that the library stays loaded.
        (library.start, library.end) = unsafe { Library::bounds(info) };
        // SAFETY: the dynamic section is part of the loaded library and ends with a null tag.
        unsafe { library.read_dynamic() };
        (library.symbols != 0 && library.names != 0).then_some(library)
    }

    pub fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// # Safety
    /// `dynamic` is the address of a loaded dynamic section.
    unsafe fn read_dynamic(&mut self) {
        const STRTAB: usize = 5;
        const SYMTAB: usize = 6;
        const RELA: usize = 7;
        const RELASZ: usize = 8;
        const STRSZ: usize = 10;
        const PLTRELSZ: usize = 2;
        const JMPREL: usize = 23;
        let mut entry = self.dynamic as *const [usize; 2];
        loop {
            // SAFETY: the section ends with a null tag, which the loop has not reached yet.
            let [tag, value] = unsafe { entry.read() };
            // glibc turns these values into addresses when it loads a library; other linkers leave offsets.
            let address = if value < self.base {
                self.base + value
            } else {
                value
            };
            match tag {
                0 => break,
                STRTAB => self.names = address,
                STRSZ => self.names_len = value,
                SYMTAB => self.symbols = address,
                RELA => self.tables[0].0 = address,
                RELASZ => self.tables[0].1 = value,
                JMPREL => self.tables[1].0 = address,
                PLTRELSZ => self.tables[1].1 = value,
                _ => {}
            }
            // SAFETY: this entry was not the null tag, so another one follows.
            entry = unsafe { entry.add(1) };
        }
    }

    /// Changes the slots of hooked functions. Returns whether one of these functions takes memory from the kernel.
    ///
    /// # Safety
    /// The library stays loaded during the call.
    pub unsafe fn rewrite(&self, task: Task, arena: Option<usize>) -> bool {
        let (mut writable, mut maps) = (false, false);
        // SAFETY: the caller promises that the library stays loaded.
        for (entry, symbol) in unsafe { self.entries() } {
            let relocation_type = entry.r_info as u32;
            if !matches!(
                relocation_type,
                relocation::JUMP_SLOT | relocation::GLOBAL_DATA | relocation::ABSOLUTE
            ) {
                continue;
            }
            // SAFETY: `entries` returned the symbol from this library's table.
            let Some(hook) = (unsafe { self.name_of(symbol) }).and_then(hooks::named) else {
                continue;
            };
            maps |= hook.maps();
            let slot = self.base.wrapping_add(entry.r_offset as usize);
            // SAFETY: the slot of a relocation is a readable word of the library.
            let value = unsafe { (slot as *const usize).read_volatile() };
            let Some(new) = self.new_value(task, hook, arena, relocation_type, symbol, value)
            else {
                continue;
            };
            let protected = slot.wrapping_sub(self.read_only.0) < self.read_only.1;
            if protected && !writable {
                writable = self.protect(libc::PROT_READ | libc::PROT_WRITE);
                if !writable {
                    return false;
                }
            }
            // SAFETY: the slot is writable now and aligned, and other threads read it as one word.
            unsafe { &*(slot as *const AtomicUsize) }.store(new, Ordering::Release);
        }
        if writable {
            self.protect(libc::PROT_READ);
        }
        maps
    }

    /// Whether the library has a slot for a function of this name.
    ///
    /// # Safety
    /// As for [`Library::rewrite`].
    pub unsafe fn imports(&self, name: &CStr) -> bool {
        // SAFETY: the caller promises that the library stays loaded, and `entries` returns symbols of its table.
        unsafe {
            self.entries()
                .any(|(_, symbol)| self.name_of(symbol) == Some(name))
        }
    }

    /// The relocations of the library, each with its symbol.
    ///
    /// # Safety
    /// The library stays loaded as long as the entries are used.
    unsafe fn entries(&self) -> impl Iterator<Item = (&libc::Elf64_Rela, &libc::Elf64_Sym)> {
        let tables = self.tables.iter().filter(|table| table.0 != 0);
        let entries = tables.flat_map(|&(table, len)| {
            let n_entries = len / size_of::<libc::Elf64_Rela>();
            // SAFETY: the dynamic section gives the table's address and length.
            unsafe { std::slice::from_raw_parts(table as *const libc::Elf64_Rela, n_entries) }
        });
        entries.map(|entry| {
            let symbols = self.symbols as *const libc::Elf64_Sym;
            // SAFETY: the index comes from the library's own relocation table.
            (entry, unsafe {
                &*symbols.add((entry.r_info >> 32) as usize)
            })
        })
    }

    /// The new value of a slot; `None` if it must not change.
    fn new_value(
        &self,
        task: Task,
        hook: &Hook,
        arena: Option<usize>,
        relocation_type: u32,
        symbol: &libc::Elf64_Sym,
        value: usize,
    ) -> Option<usize> {
        let real = hook.real();
        match task {
            Task::Remove => hook.has_hook_at(value).then_some(real),
            Task::Install(_) => {
                let is_unbound = relocation_type == relocation::JUMP_SLOT
                    && symbol.st_shndx == 0
                    && self.contains(value);
                let installed = hook.installed(arena);
                (value == real || is_unbound || (hook.has_hook_at(value) && value != installed))
                    .then_some(installed)
            }
        }
    }

    /// # Safety
    /// `symbol` is in this library's table.
    unsafe fn name_of(&self, symbol: &libc::Elf64_Sym) -> Option<&CStr> {
        let offset = symbol.st_name as usize;
        // SAFETY: the offset lies within the library's string table, whose strings end with a null byte.
        (offset != 0 && offset < self.names_len)
            .then(|| unsafe { CStr::from_ptr((self.names + offset) as *const _) })
    }

    fn protect(&self, protection: c_int) -> bool {
        // SAFETY: the range is the part of the library that its linker protects in the same way.
        unsafe {
            libc::mprotect(
                self.read_only.0 as *mut c_void,
                self.read_only.1,
                protection,
            ) == 0
        }
    }
}
