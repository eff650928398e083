//! Reads a snapshot from bytes. Every number is checked before the snapshot is returned, so that callers may use its
//! numbers as indices.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use super::column::{BLOCK_LEN, BlockReader, tag};
use super::error::{HeapError, HeapFailure};
use super::write::{MAGIC, MAX_FIELDS_LEN, PREFIX_LEN, VERSION, field};
use super::{
    AllocationFrame, AllocationStacks, HeapHeader, HeapSnapshot, Label, MAX_OBJECTS, NO_OBJECT,
    RecordingPosition, Root, RootCategory, TypeInfo, Value,
};
use crate::identity::parse_fact;
use crate::newer::{NewerFormat, is_by_later_version};
use crate::wire::{Reader, checksum};

/// Returns whether a file that begins with these bytes is a heap snapshot.
pub fn is_heap_file(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(&MAGIC)
}

impl HeapSnapshot {
    pub fn open(path: &Path) -> Result<HeapSnapshot, HeapError> {
        let opened = File::open(path)
            .map_err(HeapFailure::from)
            .and_then(|file| HeapSnapshot::read_from(BufReader::with_capacity(1 << 18, file)));
        opened.map_err(|reason| HeapError {
            path: path.to_owned(),
            reason,
        })
    }

    pub fn read_from(mut from: impl Read) -> Result<HeapSnapshot, HeapFailure> {
        let fields = header_fields(&mut from)?;
        let mut reading = Reading {
            has_unknown_columns: is_by_later_version(&fields),
            ..Reading::default()
        };
        reading
            .header(&fields)
            .ok_or(HeapFailure::Damaged("the header"))?;
        if reading.n_objects > MAX_OBJECTS as u64 || reading.n_edges > u64::from(u32::MAX) {
            return Err(HeapFailure::Damaged("the header"));
        }
        let mut blocks = BlockReader::new(from);
        loop {
            let (block_tag, bytes) = blocks.next_block()?;
            if block_tag == tag::END {
                break;
            }
            reading.check_tag(block_tag, bytes.len())?;
            reading.block(block_tag, &mut Reader::new(bytes))?;
        }
        reading.finish()
    }
}

/// Returns the bytes of the header's fields.
fn header_fields(from: &mut impl Read) -> Result<Vec<u8>, HeapFailure> {
    let mut prefix = Vec::with_capacity(PREFIX_LEN);
    from.take(PREFIX_LEN as u64).read_to_end(&mut prefix)?;
    if prefix.is_empty() {
        return Err(HeapFailure::Empty);
    }
    if !prefix.starts_with(&MAGIC[..prefix.len().min(MAGIC.len())]) {
        return Err(match prefix.starts_with(&crate::header::MAGIC) {
            true => HeapFailure::Recording,
            false => HeapFailure::Foreign,
        });
    }
    let mut reader = Reader::new(&prefix);
    let parts = reader
        .raw(MAGIC.len())
        .and_then(|_| Some((reader.u32()?, reader.u32()? as usize, reader.u64()?)));
    let Some((version, len, sum)) = parts else {
        return Err(HeapFailure::Cut);
    };
    let mut fields = Vec::new();
    from.take(len.min(MAX_FIELDS_LEN) as u64)
        .read_to_end(&mut fields)?;
    if version > VERSION {
        return Err(HeapFailure::Newer(NewerFormat::new(version, &fields)));
    }
    if len > MAX_FIELDS_LEN {
        return Err(HeapFailure::Damaged("the header"));
    }
    if fields.len() < len {
        return Err(HeapFailure::Cut);
    }
    if checksum(&fields) != sum {
        return Err(HeapFailure::Damaged("the header"));
    }
    Ok(fields)
}

