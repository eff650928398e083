//! Writes a snapshot as bytes. Runs in the profiled program, after the walk: it must not panic or need much memory.

use std::io::{self, Write};

use super::column::{ColumnWriter, tag};
use super::{HeapHeader, HeapSnapshot, NO_OBJECT};
use crate::identity::fact_text;
use crate::newer::{THIS_VERSION, WRITTEN_BY};
use crate::wire::{checksum, push_varint};

pub const MAGIC: [u8; 8] = *b"\x89HEAP\r\n\x1a";
/// Changes only when older readers would misread the file.
pub const VERSION: u32 = 1;
/// Magic number, version, length of the fields, checksum of the fields.
pub const PREFIX_LEN: usize = 24;
pub const MAX_FIELDS_LEN: usize = 1 << 20;

/// The tags of the header's fields.
pub mod field {
    pub const PID: u64 = 1;
    pub const PYTHON_VERSION: u64 = 2;
    pub const TAKEN: u64 = 3;
    pub const PAUSED: u64 = 4;
    pub const WALK: u64 = 5;
    pub const FORKED: u64 = 6;
    pub const WALKER_BYTES: u64 = 7;
    pub const COMMAND: u64 = 8;
    pub const EXECUTABLE: u64 = 9;
    pub const HOST: u64 = 10;
    pub const NOTE: u64 = 11;
    pub const RECORDING: u64 = 12;
    pub const N_OBJECTS: u64 = 13;
    pub const N_EDGES: u64 = 14;
    pub const FACT: u64 = 40;
}

/// Writes the whole file. `out` receives many pieces of up to a megabyte.
pub fn write_heap<W: Write>(snapshot: &HeapSnapshot, mut out: W) -> io::Result<W> {
    out.write_all(&header_bytes(snapshot))?;
    let mut columns = ColumnWriter::new(out);
    write_tables(snapshot, &mut columns)?;
    write_objects(snapshot, &mut columns)?;
    write_edges(snapshot, &mut columns)?;
    write_stacks(snapshot, &mut columns)?;
    columns.finish()
}

