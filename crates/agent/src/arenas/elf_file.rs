//! Searches the file of a library, in pieces, for constant strings and for the addresses of functions.
//!
//! `object` reads the header and the sections. The contents of sections are read here, not mapped, through one buffer: a
//! library may have a gigabyte, and `object` would keep every section that it reads in memory.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use object::elf::{FileHeader64, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, SectionHeader64, Sym64};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{LittleEndian, ReadCache, pod};

/// Bytes that are searched together.
const PIECE_BYTES: usize = 1 << 20;
/// The maximum number of sections. No real library has more.
const MAX_SECTIONS: u32 = 4096;
const ENDIAN: LittleEndian = LittleEndian;

type Section = SectionHeader64<LittleEndian>;
type Symbol = Sym64<LittleEndian>;

pub struct ElfFile {
    file: File,
    sections: Vec<Section>,
    /// The sections that hold constants.
    constants: Vec<Section>,
}

/// A function of the file.
pub struct Function {
    pub name: Vec<u8>,
    /// Its address, relative to that of the loaded library.
    pub address: usize,
    /// Its first bytes in the file.
    pub code: [u8; 16],
}

/// A name in a string table that has the required ending.
struct Name {
    /// Offset of the name in the table.
    start: u64,
    /// Offset of the required ending.
    ending: u64,
    text: Vec<u8>,
}

impl ElfFile {
    /// Opens a file. Returns `None` if it cannot be read or has no table of sections.
    pub fn open(path: &[u8]) -> Option<ElfFile> {
        let file = File::open(OsStr::from_bytes(path)).ok()?;
        let data = ReadCache::new(&file);
        let header = FileHeader64::<LittleEndian>::parse(&data).ok()?;
        header.endian().ok()?;
        if header.shnum(ENDIAN, &data).ok()? > MAX_SECTIONS {
            return None;
        }
        let table = header.sections(ENDIAN, &data).ok()?;
        let sections: Vec<Section> = table.iter().copied().collect();
        let constants = sections.iter().filter(|section| {
            let name = table.section_name(ENDIAN, section);
            name.is_ok_and(|name| name.starts_with(b".rodata"))
        });
        let constants = constants.copied().collect();
        Some(ElfFile {
            file,
            sections,
            constants,
        })
    }

    /// Whether this text is among the constants.
    pub fn has_constant(&self, text: &[u8]) -> bool {
        let mut constants = self.constants.iter();
        constants.any(|section| !self.find(section, text, true).is_empty())
    }

    /// The functions whose names end with `ending`.
    pub fn functions_ending(&self, ending: &[u8]) -> Vec<Function> {
        let mut functions = Vec::new();
        for table in &self.sections {
            if ![SHT_SYMTAB, SHT_DYNSYM].contains(&table.sh_type(ENDIAN)) {
                continue;
            }
            let Some(texts) = self.sections.get(table.sh_link(ENDIAN) as usize) else {
                continue;
            };
            let positions = self.find(texts, &[ending, b"\0"].concat(), false);
            let names: Vec<Name> = positions
                .into_iter()
                .filter_map(|position| self.name_around(texts, position, ending))
                .collect();
            if !names.is_empty() {
                self.collect(table, &names, &mut functions);
            }
        }
        functions
    }

    /// The name whose ending lies at `position` of a string table.
    fn name_around(&self, texts: &Section, position: u64, ending: &[u8]) -> Option<Name> {
        const LONGEST: u64 = 64;
        let from = position.saturating_sub(LONGEST);
        let mut before = vec![0u8; usize::try_from(position - from).ok()?];
        let offset = texts.sh_offset(ENDIAN).checked_add(from)?;
        self.file.read_exact_at(&mut before, offset).ok()?;
        let start = before.iter().rposition(|&byte| byte == 0)? + 1;
        Some(Name {
            start: from + start as u64,
            ending: position,
            text: [&before[start..], ending].concat(),
        })
    }

    /// Adds the functions of a symbol table that have one of the names.
    fn collect(&self, table: &Section, names: &[Name], functions: &mut Vec<Function>) {
        let piece_bytes = PIECE_BYTES / size_of::<Symbol>() * size_of::<Symbol>();
        self.for_each_piece(table, piece_bytes, 0, |_, piece| {
            let n_symbols = piece.len() / size_of::<Symbol>();
            let Ok((symbols, _)) = pod::slice_from_bytes::<Symbol>(piece, n_symbols) else {
                return false;
            };
            for symbol in symbols {
                let text = u64::from(symbol.st_name(ENDIAN));
                // A linker may use the end of a longer name as a shorter one.
                let mut names = names.iter();
                if let Some(name) = names.find(|it| (it.start..=it.ending).contains(&text)) {
                    let text = name.text[(text - name.start) as usize..].to_vec();
                    functions.extend(self.function(symbol, text));
                }
            }
            true
        });
    }

