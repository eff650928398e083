//! A loaded library: its readable segments, the index of its call-frame information, and its build ID.
//!
//! The program headers are the file's own claim. A part counts only if it lies in a readable segment as a whole.

use std::ffi::c_char;
use std::ops::Range;

/// Segments of a library that are remembered.
const MAX_SEGMENTS: usize = 8;

/// A library as the linker describes it.
pub(super) struct LoadedLibrary {
    pub start: usize,
    pub end: usize,
    pub base: usize,
    pub name: *const c_char,
    pub headers: *const libc::Elf64_Phdr,
    pub n_headers: usize,
}

/// A loaded library.
#[derive(Clone, Copy)]
pub struct Module {
    pub id: u32,
    pub start: usize,
    pub end: usize,
    /// The difference between its addresses in memory and in its file.
    pub base: usize,
    /// Start and end of the sorted index of its call-frame information; 0 if it has none.
    pub index_at: usize,
    pub index_end: usize,
    segments: [(usize, usize); MAX_SEGMENTS],
}

impl Module {
    /// A library without a number.
    pub(super) fn described(library: &LoadedLibrary, headers: &[libc::Elf64_Phdr]) -> Module {
        let mut module = Module {
            id: 0,
            start: library.start,
            end: library.end,
            base: library.base,
            index_at: 0,
            index_end: 0,
            segments: [(0, 0); MAX_SEGMENTS],
        };
        let loads = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0)
            .map(|header| module.range_of(header))
            .filter(|range| range.start >= library.start && range.end <= library.end);
        let mut segments = [(0, 0); MAX_SEGMENTS];
        for (segment, range) in segments.iter_mut().zip(loads) {
            *segment = (range.start, range.end);
        }
        module.segments = segments;
        let index = module.readable(headers, libc::PT_GNU_EH_FRAME).next();
        if let Some(index) = index {
            (module.index_at, module.index_end) = (index.start, index.end);
        }
        module
    }

    /// The addresses of a part of the library.
    fn range_of(&self, header: &libc::Elf64_Phdr) -> Range<usize> {
        let at = self.base.wrapping_add(header.p_vaddr as usize);
        at..at.saturating_add(header.p_memsz as usize)
    }

    /// The parts of one type that lie in a readable segment as a whole. The headers are the file's own claim.
    pub(super) fn readable(
        &self,
        headers: &[libc::Elf64_Phdr],
        part_type: u32,
    ) -> impl Iterator<Item = Range<usize>> {
        headers
            .iter()
            .filter(move |header| header.p_type == part_type)
            .map(|header| self.range_of(header))
            .filter(|range| {
                self.readable_end(range.start)
                    .is_some_and(|end| range.end <= end)
            })
    }

    /// The end of the readable segment that contains an address.
    pub fn readable_end(&self, address: usize) -> Option<usize> {
        let mut segments = self.segments.iter();
        let segment = segments.find(|(start, end)| (*start..*end).contains(&address));
        segment.map(|&(_, end)| end)
    }
}

/// The build ID among the notes of a library.
pub(super) fn build_id_in(mut notes: &[u8]) -> Option<&[u8]> {
    const BUILD_ID: u32 = 3;
    loop {
        let word = |at: usize| Some(u32::from_ne_bytes(notes.get(at..at + 4)?.try_into().ok()?));
        let (name_len, len, note_type) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let name = notes.get(12..12 + name_len)?;
        let at = 12 + name_len.next_multiple_of(4);
        let value = notes.get(at..at + len)?;
        if note_type == BUILD_ID && name == b"GNU\0" {
            return Some(value);
        }
        notes = notes.get(at + len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::rules::{CallerRule, rule_of};

    #[test]
    fn build_id_is_found_after_other_notes() {
        let mut notes = Vec::new();
        let mut note = |note_type: u32, value: &[u8]| {
            for word in [4, value.len() as u32, note_type] {
                notes.extend_from_slice(&word.to_ne_bytes());
            }
            notes.extend_from_slice(b"GNU\0");
            notes.extend_from_slice(value);
            notes.resize(notes.len().next_multiple_of(4), 0);
        };
        note(1, b"abi-tag");
        note(3, &[9; 20]);
        assert_eq!(build_id_in(&notes), Some(&[9; 20][..]));
        assert_eq!(build_id_in(&notes[..30]), None);
        assert_eq!(build_id_in(&[0xff; 40]), None);
    }

    const LIBRARY: LoadedLibrary = LoadedLibrary {
        start: 0x10000,
        end: 0x20000,
        base: 0x10000,
        name: std::ptr::null(),
        headers: std::ptr::null(),
        n_headers: 0,
    };

    fn part(p_type: u32, p_flags: u32, p_vaddr: u64, p_memsz: u64) -> libc::Elf64_Phdr {
        libc::Elf64_Phdr {
            p_type,
            p_flags,
            p_vaddr,
            p_memsz,
            p_offset: 0,
            p_paddr: 0,
            p_filesz: p_memsz,
            p_align: 8,
        }
    }

    #[test]
    fn library_without_an_index_has_no_rules() {
        let loads = [part(libc::PT_LOAD, libc::PF_R, 0, 0x1000)];
        let module = Module::described(&LIBRARY, &loads);
        // SAFETY: without an index, nothing of the library is read.
        let rule = unsafe { rule_of(&module, LIBRARY.start) };
        assert_eq!(rule.caller, CallerRule::Unknown);
    }

    #[test]
    fn parts_that_leave_the_readable_segments_are_not_used() {
        let loads = [
            part(libc::PT_LOAD, libc::PF_R, 0, 0x1000),
            part(libc::PT_LOAD, 0, 0x1000, 0x7000),
            part(libc::PT_LOAD, libc::PF_R, 0x8000, 0x1000),
        ];
        let index_of = |p_vaddr, p_memsz| {
            let index = part(libc::PT_GNU_EH_FRAME, libc::PF_R, p_vaddr, p_memsz);
            // An index before the segments is also valid: the order of the parts is free.
            let module = Module::described(&LIBRARY, &[index, loads[0], loads[1], loads[2]]);
            (module.index_at, module.index_end)
        };
        assert_eq!(index_of(0x100, 0x80), (0x10100, 0x10180));
        assert_eq!(index_of(0x8100, 0xf00), (0x18100, 0x19000));
        for (at, len) in [
            (0x100, 0x8000),
            (0x2000, 0x80),
            (0x8100, 0xf01),
            (0x100, u64::MAX),
        ] {
            assert_eq!(index_of(at, len), (0, 0), "{at:#x} {len:#x}");
        }
    }
}