fn header_bytes(snapshot: &HeapSnapshot) -> Vec<u8> {
    let header = &snapshot.header;
    let mut fields = Fields(Vec::new());
    fields.bytes(WRITTEN_BY, THIS_VERSION.as_bytes());
    fields.number(field::N_OBJECTS, snapshot.objects.len() as u64);
    fields.number(field::N_EDGES, snapshot.edges.len() as u64);
    fields.header(header);
    let fields = fields.0;
    let mut bytes = Vec::with_capacity(PREFIX_LEN + fields.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(fields.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&checksum(&fields).to_le_bytes());
    bytes.extend_from_slice(&fields);
    bytes
}

/// Header fields as bytes: tag, length, content.
struct Fields(Vec<u8>);

impl Fields {
    fn header(&mut self, header: &HeapHeader) {
        self.number(field::PID, u64::from(header.pid));
        self.number(field::PYTHON_VERSION, u64::from(header.python_version));
        self.number(field::TAKEN, header.taken_unix_ns);
        self.number(field::PAUSED, header.paused_ns);
        self.number(field::WALK, header.walk_ns);
        self.number(field::FORKED, u64::from(header.forked));
        self.number(field::WALKER_BYTES, header.walker_bytes);
        for argument in &header.command {
            self.bytes(field::COMMAND, argument.as_bytes());
        }
        self.bytes(field::EXECUTABLE, header.executable.as_bytes());
        self.bytes(field::HOST, header.host.as_bytes());
        for fact in &header.facts {
            self.bytes(field::FACT, fact_text(fact).as_bytes());
        }
        for note in &header.notes {
            self.bytes(field::NOTE, note.as_bytes());
        }
        if let Some(recording) = &header.recording {
            let mut content = Vec::new();
            push_varint(&mut content, u64::from(recording.objects));
            push_varint(&mut content, recording.segment);
            content.extend_from_slice(recording.path.as_bytes());
            self.bytes(field::RECORDING, &content);
        }
    }

    fn number(&mut self, tag: u64, value: u64) {
        let mut content = Vec::new();
        push_varint(&mut content, value);
        self.bytes(tag, &content);
    }

    /// Content that would make the header too long is left out.
    fn bytes(&mut self, tag: u64, content: &[u8]) {
        if self.0.len() + content.len() + 32 > MAX_FIELDS_LEN {
            return;
        }
        push_varint(&mut self.0, tag);
        push_varint(&mut self.0, content.len() as u64);
        self.0.extend_from_slice(content);
    }
}

fn write_tables<W: Write>(
    snapshot: &HeapSnapshot,
    columns: &mut ColumnWriter<W>,
) -> io::Result<()> {
    columns.begin(tag::TYPES)?;
    for info in &snapshot.types {
        columns.entry()?;
        columns.text(&info.name);
        columns.text(&info.module);
        columns.varint(info.address);
        columns.varint(plus_one(info.object));
        columns.varint(u64::from(info.flags));
    }
    columns.begin(tag::NAMES)?;
    // The first name is empty in every snapshot, so it is not written.
    for name in snapshot.names.iter().skip(1) {
        columns.entry()?;
        columns.text(name);
    }
    columns.begin(tag::ROOTS)?;
    for root in &snapshot.roots {
        columns.entry()?;
        columns.varint(root.category as u64);
        columns.varint(u64::from(root.name));
        columns.varint(u64::from(root.object));
    }
    columns.begin(tag::VALUES)?;
    let mut before = 0;
    for value in &snapshot.values {
        columns.entry()?;
        columns.varint(u64::from(value.object.wrapping_sub(before)));
        columns.text(&value.text);
        before = value.object;
    }
    Ok(())
}

fn write_objects<W: Write>(
    snapshot: &HeapSnapshot,
    columns: &mut ColumnWriter<W>,
) -> io::Result<()> {
    let objects = &snapshot.objects;
    columns.begin(tag::ADDRESSES)?;
    let mut before = 0;
    for address in &objects.addresses {
        columns.entry()?;
        columns.varint(address.wrapping_sub(before));
        before = *address;
    }
    columns.begin(tag::TYPE_NUMBERS)?;
    for number in &objects.types {
        columns.entry()?;
        columns.varint(u64::from(*number));
    }
    columns.begin(tag::SIZES)?;
    for size in &objects.sizes {
        columns.entry()?;
        columns.varint(*size);
    }
    columns.begin(tag::EXTRAS)?;
    for extra in &objects.extras {
        columns.entry()?;
        columns.varint(*extra);
    }
    columns.begin(tag::FLAGS)?;
    for flags in &objects.flags {
        columns.entry()?;
        columns.varint(u64::from(*flags));
    }
    Ok(())
}

fn write_edges<W: Write>(snapshot: &HeapSnapshot, columns: &mut ColumnWriter<W>) -> io::Result<()> {
    let edges = &snapshot.edges;
    columns.begin(tag::DEGREES)?;
    for pair in edges.starts.windows(2) {
        columns.entry()?;
        columns.varint(u64::from(pair[1].wrapping_sub(pair[0])));
    }
    columns.begin(tag::TARGETS)?;
    let mut before = 0;
    for target in &edges.targets {
        columns.entry()?;
        columns.signed(i64::from(*target) - before);
        before = i64::from(*target);
    }
    columns.begin(tag::LABELS)?;
    for label in &edges.labels {
        columns.entry()?;
        columns.varint(u64::from(label.to_word()));
    }
    Ok(())
}

fn write_stacks<W: Write>(
    snapshot: &HeapSnapshot,
    columns: &mut ColumnWriter<W>,
) -> io::Result<()> {
    let Some(stacks) = &snapshot.stacks else {
        return Ok(());
    };
    columns.begin(tag::FRAMES)?;
    for frame in &stacks.frames {
        columns.entry()?;
        columns.text(&frame.function);
        columns.text(&frame.file);
        columns.varint(u64::from(frame.line));
    }
    columns.begin(tag::STACKS)?;
    for stack in &stacks.stacks {
        columns.entry()?;
        // Frames are numbered from one, and a zero ends the stack, so that a long stack need not fit into one block.
        for frame in stack {
            columns.entry()?;
            columns.varint(u64::from(*frame) + 1);
        }
        columns.varint(0);
    }
    columns.begin(tag::STACK_NUMBERS)?;
    for number in &stacks.of_objects {
        columns.entry()?;
        columns.varint(u64::from(*number));
    }
    Ok(())
}

/// Encodes the number of an object that may be missing.
fn plus_one(object: u32) -> u64 {
    if object == NO_OBJECT {
        0
    } else {
        u64::from(object) + 1
    }
}