    fn function(&self, symbol: &Symbol, name: Vec<u8>) -> Option<Function> {
        let index = symbol.st_shndx(ENDIAN).0;
        if symbol.st_type() != STT_FUNC || index == 0 {
            return None;
        }
        let section = self.sections.get(usize::from(index))?;
        let address = symbol.st_value(ENDIAN);
        let offset = address.checked_sub(section.sh_addr(ENDIAN))?;
        let mut code = [0u8; 16];
        self.file
            .read_exact_at(&mut code, section.sh_offset(ENDIAN).checked_add(offset)?)
            .ok()?;
        Some(Function {
            name,
            address: usize::try_from(address).ok()?,
            code,
        })
    }

    /// The positions of a text in a section, or only the first one if the caller needs no more.
    fn find(&self, section: &Section, text: &[u8], is_first_enough: bool) -> Vec<u64> {
        let mut positions = Vec::new();
        self.for_each_piece(section, PIECE_BYTES, text.len() - 1, |start, piece| {
            let mut from = 0;
            while let Some(position) = first_in(&piece[from..], text) {
                positions.push(start + (from + position) as u64);
                from += position + 1;
                if is_first_enough {
                    return false;
                }
            }
            true
        });
        positions
    }

    /// Reads a section in pieces of `len` bytes. Each piece repeats the last `overlap` bytes of the previous one. Calls
    /// `visit` with the position and the bytes of each, until it returns `false`.
    fn for_each_piece(
        &self,
        section: &Section,
        len: usize,
        overlap: usize,
        mut visit: impl FnMut(u64, &[u8]) -> bool,
    ) {
        let section_len = section.sh_size(ENDIAN);
        let mut buffer = vec![0u8; len];
        let mut position = 0;
        while position < section_len {
            let left = section_len - position;
            let piece = &mut buffer[..left.min(len as u64) as usize];
            let offset = section.sh_offset(ENDIAN).saturating_add(position);
            if self.file.read_exact_at(piece, offset).is_err() || !visit(position, piece) {
                return;
            }
            let is_last = piece.len() as u64 == left;
            position += (piece.len() - if is_last { 0 } else { overlap }) as u64;
        }
    }
}

/// The first position of `text`.
fn first_in(bytes: &[u8], text: &[u8]) -> Option<usize> {
    // SAFETY: both pointers and lengths describe live slices.
    let first = unsafe {
        libc::memmem(
            bytes.as_ptr().cast(),
            bytes.len(),
            text.as_ptr().cast(),
            text.len(),
        )
    };
    (!first.is_null()).then(|| first as usize - bytes.as_ptr() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: no other function has this name.
    #[unsafe(no_mangle)]
    extern "C" fn function_for_the_test_of_elf_files() -> usize {
        std::hint::black_box(7)
    }

    #[test]
    fn file_of_this_program_has_its_functions_and_its_constants() {
        assert_eq!(function_for_the_test_of_elf_files(), 7);
        let file = ElfFile::open(b"/proc/self/exe").unwrap();
        let constant = std::hint::black_box("this very text is in the program");
        assert!(file.has_constant(constant.as_bytes()));
        let reversed: Vec<u8> = constant.bytes().rev().collect();
        assert!(!file.has_constant(&reversed));
        let functions = file.functions_ending(b"function_for_the_test_of_elf_files");
        let [function] = &functions[..] else {
            panic!("{} functions", functions.len());
        };
        assert_eq!(function.name, b"function_for_the_test_of_elf_files");
        let in_memory = function_for_the_test_of_elf_files as *const () as usize;
        assert_eq!((in_memory - function.address) % 4096, 0);
        // SAFETY: the code of a function is readable, and more code follows it.
        let code = unsafe { (in_memory as *const [u8; 16]).read_unaligned() };
        assert_eq!(function.code, code);
        let main = file.functions_ending(b"main");
        let main = main
            .iter()
            .find(|function| function.name == b"main")
            .unwrap();
        assert_ne!(main.address, 0);
    }

    #[test]
    fn file_that_is_not_a_library_is_not_opened() {
        assert!(ElfFile::open(b"/proc/self/maps").is_none());
        assert!(ElfFile::open(b"/no/such/file").is_none());
    }
}
