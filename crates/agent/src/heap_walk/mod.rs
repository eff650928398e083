//! The heap walk: finds every Python object of this process without creating one.
//!
//! | module | task |
//! |---|---|
//! | [`roots`], [`interned`] | the roots, at which the walk starts, and the table of interned strings, at which it ends |
//! | [`walk`], [`visited`] | the walk from object to object, and the set of visited objects |
//! | [`containers`], [`traverse`], [`attributes`], [`type_objects`], [`frames`] | the references of an object |
//! | [`types`], [`fields`], [`sizes`] | the properties of a type, the labels of its fields, the size of an object |
//! | [`count`], [`census`] | for a census: objects in batches of one type, sums |
//! | [`tracked`], [`garbage`] | the count of tracked objects that a collection would leave |
//! | [`prefetch`], [`output`], [`previews`] | for a snapshot: objects in the order in which they are found, columns, previews |
//! | [`kind_sums`] | sums of the reachable objects by kind, without a snapshot |
//! | [`renumber`], [`assemble`], [`file`] | the conversion of columns to a snapshot of `capture::heap`, and its file |
//! | [`column`], [`arena`] | growing arrays in Heaptide's own memory |
//! | [`reader`], [`known`], [`proof`] | reads of the interpreter's memory, and their verification |
//!
//! The calling thread holds the GIL during the whole walk, so nothing changes meanwhile. Names and columns are in
//! Heaptide's own memory. The walk takes no references, runs no Python code, creates no `__dict__` or frame object, and
//! does not wait.

mod arena;
mod assemble;
mod attributes;
pub mod census;
mod column;
mod containers;
mod count;
mod fields;
pub mod file;
mod frames;
mod garbage;
mod index;
mod interned;
pub mod kind_sums;
mod known;
mod names;
mod output;
mod prefetch;
mod previews;
mod proof;
mod reader;
mod renumber;
mod roots;
mod sizes;
pub mod tracked;
mod traverse;
mod type_objects;
mod types;
mod visited;
mod walk;

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use heaptide_capture::heap::{HeapHeader, HeapSnapshot, RecordingPosition, Root, TypeInfo};
use heaptide_capture::identity::Facts;
use heaptide_capture::redact::Redaction;

use crate::cpython::heap_layout::HeapLayout;
use crate::cpython::interpreter;
use crate::cpython::offsets::TypeField;
use crate::cpython::{Symbols, Unsupported};
use arena::ArenaScope;
use census::Census;
use count::Sums;
use kind_sums::KindSums;
use known::Known;
use output::{Columns, Output};
pub use proof::Proof;
use reader::Reader;
use roots::Roots;
use walk::{Full, Walk, WalkResult};

/// Options of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct SnapshotOptions {
    /// Whether to store previews: short texts of values.
    pub values: bool,
    /// Names and values that must not be shown.
    pub redact: Redaction,
    pub python_version: u32,
    pub command: Vec<String>,
    pub executable: String,
    pub host: String,
    /// Read before a fork, because the child that walks is another process.
    pub facts: Facts,
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
                "cannot walk the heap: the process has reached its memory limit; raise the limit",
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

/// The result of a walk, before it is assembled.
pub struct Walked {
    result: WalkResult,
    roots: Vec<Root>,
    header: HeapHeader,
    redact: Redaction,
    /// Whether the caller should collect garbage and walk again: see [`garbage::needs_collection`].
    pub needs_collection: bool,
}

/// Determines the layout of this interpreter. The first call takes time and may create objects, so call it before the walk.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn prepare() -> Result<(), WalkError> {
    let symbols = Symbols::resolve()?;
    // SAFETY: passed on from the caller.
    unsafe { interpreter::prepare(&symbols)? };
    Ok(())
}

/// A paused interpreter, and the parts of it that can be read.
struct Reading {
    reader: Reader,
    /// Whether attributes that instances store without a dict can be read.
    inline_values: bool,
    /// Whether local variables of running functions can be read.
    locals: bool,
    interned: Option<interned::Table>,
    notes: Vec<String>,
}

impl Reading {
    /// # Safety
    /// As for [`walk`]; the calling thread holds the GIL as long as the value is used.
    unsafe fn new(proof: Proof) -> Result<Reading, WalkError> {
        let layout = *interpreter::layout().ok_or(Unsupported::CheckFailed {
            what: "the interpreter was not prepared",
        })?;
        let (major, minor) = layout.version;
        let heap = HeapLayout::of(layout.version).ok_or(Unsupported::Version { major, minor })?;
        let known = Known::resolve()?;
        // SAFETY: the caller holds the GIL until the walk is over, and the walk runs no Python code. The layout was
        // proved when the interpreter was prepared, and `heap` is the layout of the same version.
        let mut reader = unsafe { Reader::new(layout, heap, known) };
        if reader.basic_size(known.type_type) != heap.heap_type_size {
            Err(Unsupported::ForeignBuild {
                what: "its types have another size",
            })?;
        }
        // SAFETY: the caller keeps the objects of the proof alive.
        let objects = unsafe { proof.objects() };
        let (mut inline_values, mut name) = (false, None);
        if let Some((instance, token)) = objects {
            let class = reader.type_of(instance);
            reader.class_traverse = reader.type_field(class, TypeField::Traverse);
            inline_values = proof::attributes(&reader, instance, proof);
            name = proof::locals(&reader, token);
        }
        let mut reading = Reading {
            inline_values,
            locals: name.is_some(),
            interned: name.and_then(|name| interned::table(&reader, name)),
            reader,
            notes: Vec::new(),
        };
        if !reading.inline_values {
            reading
                .note("the names of attributes that are stored without a dict could not be read");
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
            entries: Vec::new(),
            read_locals: self.locals,
            interned: self.interned,
        }
    }
}

