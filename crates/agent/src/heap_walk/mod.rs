//! Every Python object of this process, without making one: the heap walk.
//!
//! In reading order: [`roots`] is where it begins ([`interned`] where it ends), [`walk`] goes from object to object, and [`visited`] knows which it has
//! met; [`containers`], [`traverse`], [`type_objects`] and [`frames`] are what objects refer to, [`types`] what is known of each
//! type, [`sizes`] how large objects are. For a [`census`] objects of a type are looked through [`count`], and sums are
//! kept; for a snapshot they are looked through in [`prefetch`], and [`output`] keeps columns, of which [`renumber`] and
//! [`assemble`] make what `capture::heap` describes, and [`file`] writes it. [`reader`] is the only way to the interpreter:
//! reading words, and the few functions that make no object. The GIL is held from the first look to the last, so nothing
//! changes meanwhile; names and columns are in memory of our own.
//!
//! Absent here, on purpose: references taken, Python code run, `__dict__`s or frames made, and waiting.

mod assemble;
pub mod census;
mod column;
mod containers;
mod count;
pub mod file;
mod frames;
mod index;
mod interned;
mod names;
mod output;
mod prefetch;
mod previews;
mod reader;
mod renumber;
mod roots;
mod sizes;
mod traverse;
mod type_objects;
mod types;
mod visited;
mod walk;

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use heaptide_capture::heap::{HeapHeader, HeapSnapshot, RecordingPosition, Root};

use crate::cpython::heap_layout::{HeapLayout, type_object};
use crate::cpython::interpreter;
use crate::cpython::{Symbols, Unsupported};
use census::Census;
use count::Sums;
use output::{Columns, Output};
use reader::{Known, Reader};
use roots::Roots;
use walk::{Full, Walk, WalkResult};

/// What is wanted of a walk.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Short texts of what objects hold.
    pub values: bool,
    /// Patterns of names and values that must not be shown.
    pub redact: Vec<String>,
    pub python_version: u32,
    pub command: Vec<String>,
    pub executable: String,
    pub host: String,
}

/// Objects whose inside the caller knows, by which the walk's reading is proved.
#[derive(Clone, Copy, Debug)]
pub struct Proof {
    /// The value of the variable `heaptide_token` in the calling Python function.
    pub token: usize,
    /// An instance with the attributes `first` and `second`, in this order, and their values.
    pub instance: usize,
    pub first: usize,
    pub second: usize,
}

#[derive(Debug)]
pub enum WalkError {
    Interpreter(Unsupported),
    NoMemory,
}

impl fmt::Display for WalkError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalkError::Interpreter(unsupported) => unsupported.fmt(out),
            WalkError::NoMemory => out.write_str(
                "the heap could not be walked: the process may not take the memory it needs; raise its limit",
            ),
        }
    }
}

impl From<Full> for WalkError {
    fn from(_: Full) -> Self {
        WalkError::NoMemory
    }
}

impl From<Unsupported> for WalkError {
    fn from(unsupported: Unsupported) -> Self {
        WalkError::Interpreter(unsupported)
    }
}

/// What was found, before it is put in order.
pub struct Walked {
    result: WalkResult,
    roots: Vec<Root>,
    header: HeapHeader,
    redact: Vec<String>,
}

/// Learns how to read this interpreter; the first time takes a moment and may make objects, so it comes before the walk.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn prepare() -> Result<(), WalkError> {
    let symbols = Symbols::resolve()?;
    // SAFETY: passed on from the caller.
    unsafe { interpreter::prepare(&symbols)? };
    Ok(())
}

/// An interpreter that stands still, and what of it can be read.
struct Reading {
    reader: Reader,
    /// Attributes that instances keep without a dict.
    inline_values: bool,
    /// Local variables of running functions.
    locals: bool,
    /// The table of interned strings, where it keeps any alive.
    interned: Option<usize>,
    notes: Vec<String>,
}

