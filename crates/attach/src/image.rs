//! A program or library in another process's memory, and the addresses of its exported functions.
//!
//! This module reads the memory, not the file: the file may have been replaced, or may be in another namespace.

use std::io;

use heaptide_procfs::Mapping;

use crate::memory::{Memory, word_at};

const HEADER_LEN: usize = 64;
const PROGRAM_HEADER_LEN: usize = 56;
const SYMBOL_LEN: usize = 24;
const MAX_SYMBOLS: usize = 1 << 20;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_HASH: u64 = 4;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u16 = 0;

/// An exported function or variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub address: u64,
    pub len: u64,
}

impl Symbol {
    pub fn contains(&self, address: u64) -> bool {
        (self.address..self.address.saturating_add(self.len)).contains(&address)
    }
}

/// The reason why a mapping is not a readable image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoImage {
    /// Not the beginning of a program or library.
    Other,
    /// For another processor architecture.
    OtherMachine,
}

#[derive(Clone, Debug)]
pub struct Image {
    symbols: Vec<u8>,
    names: Vec<u8>,
    bias: u64,
}

impl Image {
    /// Reads the tables of the image that begins at a mapping.
    pub fn read(memory: &Memory, mapping: &Mapping) -> Result<Image, NoImage> {
        if mapping.file_offset != 0 || !mapping.is_readable {
            return Err(NoImage::Other);
        }
        let header = memory.read(mapping.start, HEADER_LEN);
        let header = header.map_err(|_| NoImage::Other)?;
        if !header.starts_with(b"\x7fELF") {
            return Err(NoImage::Other);
        }
        let is_64_bit_little = header.get(4..6) == Some(&[2, 1]);
        if !is_64_bit_little || u16_at(&header, 18) != Some(MACHINE) {
            return Err(NoImage::OtherMachine);
        }
        Image::tables(memory, mapping.start, &header)
            .ok()
            .flatten()
            .ok_or(NoImage::Other)
    }

    fn tables(memory: &Memory, start: u64, header: &[u8]) -> io::Result<Option<Image>> {
        let (Some(at), Some(n)) = (word_at(header, 32), u16_at(header, 56)) else {
            return Ok(None);
        };
        let headers = memory.read(start.wrapping_add(at), usize::from(n) * PROGRAM_HEADER_LEN)?;
        let mut first_load = None;
        let mut dynamic = None;
        for header in headers.chunks_exact(PROGRAM_HEADER_LEN) {
            let segment_type = u32_at(header, 0);
            let (Some(address), Some(len)) = (word_at(header, 16), word_at(header, 40)) else {
                continue;
            };
            match segment_type {
                Some(PT_LOAD) if first_load.is_none() => first_load = Some(address),
                Some(PT_DYNAMIC) => dynamic = Some((address, len)),
                _ => {}
            }
        }
        let (Some(first_load), Some((dynamic, len))) = (first_load, dynamic) else {
            return Ok(None);
        };
        let bias = start.wrapping_sub(first_load & !0xfff);
        let dynamic = memory.read(bias.wrapping_add(dynamic), len as usize)?;
        let entry = |wanted: u64| {
            let mut entries = dynamic.chunks_exact(16);
            let found = entries.find(|entry| word_at(entry, 0) == Some(wanted));
            found.and_then(|entry| word_at(entry, 8))
        };
        // The dynamic linker has relocated most of these addresses; some are as in the file.
        let address = |wanted: u64| {
            let value = entry(wanted)?;
            Some(if value < bias { bias + value } else { value })
        };
        let (Some(symbols), Some(names), Some(names_len)) =
            (address(DT_SYMTAB), address(DT_STRTAB), entry(DT_STRSZ))
        else {
            return Ok(None);
        };
        let n = match (address(DT_HASH), address(DT_GNU_HASH)) {
            (Some(hash), _) => {
                let head = memory.read(hash, 8)?;
                u32_at(&head, 4).unwrap_or(0) as usize
            }
            (None, Some(hash)) => gnu_count(memory, hash)?,
            (None, None) => 0,
        };
        Ok(Some(Image {
            symbols: memory.read(symbols, n.min(MAX_SYMBOLS) * SYMBOL_LEN)?,
            names: memory.read(names, names_len as usize)?,
            bias,
        }))
    }

    /// Returns the address and size of an exported symbol.
    pub fn symbol(&self, name: &str) -> Option<Symbol> {
        self.symbols.chunks_exact(SYMBOL_LEN).find_map(|symbol| {
            let named = u32_at(symbol, 0)? as usize;
            let rest = self.names.get(named..)?;
            let is_match = rest.strip_prefix(name.as_bytes())?.first() == Some(&0);
            let section = u16_at(symbol, 6)?;
            (is_match && section != 0).then_some(Symbol {
                address: self.bias.wrapping_add(word_at(symbol, 8)?),
                len: word_at(symbol, 16)?,
            })
        })
    }
}

/// Returns the number of symbols, which is the end of the last chain of the hash table.
fn gnu_count(memory: &Memory, table: u64) -> io::Result<usize> {
    let head = memory.read(table, 16)?;
    let number = |at| u32_at(&head, at).unwrap_or(0) as usize;
    let (n_buckets, first, n_bloom) = (number(0), number(4), number(8));
    let buckets_at = table + 16 + 8 * n_bloom as u64;
    let buckets = memory.read(buckets_at, 4 * n_buckets)?;
    let last = buckets
        .chunks_exact(4)
        .filter_map(|bucket| u32_at(bucket, 0))
        .max()
        .unwrap_or(0) as usize;
    if last < first {
        return Ok(first);
    }
    let chains_at = buckets_at + 4 * n_buckets as u64;
    for index in last..MAX_SYMBOLS {
        let chain = memory.read(chains_at + 4 * (index - first) as u64, 4)?;
        if u32_at(&chain, 0).unwrap_or(1) & 1 == 1 {
            return Ok(index + 1);
        }
    }
    Ok(MAX_SYMBOLS)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_procfs::mappings;

    #[test]
    fn functions_of_a_loaded_library_are_found_in_memory() {
        let pid = std::process::id();
        let memory = Memory::of(pid);
        let mappings = mappings(pid).expect("own mappings are readable");
        // SAFETY: the name is a C string; dlsym has no other preconditions.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"munmap".as_ptr()) } as u64;
        let code = mappings
            .iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&expected))
            .expect("the C library is mapped");
        let libc = mappings
            .iter()
            .filter(|mapping| mapping.path == code.path)
            .find_map(|mapping| Image::read(&memory, mapping).ok())
            .expect("the C library is readable");
        let found = libc.symbol("munmap").expect("every libc has it");
        assert_eq!(found.address, expected);
        assert!(found.contains(expected) && !found.contains(expected + found.len));
        assert_eq!(libc.symbol("munma"), None);
        assert_eq!(libc.symbol("no_such_function"), None);
    }
}
