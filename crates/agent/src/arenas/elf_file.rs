//! A library's file, searched piece by piece: what it says in its constants, and where its functions are.
//!
//! The file is read, not mapped, through one buffer: a library may be a gigabyte, and none of it should become resident
//! because we looked.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// Bytes that are looked at together.
const PIECE_BYTES: usize = 1 << 20;
/// More sections than any library has.
const MAX_SECTIONS: usize = 4096;
const SYMBOL_TABLES: [u32; 2] = [2, 11];
const FUNCTION: u8 = 2;
const SYMBOL_BYTES: usize = size_of::<libc::Elf64_Sym>();

pub struct ElfFile {
    file: File,
    sections: Vec<libc::Elf64_Shdr>,
    names: Vec<u8>,
}

/// A function that the file has.
pub struct Function {
    pub name: Vec<u8>,
    /// Where it is in memory, from where the library begins.
    pub address: usize,
    /// Its first bytes, as the file has them.
    pub code: [u8; 16],
}

impl ElfFile {
    /// `None` if it cannot be read or says nothing of its sections.
    pub fn open(path: &[u8]) -> Option<ElfFile> {
        let file = File::open(OsStr::from_bytes(path)).ok()?;
        let mut head = [0u8; size_of::<libc::Elf64_Ehdr>()];
        file.read_exact_at(&mut head, 0).ok()?;
        // SAFETY: the bytes are as many as the struct has, and any bytes are one of it.
        let header: libc::Elf64_Ehdr =
            unsafe { head.as_ptr().cast::<libc::Elf64_Ehdr>().read_unaligned() };
        let n_sections = usize::from(header.e_shnum);
        if !head.starts_with(b"\x7fELF\x02")
            || usize::from(header.e_shentsize) != size_of::<libc::Elf64_Shdr>()
            || n_sections > MAX_SECTIONS
        {
            return None;
        }
        let mut bytes = vec![0u8; n_sections * size_of::<libc::Elf64_Shdr>()];
        file.read_exact_at(&mut bytes, header.e_shoff).ok()?;
        let sections: Vec<libc::Elf64_Shdr> = bytes
            .chunks_exact(size_of::<libc::Elf64_Shdr>())
            // SAFETY: as above.
            .map(|bytes| unsafe { bytes.as_ptr().cast::<libc::Elf64_Shdr>().read_unaligned() })
            .collect();
        let names = sections.get(usize::from(header.e_shstrndx))?;
        let mut text = vec![0u8; usize::try_from(names.sh_size).ok()?.min(PIECE_BYTES)];
        file.read_exact_at(&mut text, names.sh_offset).ok()?;
        Some(ElfFile {
            file,
            sections,
            names: text,
        })
    }

    /// Whether this text stands among the constants.
    pub fn says(&self, text: &[u8]) -> bool {
        let constants = self.sections.iter().filter(|section| {
            let name = self.names.get(section.sh_name as usize..);
            name.is_some_and(|name| name.starts_with(b".rodata"))
        });
        constants
            .into_iter()
            .any(|section| !self.find(section, text, true).is_empty())
    }

    /// The functions whose names end like this.
    pub fn functions_ending(&self, ending: &[u8]) -> Vec<Function> {
        let mut found = Vec::new();
        let tables = self.sections.iter();
        for table in tables.filter(|table| SYMBOL_TABLES.contains(&table.sh_type)) {
            let Some(texts) = self.sections.get(table.sh_link as usize) else {
                continue;
            };
            let places = self.find(texts, &[ending, b"\0"].concat(), false);
            // Names as (where they begin, where their ending begins, the text).
            let names: Vec<(u64, u64, Vec<u8>)> = places
                .into_iter()
                .filter_map(|at| self.name_around(texts, at, ending))
                .collect();
            if !names.is_empty() {
                self.collect(table, &names, &mut found);
            }
        }
        found
    }

    fn name_around(
        &self,
        texts: &libc::Elf64_Shdr,
        at: u64,
        ending: &[u8],
    ) -> Option<(u64, u64, Vec<u8>)> {
        const LONGEST: u64 = 64;
        let from = at.saturating_sub(LONGEST);
        let mut before = vec![0u8; usize::try_from(at - from).ok()?];
        self.file
            .read_exact_at(&mut before, texts.sh_offset + from)
            .ok()?;
        let begin = before.iter().rposition(|&byte| byte == 0)? + 1;
        let name = [&before[begin..], ending].concat();
        Some((from + begin as u64, at, name))
    }

