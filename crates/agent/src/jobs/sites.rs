//! Allocation sites of jobs: stacks by number, with names and lines on request.
//!
//! `chain` hashes the innermost frames of the calling thread, and caches the numbers of recent stacks. Any other known stack
//! costs one lookup in a map. A new one is stored by the numbers that `codes` gives to code objects. Their texts are copied,
//! since a code object may be freed before a job's account is read. When a known code object is freed its address may be
//! reused, so the map by address is cleared.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use heaptide_capture::Code;
use heaptide_capture::line_table::LineTable;

use crate::cpython::{Layout, instr_offset};
use crate::record::codes;

/// Number of innermost frames in a site.
pub const MAX_FRAMES: usize = 24;

/// A hasher for keys that are addresses or hashes.
#[derive(Default)]
pub struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

pub type Words<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// A frame of a site, with names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteFrame {
    pub file: String,
    pub line: i32,
    pub function: String,
}

/// A function and a line of it. Equal frames of two sites have equal lines.
pub type Line = (u32, i32);

/// Numbers for functions: code objects of the same function name and file share one.
#[derive(Default)]
pub struct Functions<'a> {
    by_code: Words<u32, u32>,
    by_text: HashMap<(&'a str, &'a str), u32>,
}

struct CodeText {
    function: String,
    file: String,
    lines: LineTable,
}

#[derive(Default)]
pub struct Sites {
    by_address: Words<u64, u32>,
    by_content: Words<u64, u32>,
    /// The frames of each site, innermost first: the number of the code and the instruction in code units.
    frames: Vec<Box<[(u32, u32)]>>,
    codes: Words<u32, CodeText>,
    deaths_seen: u64,
}

impl Sites {
    /// Returns the number of the stack with this hash. `frames` are the code and the instruction of its frames, innermost
    /// first. Numbers start at 1, since 0 means "no stack".
    ///
    /// # Safety
    /// Live frames of the calling thread refer to the code objects, and `layout` fits the interpreter.
    #[cold]
    #[inline(never)]
    pub unsafe fn number(
        &mut self,
        layout: &Layout,
        key: u64,
        frames: impl Iterator<Item = (usize, usize)>,
    ) -> u32 {
        if codes::n_deaths() != self.deaths_seen {
            self.deaths_seen = codes::n_deaths();
            self.by_address.clear();
        }
        if let Some(&site) = self.by_address.get(&key) {
            return site;
        }
        // SAFETY: passed on from the caller.
        let site = unsafe { self.learn(layout, frames) };
        self.by_address.insert(key, site);
        site
    }

    /// # Safety
    /// As for [`Sites::number`].
    #[cold]
    unsafe fn learn(
        &mut self,
        layout: &Layout,
        frames: impl Iterator<Item = (usize, usize)>,
    ) -> u32 {
        let texts = &mut self.codes;
        let version = u32::from(layout.version.0) << 24 | u32::from(layout.version.1) << 16;
        let mut site = Vec::with_capacity(MAX_FRAMES);
        for (code, instruction) in frames {
            let on_new = |text: &Code| {
                texts.insert(text.id, CodeText::new(version, text));
            };
            // SAFETY: passed on from the caller.
            let id = unsafe { codes::id_and_text(&codes::JOB_CODES, layout, code, on_new) };
            if id == codes::NOT_WRITTEN {
                continue;
            }
            let offset = instr_offset(layout, code, instruction);
            site.push((id, if offset == u32::MAX { 0 } else { offset / 2 }));
        }
        let mut hasher = WordHasher::default();
        for &(id, instruction) in &site {
            hasher.write_u64(u64::from(id) << 32 | u64::from(instruction));
        }
        let frames = &mut self.frames;
        *self.by_content.entry(hasher.finish()).or_insert_with(|| {
            frames.push(site.into_boxed_slice());
            frames.len() as u32
        })
    }

    /// Returns the frames of a site, innermost first.
    fn frames(&self, site: u32) -> &[(u32, u32)] {
        let at = site.checked_sub(1);
        let frames = at.and_then(|at| self.frames.get(at as usize));
        frames.map_or(&[], |frames| frames)
    }

    /// Returns a site's frames as numbers, innermost first. Two sites have equal lines if `describe` returns equal frames.
    pub fn lines<'a>(&'a self, site: u32, functions: &mut Functions<'a>) -> Vec<Line> {
        let line = |&(id, instruction): &(u32, u32)| match self.codes.get(&id) {
            Some(code) => {
                let by_text = &mut functions.by_text;
                let function = *functions.by_code.entry(id).or_insert_with(|| {
                    let next = by_text.len() as u32 + 1;
                    *by_text.entry((&code.function, &code.file)).or_insert(next)
                });
                (function, code.lines.line_of(instruction))
            }
            None => (0, 0),
        };
        self.frames(site).iter().map(line).collect()
    }

    /// Returns a site's frames with names, innermost first.
    pub fn describe(&self, site: u32) -> Vec<SiteFrame> {
        let name = |&(id, instruction): &(u32, u32)| match self.codes.get(&id) {
            Some(code) => SiteFrame {
                function: code.function.clone(),
                file: code.file.clone(),
                line: code.lines.line_of(instruction),
            },
            None => SiteFrame {
                function: "<unknown>".to_owned(),
                file: "<unknown>".to_owned(),
                line: 0,
            },
        };
        self.frames(site).iter().map(name).collect()
    }
}

impl CodeText {
    fn new(version: u32, code: &Code) -> CodeText {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        CodeText {
            function: text(code.qualifier) + &text(code.name),
            file: text(code.file),
            lines: LineTable::new(version, code.first_line, code.line_table),
        }
    }
}