impl Reading {
    /// # Safety
    /// As for [`walk`]; the calling thread holds the GIL as long as the value is used.
    unsafe fn new(proof: Proof) -> Result<Reading, WalkError> {
        let layout = *interpreter::layout().ok_or(Unsupported::CheckFailed {
            what: "the interpreter is not known yet",
        })?;
        let (major, minor) = layout.version;
        let heap = HeapLayout::of(layout.version).ok_or(Unsupported::Version { major, minor })?;
        let known = Known::resolve()?;
        // SAFETY: the GIL is held until the walk is over, and the layout was proved when it was prepared.
        let mut reader = unsafe { Reader::new(layout, heap, known) };
        if reader.word(known.type_type + 32) != heap.heap_type_size {
            Err(Unsupported::ForeignBuild {
                what: "its types have another size",
            })?;
        }
        reader.class_traverse = reader.word(reader.type_of(proof.instance) + type_object::TRAVERSE);
        let mut reading = Reading {
            inline_values: proof::attributes(&reader, proof),
            locals: false,
            interned: None,
            reader,
            notes: Vec::new(),
        };
        if let Some(name) = proof::locals(&reading.reader, proof) {
            reading.locals = true;
            reading.interned = interned::table(&reading.reader, name);
        }
        if !reading.inline_values {
            reading.note("the names of attributes that are kept without a dict could not be read");
        }
        if !reading.locals {
            reading.note("the local variables of running functions could not be read");
        }
        Ok(reading)
    }

    fn note(&mut self, sentence: &str) {
        self.notes.push(sentence.to_owned());
    }

    fn roots(&self) -> Roots {
        Roots {
            found: Vec::new(),
            read_locals: self.locals,
            interned: self.interned,
        }
    }
}

/// Said where the collector could not be asked.
const NOT_ALL: &str = "objects that no root leads to could not be looked for";

/// Goes through all objects: from the roots, then what the collector knows besides, then what only weak references lead
/// to. Returns how many objects the roots led to.
fn find_all(
    walk: &mut Walk<'_, Columns>,
    roots: &mut Roots,
    notes: &mut Vec<String>,
) -> Result<usize, Full> {
    roots.reserve(walk)?;
    roots.begin(walk);
    Output::run(walk)?;
    let n_led_to = walk.output.found.len();
    if !roots.add_collected(walk)? {
        notes.push(NOT_ALL.to_owned());
    }
    roots.add_weak(walk)?;
    Ok(n_led_to)
}

/// The same objects, where it does not matter what led to them: in the order in which the collector has them, which is
/// the order of making, they lie close together.
fn count_all(
    walk: &mut Walk<'_, Sums>,
    roots: &mut Roots,
    notes: &mut Vec<String>,
) -> Result<(), Full> {
    roots.reserve(walk)?;
    if !roots.add_collected(walk)? {
        notes.push(NOT_ALL.to_owned());
    }
    roots.begin(walk);
    Output::run(walk)?;
    roots.add_weak(walk)?;
    roots.add_interned(walk)
}

/// Walks the heap. The program stands still until it returns.
///
/// # Safety
/// The calling thread holds the GIL and was called from a Python function; the objects of `proof` are alive.
pub unsafe fn walk(wanted: &Wanted, proof: Proof) -> Result<Walked, WalkError> {
    let begun = Instant::now();
    // SAFETY: passed on from the caller.
    let mut reading = unsafe { Reading::new(proof)? };
    let mut roots = reading.roots();
    let mut walk = Walk::new(
        &reading.reader,
        Columns::new(),
        reading.inline_values,
        wanted.values,
    )?;
    let n_led_to = find_all(&mut walk, &mut roots, &mut reading.notes)?;
    roots.static_types(&mut walk);
    roots.classify_unreached(&mut walk, n_led_to)?;
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let walk_ns = begun.elapsed().as_nanos() as u64;
    let header = HeapHeader {
        pid: std::process::id(),
        python_version: wanted.python_version,
        taken_unix_ns: time.map_or(0, |time| time.as_nanos() as u64),
        stood_still_ns: walk_ns,
        walk_ns,
        walker_bytes: walk.bytes() + walk.output.bytes() as u64,
        command: wanted.command.clone(),
        executable: wanted.executable.clone(),
        host: wanted.host.clone(),
        notes: reading.notes,
        ..HeapHeader::default()
    };
    Ok(Walked {
        result: walk.into_result(),
        roots: roots.found,
        header,
        redact: wanted.redact.clone(),
    })
}

