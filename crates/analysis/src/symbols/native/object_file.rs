//! One file with symbols: its functions, and from its debug information their lines and inlined functions.

use std::borrow::Cow;
use std::path::Path;
use std::rc::Rc;

use addr2line::Context;
use gimli::{EndianRcSlice, RunTimeEndian, UnwindSection};
use heaptide_capture::SymbolText;
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, SymbolKind};

use super::demangle::readable;
use crate::files;

type Reader = EndianRcSlice<RunTimeEndian>;

/// Larger sections of debug information are not unpacked: a report must not need more memory than the program.
const MAX_SECTION_BYTES: u64 = 1 << 30;

/// Identifies one build of a library.
pub struct Identity {
    pub build_id: Vec<u8>,
    /// The name of a separate debug file.
    pub debug_link: Option<String>,
}

/// `None` if the file cannot be read or is not a library.
pub fn identity(path: &Path) -> Option<Identity> {
    let cache = ReadCache::new(files::open_library(path)?);
    let object = object::File::parse(&cache).ok()?;
    let build_id = object
        .build_id()
        .ok()
        .flatten()
        .unwrap_or_default()
        .to_vec();
    let link = object.gnu_debuglink().ok().flatten();
    Some(Identity {
        build_id,
        debug_link: link.map(|(name, _)| String::from_utf8_lossy(name).into_owned()),
    })
}

struct Function {
    start: u64,
    size: u64,
    name: String,
}

pub struct ObjectFile {
    /// By address.
    functions: Vec<Function>,
    /// Start and end of functions that have unwind information, by address.
    extents: Vec<(u64, u64)>,
    lines: Option<Context<Reader>>,
}

impl ObjectFile {
    /// `None` if the file cannot be read.
    pub fn read(path: &Path) -> Option<ObjectFile> {
        let cache = ReadCache::new(files::open_library(path)?);
        let object = object::File::parse(&cache).ok()?;
        let mut functions: Vec<Function> = object
            .symbols()
            .chain(object.dynamic_symbols())
            .filter(|symbol| symbol.is_definition() && is_function(symbol.kind()))
            .filter_map(|symbol| {
                Some(Function {
                    start: symbol.address(),
                    size: symbol.size(),
                    name: symbol.name().ok()?.to_owned(),
                })
            })
            .filter(|function| !function.name.is_empty())
            .collect();
        // If code has several names, the shortest one is usually the name in the source.
        functions.sort_by(|one, other| {
            let key = |function: &Function| {
                (
                    function.start,
                    std::cmp::Reverse(function.size),
                    function.name.len(),
                )
            };
            key(one)
                .cmp(&key(other))
                .then_with(|| one.name.cmp(&other.name))
        });
        functions.dedup_by_key(|function| function.start);
        Some(ObjectFile {
            functions,
            extents: extents(&object).unwrap_or_default(),
            lines: lines(&object),
        })
    }

    /// The functions at an address, the outermost first; empty if no symbol covers it.
    pub fn names(&mut self, address: u64) -> Vec<SymbolText> {
        let symbol = self.symbol(address);
        let mut names = self.inlined(address).unwrap_or_default();
        if let (Some(symbol), Some(outermost)) = (symbol, names.first_mut()) {
            // Use the symbol, as other tools do: the name in the debug information may lack its scope.
            if outermost.function.is_empty() || symbol.starts_with("_Z") || symbol.starts_with("_R")
            {
                outermost.function = readable(symbol);
            }
        }
        if names.is_empty() {
            names.extend(symbol.map(|name| SymbolText {
                function: readable(name),
                ..SymbolText::default()
            }));
        }
        names
    }

    /// The start of the function that contains an address.
    pub fn function_start(&self, address: u64) -> Option<u64> {
        let at = self.extents.partition_point(|&(start, _)| start <= address);
        let &(start, end) = self.extents.get(at.checked_sub(1)?)?;
        (address < end).then_some(start)
    }

    fn symbol(&self, address: u64) -> Option<&str> {
        let at = self
            .functions
            .partition_point(|function| function.start <= address);
        let function = self.functions.get(at.checked_sub(1)?)?;
        let covers = address - function.start < function.size
            // A symbol without a size comes from assembly code. It ends at the end of its unwind information.
            || (function.size == 0 && self.function_start(address) == Some(function.start));
        covers.then_some(&*function.name)
    }

    fn inlined(&self, address: u64) -> Option<Vec<SymbolText>> {
        let mut frames = self
            .lines
            .as_ref()?
            .find_frames(address)
            .skip_all_loads()
            .ok()?;
        let mut names = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let raw = frame
                .function
                .as_ref()
                .and_then(|name| name.raw_name().ok());
            let location = frame.location.as_ref();
            names.push(SymbolText {
                function: raw
                    .map(|name: Cow<str>| readable(&name))
                    .unwrap_or_default(),
                file: location
                    .and_then(|at| at.file)
                    .unwrap_or_default()
                    .to_owned(),
                line: location.and_then(|at| at.line).unwrap_or(0),
            });
        }
        names.reverse();
        // Without function names, use the symbol.
        let is_named = names.iter().skip(1).all(|name| !name.function.is_empty());
        (is_named && !names.is_empty()).then_some(names)
    }
}

fn is_function(kind: SymbolKind) -> bool {
    matches!(kind, SymbolKind::Text | SymbolKind::Unknown)
}

/// The ranges of all functions with unwind information, which even a stripped library has.
fn extents<'a>(object: &impl Object<'a>) -> Option<Vec<(u64, u64)>> {
    let section = object.section_by_name(".eh_frame")?;
    let at = section.address();
    let data = section.uncompressed_data().ok()?;
    let endian = endian_of(object);
    let frames = gimli::EhFrame::new(&data, endian);
    let text = object
        .section_by_name(".text")
        .map_or(0, |section| section.address());
    let bases = gimli::BaseAddresses::default()
        .set_eh_frame(at)
        .set_text(text);
    let mut entries = frames.entries(&bases);
    let mut extents = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry {
            if let Ok(function) = partial.parse(gimli::EhFrame::cie_from_offset) {
                extents.push((function.initial_address(), function.end_address()));
            }
        }
    }
    extents.sort_unstable();
    Some(extents)
}

fn endian_of<'a>(object: &impl Object<'a>) -> RunTimeEndian {
    if object.is_little_endian() {
        RunTimeEndian::Little
    } else {
        RunTimeEndian::Big
    }
}

/// The debug information, if the file has any.
fn lines<'a>(object: &impl Object<'a>) -> Option<Context<Reader>> {
    let endian = endian_of(object);
    object.section_by_name(".debug_info")?;
    let load = |id: gimli::SectionId| -> Result<Reader, gimli::Error> {
        let section = object.section_by_name(id.name());
        let section = section.filter(|section| section.size() <= MAX_SECTION_BYTES);
        let data = section.and_then(|section| section.uncompressed_data().ok());
        let data: Rc<[u8]> = data.map_or_else(|| Rc::from(&[][..]), |data| Rc::from(&*data));
        Ok(EndianRcSlice::new(data, endian))
    };
    let dwarf = gimli::Dwarf::load(load).ok()?;
    Context::from_dwarf(dwarf).ok()
}