    fn collect(
        &self,
        table: &libc::Elf64_Shdr,
        names: &[(u64, u64, Vec<u8>)],
        found: &mut Vec<Function>,
    ) {
        let mut piece = vec![0u8; PIECE_BYTES / SYMBOL_BYTES * SYMBOL_BYTES];
        let mut at = 0;
        while at < table.sh_size {
            let len = (table.sh_size - at).min(piece.len() as u64) as usize;
            if self
                .file
                .read_exact_at(&mut piece[..len], table.sh_offset + at)
                .is_err()
            {
                return;
            }
            for bytes in piece[..len].chunks_exact(SYMBOL_BYTES) {
                // SAFETY: the bytes are as many as the struct has, and any bytes are one of it.
                let symbol = unsafe { bytes.as_ptr().cast::<libc::Elf64_Sym>().read_unaligned() };
                let text = u64::from(symbol.st_name);
                // A linker may let the end of a longer name serve as a shorter one.
                let name = names
                    .iter()
                    .find(|(begin, ending, _)| (*begin..=*ending).contains(&text));
                if let Some((begin, _, name)) = name {
                    let name = name[(text - begin) as usize..].to_vec();
                    found.extend(self.function(&symbol, name));
                }
            }
            at += len as u64;
        }
    }

    fn function(&self, symbol: &libc::Elf64_Sym, name: Vec<u8>) -> Option<Function> {
        let section = self.sections.get(usize::from(symbol.st_shndx))?;
        if symbol.st_info & 0xf != FUNCTION || symbol.st_shndx == 0 {
            return None;
        }
        let mut code = [0u8; 16];
        let offset = symbol.st_value.checked_sub(section.sh_addr)?;
        self.file
            .read_exact_at(&mut code, section.sh_offset.checked_add(offset)?)
            .ok()?;
        Some(Function {
            name,
            address: usize::try_from(symbol.st_value).ok()?,
            code,
        })
    }

    /// Where a text stands in a section; only the first place, if that is enough.
    fn find(&self, section: &libc::Elf64_Shdr, text: &[u8], is_first_enough: bool) -> Vec<u64> {
        let mut places = Vec::new();
        let mut piece = vec![0u8; PIECE_BYTES];
        let mut at = 0;
        while at < section.sh_size {
            let len = (section.sh_size - at).min(piece.len() as u64) as usize;
            let piece = &mut piece[..len];
            if self
                .file
                .read_exact_at(piece, section.sh_offset + at)
                .is_err()
            {
                break;
            }
            let mut from = 0;
            while let Some(place) = first_in(&piece[from..], text) {
                places.push(at + (from + place) as u64);
                from += place + 1;
                if is_first_enough {
                    return places;
                }
            }
            // The next piece begins so early that no text is cut.
            at += if (len as u64) < section.sh_size - at {
                (len + 1 - text.len()) as u64
            } else {
                len as u64
            };
        }
        places
    }
}

/// Where `text` stands first.
fn first_in(bytes: &[u8], text: &[u8]) -> Option<usize> {
    // SAFETY: both pointers and lengths are those of slices.
    let place = unsafe {
        libc::memmem(
            bytes.as_ptr().cast(),
            bytes.len(),
            text.as_ptr().cast(),
            text.len(),
        )
    };
    (!place.is_null()).then(|| place as usize - bytes.as_ptr() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    extern "C" fn function_for_the_test_of_elf_files() -> usize {
        std::hint::black_box(7)
    }

    #[test]
    fn file_of_this_program_has_its_functions_and_its_texts() {
        assert_eq!(function_for_the_test_of_elf_files(), 7);
        let file = ElfFile::open(b"/proc/self/exe").unwrap();
        let said = std::hint::black_box("this very text stands in the program");
        assert!(file.says(said.as_bytes()));
        let turned: Vec<u8> = said.bytes().rev().collect();
        assert!(!file.says(&turned));
        let found = file.functions_ending(b"function_for_the_test_of_elf_files");
        // The compiler's own name for it ends in other letters, unless the platform keeps names.
        assert!(found.iter().all(|function| function.address != 0));
        let main = file.functions_ending(b"main");
        let main = main
            .iter()
            .find(|function| function.name == b"main")
            .unwrap();
        assert_ne!(main.address, 0);
    }

    #[test]
    fn what_is_no_library_is_not_opened() {
        assert!(ElfFile::open(b"/proc/self/maps").is_none());
        assert!(ElfFile::open(b"/no/such/file").is_none());
    }
}