/// A snapshot while its blocks are read, and the previous entry of each delta-encoded column.
#[derive(Default)]
struct Reading {
    snapshot: HeapSnapshot,
    n_objects: u64,
    n_edges: u64,
    last_address: Option<u64>,
    last_target: i64,
    last_value: u32,
    stacks: AllocationStacks,
    open_stack: Vec<u32>,
    /// Sum of the sizes and extra bytes of all objects so far.
    whole_bytes: u64,
    /// A later version wrote the file, which may have columns that this version does not know.
    has_unknown_columns: bool,
    /// A bit for the tag of each column so far; the tag of the last block, and whether that block was full.
    columns: u32,
    last_tag: u32,
    is_last_full: bool,
}

/// Larger than any address space. Sizes whose sum exceeds this are damage, so sums over objects cannot overflow.
const MAX_WHOLE_BYTES: u64 = 1 << 57;

impl Reading {
    fn header(&mut self, fields: &[u8]) -> Option<()> {
        let header = &mut self.snapshot.header;
        let mut reader = Reader::new(fields);
        while !reader.is_at_end() {
            let tag = reader.varint()?;
            let content = reader.text()?;
            let number = || Reader::new(content).varint();
            match tag {
                field::PID => header.pid = number()?.try_into().ok()?,
                field::PYTHON_VERSION => header.python_version = number()?.try_into().ok()?,
                field::TAKEN => header.taken_unix_ns = number()?,
                field::PAUSED => header.paused_ns = number()?,
                field::WALK => header.walk_ns = number()?,
                field::FORKED => header.forked = number()? != 0,
                field::WALKER_BYTES => header.walker_bytes = number()?,
                field::COMMAND => header.command.push(lossy(content)),
                field::EXECUTABLE => header.executable = lossy(content),
                field::HOST => header.host = lossy(content),
                field::FACT => header.facts.extend(parse_fact(&lossy(content))),
                field::NOTE => header.notes.push(lossy(content)),
                field::RECORDING => header.recording = Some(recording(content)?),
                field::N_OBJECTS => self.n_objects = number()?,
                field::N_EDGES => self.n_edges = number()?,
                _ => {}
            }
        }
        Some(())
    }

    /// Refuses a block that no writer puts here. No checksum covers tags: with a wrong one, a column that a snapshot may
    /// lack would be missing without an error.
    fn check_tag(&mut self, block_tag: u32, len: usize) -> Result<(), HeapFailure> {
        let column = match block_tag {
            tag::TYPES..=tag::STACK_NUMBERS => 1 << block_tag,
            _ => 0,
        };
        let is_plausible = match column {
            0 => self.has_unknown_columns,
            _ if block_tag == self.last_tag => self.is_last_full,
            _ => self.columns & column == 0,
        };
        self.columns |= column;
        (self.last_tag, self.is_last_full) = (block_tag, len >= BLOCK_LEN);
        match is_plausible {
            true => Ok(()),
            false => Err(HeapFailure::Damaged("a block")),
        }
    }

    fn block(&mut self, block_tag: u32, bytes: &mut Reader) -> Result<(), HeapFailure> {
        let (entry, part): (fn(&mut Reading, &mut Reader) -> Option<()>, _) = match block_tag {
            tag::TYPES => (Reading::type_info, "a type"),
            tag::NAMES => (Reading::name, "a name"),
            tag::ADDRESSES => (Reading::address, "an address"),
            tag::TYPE_NUMBERS => (Reading::type_number, "the type of an object"),
            tag::SIZES => (Reading::size, "the size of an object"),
            tag::EXTRAS => (Reading::extra, "the extra bytes of an object"),
            tag::FLAGS => (Reading::flags, "the flags of an object"),
            tag::DEGREES => (Reading::degree, "the references of an object"),
            tag::TARGETS => (Reading::target, "a reference"),
            tag::LABELS => (Reading::label, "the name of a reference"),
            tag::ROOTS => (Reading::root, "a root"),
            tag::VALUES => (Reading::value, "a value"),
            tag::FRAMES => (Reading::frame, "a frame"),
            tag::STACKS => (Reading::stack, "a stack"),
            tag::STACK_NUMBERS => (Reading::stack_number, "the stack of an object"),
            _ => return Ok(()),
        };
        while !bytes.is_at_end() {
            entry(self, bytes).ok_or(HeapFailure::Damaged(part))?;
        }
        Ok(())
    }