/// The note of a walk if the garbage collector's objects could not be listed.
const NOT_ALL: &str = "objects that no root leads to could not be found";

/// Finds all objects: first from the roots, then objects that only the collector knows, then objects that only weak
/// references lead to. Returns the number of objects that the roots led to.
fn find_all(
    walk: &mut Walk<'_, Columns>,
    roots: &mut Roots,
    notes: &mut Vec<String>,
) -> Result<usize, Full> {
    roots.reserve(walk)?;
    roots.begin(walk);
    Output::run(walk)?;
    let n_reached = walk.output.handles.len();
    if !roots.add_collected(walk)? {
        notes.push(NOT_ALL.to_owned());
    }
    roots.add_weak(walk)?;
    Ok(n_reached)
}

/// Counts the same objects as [`find_all`]. The order does not matter, so the collector's objects come first: its lists
/// are in the order of creation, and objects created one after another lie close together in memory.
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

/// Walks the heap for a snapshot. The program is paused until it returns.
///
/// # Safety
/// The calling thread holds the GIL and was called from a Python function; the objects of `proof` are alive.
pub unsafe fn walk(options: &SnapshotOptions, proof: Proof) -> Result<Walked, WalkError> {
    let begun = Instant::now();
    let _arena = ArenaScope::enter();
    // SAFETY: passed on from the caller.
    let mut reading = unsafe { Reading::new(proof)? };
    let mut roots = reading.roots();
    let mut walk = Walk::new(
        &reading.reader,
        Columns::new(),
        reading.inline_values,
        options.values,
    )?;
    let n_reached = find_all(&mut walk, &mut roots, &mut reading.notes)?;
    roots.static_types(&mut walk);
    let garbage = roots.classify_unreached(&mut walk, n_reached)?;
    let needs_collection = garbage::needs_collection(&walk, &garbage);
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let walk_ns = begun.elapsed().as_nanos() as u64;
    let header = HeapHeader {
        pid: std::process::id(),
        python_version: options.python_version,
        taken_unix_ns: time.map_or(0, |time| time.as_nanos() as u64),
        paused_ns: walk_ns,
        walk_ns,
        walker_bytes: walk.bytes() + walk.output.bytes() as u64,
        command: options.redact.command(options.command.clone()),
        executable: options.executable.clone(),
        host: options.host.clone(),
        facts: options.facts.clone(),
        notes: reading.notes,
        ..HeapHeader::default()
    };
    Ok(Walked {
        result: walk.into_result(),
        roots: roots.entries,
        header,
        redact: options.redact.clone(),
        needs_collection,
    })
}

/// Counts every object of this process. The program is paused until it returns.
///
/// # Safety
/// As for [`walk`].
pub unsafe fn census(proof: Proof) -> Result<Census, WalkError> {
    let begun = Instant::now();
    let _arena = ArenaScope::enter();
    // SAFETY: passed on from the caller.
    let mut reading = unsafe { Reading::new(proof)? };
    let mut roots = reading.roots();
    let sums = Sums::new().ok_or(Full)?;
    let mut walk = Walk::new(&reading.reader, sums, reading.inline_values, false)?;
    count_all(&mut walk, &mut roots, &mut reading.notes)?;
    let walker_bytes = walk.bytes() + walk.output.bytes() as u64;
    let paused_ns = begun.elapsed().as_nanos() as u64;
    Ok(Census {
        types: census::of_types(walk.types, &walk.output),
        paused_ns,
        walker_bytes,
        notes: reading.notes,
    })
}

// SAFETY: after the walk, no code reads the objects and types to which a `Walked` refers: it only compares their
// addresses as numbers. A `Walked` owns its memory.
unsafe impl Send for Walked {}

impl Walked {
    /// Notes that a forked child of process `pid` did the walk, and how long that process was paused.
    pub(crate) fn forked_from(&mut self, pid: u32, paused_ns: u64) {
        self.header.pid = pid;
        self.header.forked = true;
        self.header.paused_ns = paused_ns;
    }

    pub fn recorded_at(&mut self, position: Option<RecordingPosition>) {
        self.header.recording = position;
    }

    /// Sums the reachable objects by kind. Needs no GIL.
    pub fn kind_sums(&self) -> KindSums {
        KindSums::new(&self.result)
    }

    /// The types of the objects, by the numbers that [`KindSums`] uses.
    pub fn types(&self) -> impl Iterator<Item = &TypeInfo> {
        self.result.types.iter().map(|entry| &entry.info)
    }

    /// Assembles the snapshot. Needs no GIL.
    pub fn into_snapshot(self) -> HeapSnapshot {
        let mut snapshot = assemble::snapshot(self.result, self.roots, self.header);
        previews::redact(&mut snapshot, &self.redact);
        snapshot
    }
}
