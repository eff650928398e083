//! Interned locations: the same function, file and line have one [`LocationId`] in all processes.

use std::rc::Rc;

use heaptide_capture::line_table::LineTable;
use heaptide_capture::{CodeText, Frame, PYTHON_ARENA_FILE, SymbolText};
use rustc_hash::FxHashMap;

use crate::interner::Interner;

/// The file of the location of Heaptide's own memory.
const OWN_FILE: &str = "<heaptide>";
/// The file of frames that represent jobs.
const JOB_FILE: &str = "<job>";

/// A location in the source of a program. Processes that ran the same line share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    pub function: Rc<str>,
    pub file: Rc<str>,
    pub line: i32,
    /// The library of a native function.
    pub library: Option<Rc<str>>,
}

impl Location {
    /// Whether this is a native function: compiled from C, C++ or Rust.
    pub fn is_native(&self) -> bool {
        self.library.is_some()
    }

    /// Whether this is the frame of arenas of Python's object allocator.
    pub fn is_python_arena(&self) -> bool {
        &*self.file == PYTHON_ARENA_FILE
    }

    /// Whether this frame represents a job.
    pub fn is_job(&self) -> bool {
        &*self.file == JOB_FILE
    }

    /// Whether this is Heaptide's own memory.
    pub fn is_own_memory(&self) -> bool {
        &*self.file == OWN_FILE
    }

    /// File and line; only the file if the line is unknown or lines are merged.
    pub fn file_and_line(&self) -> String {
        match self.line {
            1.. => format!("{}:{}", self.file, self.line),
            _ => self.file.to_string(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocationId(pub u32);

/// All locations of a session.
#[derive(Default)]
pub struct Names {
    locations: Interner<Location>,
    texts: FxHashMap<Rc<str>, ()>,
}

impl Names {
    pub fn get(&self, id: LocationId) -> &Location {
        &self.locations.values[id.0 as usize]
    }

    /// All locations, by ID.
    pub fn iter(&self) -> impl Iterator<Item = &Location> {
        self.locations.values.iter()
    }

    /// Interns a location of another session, under another file name if `file` is given.
    pub fn renamed(&mut self, location: &Location, file: Option<Rc<str>>) -> LocationId {
        let location = Location {
            function: self.text(&location.function),
            file: match file {
                Some(file) => file,
                None => self.text(&location.file),
            },
            line: location.line,
            library: location
                .library
                .as_deref()
                .map(|library| self.text(library)),
        };
        self.intern(location)
    }

    /// The location of memory that Heaptide itself allocated while the program ran.
    pub fn own_memory(&mut self) -> LocationId {
        let location = Location {
            function: self.text("Heaptide itself"),
            file: self.text(OWN_FILE),
            line: 0,
            library: None,
        };
        self.intern(location)
    }

    /// The location that represents a job at the root of its stacks.
    pub fn job(&mut self, name: &str) -> LocationId {
        let location = Location {
            function: self.text(&format!("job {name}")),
            file: self.text(JOB_FILE),
            line: 0,
            library: None,
        };
        self.intern(location)
    }

    /// The location of a native function.
    pub fn native(&mut self, name: &SymbolText, library: &str) -> LocationId {
        let location = Location {
            function: self.text(&name.function),
            file: self.text(if name.file.is_empty() {
                library
            } else {
                &name.file
            }),
            line: i32::try_from(name.line).unwrap_or(0),
            library: Some(self.text(library)),
        };
        self.intern(location)
    }

    /// Interns a name. A line feed in it would forge a line of a report, so it is shown as an escape.
    fn text(&mut self, text: &str) -> Rc<str> {
        if text.contains('\n') {
            return self.text(&text.replace('\n', "\\n"));
        }
        if let Some((known, ())) = self.texts.get_key_value(text) {
            return known.clone();
        }
        let text: Rc<str> = text.into();
        self.texts.insert(text.clone(), ());
        text
    }

    fn intern(&mut self, location: Location) -> LocationId {
        LocationId(self.locations.number(location))
    }
}

/// Resolves the frames of one process to locations.
pub struct Resolver<'a> {
    codes: &'a std::collections::HashMap<u32, CodeText>,
    python_version: u32,
    lines: FxHashMap<u32, LineTable>,
    known: FxHashMap<Frame, LocationId>,
}

impl<'a> Resolver<'a> {
    pub fn new(codes: &'a std::collections::HashMap<u32, CodeText>, python_version: u32) -> Self {
        Resolver {
            codes,
            python_version,
            lines: FxHashMap::default(),
            known: FxHashMap::default(),
        }
    }

    pub fn locate(&mut self, frame: Frame, names: &mut Names) -> LocationId {
        if let Some(&id) = self.known.get(&frame) {
            return id;
        }
        let location = match self.codes.get(&frame.code) {
            Some(code) => Location {
                function: names.text(&code.name),
                file: names.text(&code.file),
                line: self.line_of(frame, code),
                library: None,
            },
            None => Location {
                function: names.text("<unknown>"),
                file: names.text("<unknown>"),
                line: 0,
                library: None,
            },
        };
        let id = names.intern(location);
        self.known.insert(frame, id);
        id
    }

    /// The line of a frame; 0 if its code is not in the capture.
    pub fn line(&mut self, frame: Frame) -> i32 {
        match self.codes.get(&frame.code) {
            Some(code) => self.line_of(frame, code),
            None => 0,
        }
    }

    fn line_of(&mut self, frame: Frame, code: &CodeText) -> i32 {
        if frame.instruction == Frame::AT_START {
            return code.first_line;
        }
        let table = self.lines.entry(frame.code).or_insert_with(|| {
            LineTable::new(self.python_version, code.first_line, &code.line_table)
        });
        table.line_of(frame.instruction)
    }

    /// The number of different frames resolved so far.
    pub fn n_frames(&self) -> usize {
        self.known.len()
    }
}