    fn type_info(&mut self, bytes: &mut Reader) -> Option<()> {
        let info = TypeInfo {
            name: text(bytes)?,
            module: text(bytes)?,
            address: bytes.varint()?,
            object: match bytes.varint()? {
                0 => NO_OBJECT,
                number => u32::try_from(number - 1).ok()?,
            },
            flags: bytes.varint()?.try_into().ok()?,
        };
        self.snapshot.types.push(info);
        Some(())
    }

    fn name(&mut self, bytes: &mut Reader) -> Option<()> {
        self.snapshot
            .names
            .push(std::str::from_utf8(bytes.text()?).ok()?);
        Some(())
    }

    fn address(&mut self, bytes: &mut Reader) -> Option<()> {
        let step = bytes.varint()?;
        let address = match self.last_address {
            None => step,
            Some(before) => before.checked_add(step).filter(|_| step > 0)?,
        };
        self.last_address = Some(address);
        self.snapshot.objects.addresses.push(address);
        Some(())
    }

    fn type_number(&mut self, bytes: &mut Reader) -> Option<()> {
        let number = bytes.varint()?.try_into().ok()?;
        self.snapshot.objects.types.push(number);
        Some(())
    }

    fn size(&mut self, bytes: &mut Reader) -> Option<()> {
        let size = self.plausible(bytes.varint()?)?;
        self.snapshot.objects.sizes.push(size);
        Some(())
    }

    fn extra(&mut self, bytes: &mut Reader) -> Option<()> {
        let extra = self.plausible(bytes.varint()?)?;
        self.snapshot.objects.extras.push(extra);
        Some(())
    }

    fn plausible(&mut self, n_bytes: u64) -> Option<u64> {
        self.whole_bytes = self.whole_bytes.saturating_add(n_bytes);
        (self.whole_bytes <= MAX_WHOLE_BYTES).then_some(n_bytes)
    }

    fn flags(&mut self, bytes: &mut Reader) -> Option<()> {
        let flags = bytes.varint()?.try_into().ok()?;
        self.snapshot.objects.flags.push(flags);
        Some(())
    }

    fn degree(&mut self, bytes: &mut Reader) -> Option<()> {
        let starts = &mut self.snapshot.edges.starts;
        let degree = bytes.varint()?.try_into().ok()?;
        starts.push(starts.last()?.checked_add(degree)?);
        Some(())
    }

    fn target(&mut self, bytes: &mut Reader) -> Option<()> {
        self.last_target = self.last_target.checked_add(bytes.signed()?)?;
        let target = u32::try_from(self.last_target).ok()?;
        self.snapshot.edges.targets.push(target);
        Some(())
    }

    fn label(&mut self, bytes: &mut Reader) -> Option<()> {
        let label = Label::from_word(bytes.varint()?.try_into().ok()?)?;
        self.snapshot.edges.labels.push(label);
        Some(())
    }

    fn root(&mut self, bytes: &mut Reader) -> Option<()> {
        let root = Root {
            category: RootCategory::from_number(u8::try_from(bytes.varint()?).ok()?)?,
            name: bytes.varint()?.try_into().ok()?,
            object: bytes.varint()?.try_into().ok()?,
        };
        self.snapshot.roots.push(root);
        Some(())
    }

    fn value(&mut self, bytes: &mut Reader) -> Option<()> {
        let step: u32 = bytes.varint()?.try_into().ok()?;
        let object = self.last_value.checked_add(step)?;
        if step == 0 && !self.snapshot.values.is_empty() {
            return None;
        }
        self.last_value = object;
        let text = text(bytes)?;
        self.snapshot.values.push(Value { object, text });
        Some(())
    }

    fn frame(&mut self, bytes: &mut Reader) -> Option<()> {
        let frame = AllocationFrame {
            function: text(bytes)?,
            file: text(bytes)?,
            line: bytes.varint()?.try_into().ok()?,
        };
        self.stacks.frames.push(frame);
        Some(())
    }

