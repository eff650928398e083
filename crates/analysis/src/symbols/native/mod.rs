//! Resolves native frames: the functions at an address of a library, including inlined ones.
//!
//! Symbols are resolved when a report is made: first from the capture, if they were bundled. Next come the library's
//! own file and separate debug files, if their build IDs match the loaded library. A stripped library still has
//! exported names; code between these is named after the address where its function begins.

mod candidates;
mod demangle;
mod object_file;

use std::collections::BTreeSet;

use heaptide_capture::{Frame, ModuleText, Registry, SymbolText};
use rustc_hash::{FxHashMap, FxHashSet};

use object_file::ObjectFile;

/// The functions at the address of each frame, the outermost first.
#[derive(Default)]
pub struct NativeNames {
    names: FxHashMap<Frame, Vec<SymbolText>>,
    absent: BTreeSet<String>,
}

impl NativeNames {
    /// Resolves all native frames, library by library, so that memory holds only one library at a time.
    pub fn find(frames: impl Iterator<Item = Frame>, registry: &Registry) -> NativeNames {
        let mut names = NativeNames::default();
        names.find_more(frames, registry);
        names
    }

    /// Resolves frames that were not resolved yet.
    pub fn find_more(&mut self, frames: impl Iterator<Item = Frame>, registry: &Registry) {
        let mut wanted: FxHashMap<u32, FxHashSet<u32>> = FxHashMap::default();
        let is_new = |frame: &Frame| {
            registry.modules.contains_key(&frame.code) && !self.names.contains_key(frame)
        };
        for frame in frames.filter(is_new) {
            wanted
                .entry(frame.code)
                .or_default()
                .insert(frame.instruction);
        }
        for (code, offsets) in wanted {
            let module = &registry.modules[&code];
            let mut missing = Vec::new();
            for offset in offsets {
                let frame = Frame {
                    code,
                    instruction: offset,
                };
                match registry.symbols.get(&(code, offset)) {
                    Some(names) => {
                        self.names.insert(frame, names.clone());
                    }
                    None => missing.push(offset),
                }
            }
            missing.sort_unstable();
            let names = self.resolve(module, &missing);
            let frames = missing
                .into_iter()
                .map(|instruction| Frame { code, instruction });
            self.names.extend(frames.zip(names));
        }
    }

    /// Libraries without names, because their files are missing or have changed.
    pub fn absent_libraries(&self) -> impl Iterator<Item = &str> {
        self.absent.iter().map(String::as_str)
    }

    /// The functions at a frame's address, the outermost first.
    pub fn get(&self, frame: Frame) -> &[SymbolText] {
        self.names.get(&frame).map_or(&[], Vec::as_slice)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Frame, &[SymbolText])> {
        self.names
            .iter()
            .map(|(&frame, names)| (frame, names.as_slice()))
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The functions at each address of one library.
    fn resolve(&mut self, module: &ModuleText, offsets: &[u32]) -> Vec<Vec<SymbolText>> {
        if module.path.starts_with('<') {
            let name = SymbolText {
                function: module.path.clone(),
                ..SymbolText::default()
            };
            return vec![vec![name]; offsets.len()];
        }
        if offsets.is_empty() {
            return Vec::new();
        }
        let candidates = candidates::candidates(module);
        let mut objects: Vec<ObjectFile> = candidates
            .iter()
            .filter_map(|path| ObjectFile::read(path))
            .collect();
        // The kernel's vDSO is not a file.
        if objects.is_empty() && !module.path.starts_with("linux-vdso") {
            self.absent.insert(module.path.clone());
        }
        let addresses = offsets.iter().map(|&offset| u64::from(offset));
        addresses
            .map(|address| {
                let mut names: Vec<SymbolText> = Vec::new();
                for object in &mut objects {
                    names = object.names(address);
                    if !names.is_empty() {
                        break;
                    }
                }
                if names.is_empty() {
                    let starts = objects
                        .iter()
                        .filter_map(|object| object.function_start(address));
                    let start = starts.max().unwrap_or(address);
                    names.push(SymbolText {
                        function: format!("{}+{start:#x}", short_name(&module.path)),
                        ..SymbolText::default()
                    });
                }
                names
            })
            .collect()
    }
}

/// The last part of a library's path.
pub fn short_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