/// Counts every object of this process. The program stands still until it returns.
///
/// # Safety
/// As for [`walk`].
pub unsafe fn census(proof: Proof) -> Result<Census, WalkError> {
    let begun = Instant::now();
    // SAFETY: passed on from the caller.
    let mut reading = unsafe { Reading::new(proof)? };
    let mut roots = reading.roots();
    let sums = Sums::new().ok_or(Full)?;
    let mut walk = Walk::new(&reading.reader, sums, reading.inline_values, false)?;
    count_all(&mut walk, &mut roots, &mut reading.notes)?;
    let walker_bytes = walk.bytes() + walk.output.bytes() as u64;
    let stood_still_ns = begun.elapsed().as_nanos() as u64;
    Ok(Census {
        types: census::of_types(walk.types, &walk.output),
        stood_still_ns,
        walker_bytes,
        notes: reading.notes,
    })
}

// SAFETY: addresses in it are numbers that nobody follows any more, and its memory is its own; the interpreter is not
// asked again.
unsafe impl Send for Walked {}

impl Walked {
    /// The walk was done in a forked copy of this process, which stood still for so long.
    pub fn forked_from(&mut self, pid: u32, stood_still_ns: u64) {
        self.header.pid = pid;
        self.header.forked = true;
        self.header.stood_still_ns = stood_still_ns;
    }

    pub fn recorded_at(&mut self, position: Option<RecordingPosition>) {
        self.header.recording = position;
    }

    /// Puts everything in order. Needs no GIL.
    pub fn into_snapshot(self) -> HeapSnapshot {
        let mut snapshot = assemble::snapshot(self.result, self.roots, self.header);
        previews::redact(&mut snapshot, &self.redact);
        snapshot
    }
}

mod proof {
    //! Whether the walk reads frames and instances as the interpreter means them.

    use super::frames;
    use super::names::NameTable;
    use super::reader::Reader;
    use super::traverse::attributes_of;
    use super::types::TypeEntry;
    use crate::cpython::thread_frames;
    use std::ops::ControlFlow;

    const VARIABLE: &str = "heaptide_token";

    /// The name of the caller's variable, if this holds what the caller says.
    pub fn locals(reader: &Reader, proof: super::Proof) -> Option<usize> {
        let mut names = NameTable::new()?;
        let mut found = None;
        let mut visit = |frame: usize, code: usize, _: u32| {
            if frames::local(reader, &mut names, frame, code, VARIABLE) == Some(proof.token) {
                found = frames::name_of_local(reader, code, VARIABLE);
            }
            ControlFlow::Break(())
        };
        // SAFETY: the GIL is held, the thread is the calling one, and the layout was proved.
        let walked = unsafe {
            thread_frames(
                &reader.layout,
                crate::cpython::interpreter::thread_state(),
                &mut visit,
            )
        };
        walked.ok().and(found)
    }

    /// The attributes of the instance are where the layout says, or it has a dict, as all had before 3.11.
    pub fn attributes(reader: &Reader, proof: super::Proof) -> bool {
        use crate::cpython::heap_layout::InlineValues;
        if reader.heap.inline_values == InlineValues::None {
            return true;
        }
        let Some(mut names) = NameTable::new() else {
            return false;
        };
        let entry = TypeEntry::of(reader, &mut names, reader.type_of(proof.instance));
        let mut entries = Vec::new();
        attributes_of(reader, &entry, proof.instance, &mut entries);
        let read: Vec<(usize, &str)> = entries
            .iter()
            .map(|(value, label)| (*value, names.names.get(label.number())))
            .collect();
        read == [(proof.first, "first"), (proof.second, "second")]
    }
}