    fn stack(&mut self, bytes: &mut Reader) -> Option<()> {
        match bytes.varint()? {
            0 => self
                .stacks
                .stacks
                .push(std::mem::take(&mut self.open_stack)),
            frame => self.open_stack.push(u32::try_from(frame - 1).ok()?),
        }
        Some(())
    }

    fn stack_number(&mut self, bytes: &mut Reader) -> Option<()> {
        let number = bytes.varint()?.try_into().ok()?;
        self.stacks.of_objects.push(number);
        Some(())
    }

    /// Makes the checks that need all blocks.
    fn finish(mut self) -> Result<HeapSnapshot, HeapFailure> {
        let Reading {
            snapshot, stacks, ..
        } = &self;
        let (objects, edges) = (&snapshot.objects, &snapshot.edges);
        let n = self.n_objects as usize;
        let check = |holds: bool, part| {
            if holds {
                Ok(())
            } else {
                Err(HeapFailure::Damaged(part))
            }
        };
        let lengths = [
            objects.addresses.len(),
            objects.types.len(),
            objects.sizes.len(),
            objects.extras.len(),
            objects.flags.len(),
            edges.starts.len() - 1,
        ];
        check(lengths.iter().all(|len| *len == n), "the number of objects")?;
        let n_edges = self.n_edges as usize;
        check(
            edges.targets.len() == n_edges
                && edges.labels.len() == n_edges
                && edges.starts.last().copied().unwrap_or(0) as usize == n_edges,
            "the number of references",
        )?;
        let below = |limit: usize| move |number: &u32| (*number as usize) < limit;
        let n_names = snapshot.names.len();
        check(
            objects.types.iter().all(below(snapshot.types.len())),
            "the type of an object",
        )?;
        check(edges.targets.iter().all(below(n)), "a reference")?;
        let named =
            |label: &Label| !label.edge_type().has_name() || (label.number() as usize) < n_names;
        check(edges.labels.iter().all(named), "the name of a reference")?;
        let is_object = |object: u32| object == NO_OBJECT || (object as usize) < n;
        check(
            snapshot.types.iter().all(|info| is_object(info.object)),
            "a type",
        )?;
        let whole = |root: &Root| (root.object as usize) < n && (root.name as usize) < n_names;
        check(snapshot.roots.iter().all(whole), "a root")?;
        // Every walk finds roots. Without them all objects would seem to be garbage.
        check(n == 0 || !snapshot.roots.is_empty(), "the roots")?;
        let last_value = snapshot.values.last().map(|value| value.object);
        check(last_value.iter().all(below(n)), "a value")?;
        if *stacks != AllocationStacks::default() {
            let frames = stacks.stacks.iter().flatten();
            check(
                stacks.of_objects.len() == n
                    && stacks.stacks.first().is_none_or(Vec::is_empty)
                    && self.open_stack.is_empty()
                    && frames
                        .copied()
                        .all(|frame| below(stacks.frames.len())(&frame))
                    && stacks.of_objects.iter().all(below(stacks.stacks.len())),
                "a stack",
            )?;
            self.snapshot.stacks = Some(self.stacks);
        }
        Ok(self.snapshot)
    }
}

fn recording(content: &[u8]) -> Option<RecordingPosition> {
    let mut reader = Reader::new(content);
    let (objects, segment) = (reader.varint()? != 0, reader.varint()?);
    let path = lossy(content.get(reader.position()..)?);
    Some(RecordingPosition {
        path,
        objects,
        segment,
    })
}

fn text(bytes: &mut Reader) -> Option<String> {
    Some(std::str::from_utf8(bytes.text()?).ok()?.to_owned())
}

fn lossy(content: &[u8]) -> String {
    String::from_utf8_lossy(content).into_owned()
}

/// Reads the header alone, for listing snapshots.
pub fn read_header(mut from: impl Read) -> Result<HeapHeader, HeapFailure> {
    let fields = header_fields(&mut from)?;
    let mut reading = Reading::default();
    reading
        .header(&fields)
        .ok_or(HeapFailure::Damaged("the header"))?;
    Ok(reading.snapshot.header)
}
