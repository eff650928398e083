//! Entries of the registry stream: the threads, code objects and jobs that event streams refer to, and memory samples.
//!
//! Each is `u8 tag, varint length, fields`, so a reader can skip unknown entries.

mod job;
mod lost;
mod memory_part;
#[cfg(test)]
mod tests;

use crate::header::Mode;
use crate::wire::{Reader, Writer};

pub use job::{JobBegan, JobEnded, Outcome, labels, labels_to_bytes};
pub use lost::Lost;
pub use memory_part::MemoryPart;

/// An upper bound of the length of any entry except a code object, a module, a symbol and a job.
pub const MAX_SMALL_ENTRY_BYTES: usize = 512;
/// Longer keys and values of labels are cut.
pub const MAX_LABEL_BYTES: usize = 200;

/// One entry of the registry. It borrows its texts, because the code that writes it must not allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A code object. Frames refer to it by `id`.
    Code(Code<'a>),
    /// A library or executable. Native frames refer to it by `id`; code objects have other ids.
    Module(Module<'a>),
    /// A name for an address in a module, added when the capture was bundled.
    Symbol(Symbol<'a>),
    /// The thread of a stream.
    Thread {
        stream: u32,
        os_id: u32,
        time: u64,
    },
    /// A thread's name; a later one replaces an earlier one.
    ThreadName {
        stream: u32,
        name: &'a [u8],
    },
    /// Resident size of the process.
    Resident {
        time: u64,
        bytes: u64,
    },
    /// The memory limit of the process's control group.
    Limit {
        bytes: u64,
    },
    /// The raw counter, the monotonic clock and the wall clock at one instant.
    Clock {
        ticks: u64,
        monotonic_ns: u64,
        unix_ns: u64,
    },
    /// Events that are missing from the capture, by reason; counts of one reason add up.
    Lost {
        reason: Lost,
        count: u64,
    },
    /// Bytes that Heaptide itself holds in the program.
    OwnMemory {
        bytes: u64,
    },
    /// A part of the process's memory when recording began or ended, or when the resident size was largest.
    Memory {
        part: MemoryPart,
        bytes: u64,
    },
    /// A job began. Events refer to it by its number.
    JobBegan(JobBegan<'a>),
    JobEnded(JobEnded<'a>),
    /// A label that was set after the header was written. It replaces an earlier value of the same key.
    Label {
        key: &'a [u8],
        value: &'a [u8],
    },
    /// The mode changed. Chunks of events that were recorded in the new mode have its number as their `generation`.
    ModeChange(ModeChange),
    /// The recording ended normally. Without this entry, it still runs, it failed, or the program was killed or called
    /// `_exit`.
    End {
        time: u64,
    },
}

/// A change of the mode while recording. `aggregate` and `follow_fork` do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeChange {
    /// Counts from 1; number 0 is the mode in the header.
    pub number: u32,
    /// Clock units. Each thread adopts the mode at its next recorded event.
    pub time: u64,
    pub mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code<'a> {
    pub id: u32,
    pub first_line: i32,
    pub name: &'a [u8],
    /// The part of the qualified name before the name: `Table.` of `Table.load`.
    pub qualifier: &'a [u8],
    pub file: &'a [u8],
    /// The lines of `co_linetable` in its own format, which depends on the Python version in the header. From 3.11 on,
    /// the columns are left out.
    pub line_table: &'a [u8],
}

impl Code<'_> {
    /// Returns an upper bound of the length of this entry.
    pub fn max_bytes(&self) -> usize {
        64 + self.name.len() + self.qualifier.len() + self.file.len() + self.line_table.len()
    }
}

/// A library and its address when this entry was written. If it moves, another entry with the same id follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module<'a> {
    pub id: u32,
    /// Difference between an address in the process and the address in the library's file.
    pub base: u64,
    /// Lowest address in the process, and the length up to the highest.
    pub start: u64,
    pub length: u64,
    /// Clock units at which a frame in this library was first seen at this address.
    pub time: u64,
    /// In angle brackets if there is no file: code outside all libraries, or missing frames.
    pub path: &'a [u8],
    pub build_id: &'a [u8],
}

/// One of the functions at an address: the function itself, or one that was inlined there. The entries of one address are
/// consecutive, the outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    pub module: u32,
    /// The same offset as in frames.
    pub offset: u32,
    pub function: &'a [u8],
    /// Source file and line; empty and 0 if unknown.
    pub file: &'a [u8],
    pub line: u32,
}

impl Symbol<'_> {
    /// Returns an upper bound of the length of this entry.
    pub fn max_bytes(&self) -> usize {
        64 + self.function.len() + self.file.len()
    }
}

impl Module<'_> {
    /// Returns an upper bound of the length of this entry.
    pub fn max_bytes(&self) -> usize {
        96 + self.path.len() + self.build_id.len()
    }
}

const CODE: u8 = 1;
const THREAD: u8 = 2;
const THREAD_NAME: u8 = 3;
const RESIDENT: u8 = 4;
const LIMIT: u8 = 5;
const CLOCK: u8 = 6;
const LOST: u8 = 7;
const OWN_MEMORY: u8 = 8;
const END: u8 = 9;
const MEMORY: u8 = 10;
const MODULE: u8 = 11;
const SYMBOL: u8 = 12;
const LABEL: u8 = 13;
const JOB_BEGAN: u8 = 14;
const JOB_ENDED: u8 = 15;
const MODE_CHANGE: u8 = 16;

impl<'a> Entry<'a> {
    /// Returns an upper bound of the length of this entry.
    pub fn max_bytes(&self) -> usize {
        match self {
            Entry::Code(code) => code.max_bytes(),
            Entry::Module(module) => module.max_bytes(),
            Entry::Symbol(symbol) => symbol.max_bytes(),
            Entry::JobBegan(job) => job.max_bytes(),
            Entry::JobEnded(job) => job.max_bytes(),
            _ => MAX_SMALL_ENTRY_BYTES,
        }
    }

    /// Writes the entry. `out` must have [`Entry::max_bytes`] bytes.
    pub fn write(&self, out: &mut [u8]) -> usize {
        // The length precedes the fields and is not known yet: five bytes hold any 32-bit length.
        const FIELDS_AT: usize = 6;
        let Some((head, body)) = out.split_at_mut_checked(FIELDS_AT) else {
            return 0;
        };
        let mut fields = Writer::new(body);
        let tag = self.write_fields(&mut fields);
        let fields_len = fields.len();
        let mut start = Writer::new(head);
        start.u8(tag);
        start.varint(fields_len as u64);
        let start_len = start.len();
        out.copy_within(FIELDS_AT..FIELDS_AT + fields_len, start_len);
        start_len + fields_len
    }

    fn write_fields(&self, out: &mut Writer) -> u8 {
        match *self {
            Entry::Code(code) => {
                out.varint(code.id.into());
                out.signed(code.first_line.into());
                out.text(code.name);
                out.text(code.qualifier);
                out.text(code.file);
                out.text(code.line_table);
                CODE
            }
            Entry::Module(module) => {
                out.varint(module.id.into());
                out.varint(module.base);
                out.varint(module.start);
                out.varint(module.length);
                out.varint(module.time);
                out.text(module.path);
                out.text(module.build_id);
                MODULE
            }
            Entry::Symbol(symbol) => {
                out.varint(symbol.module.into());
                out.varint(symbol.offset.into());
                out.text(symbol.function);
                out.text(symbol.file);
                out.varint(symbol.line.into());
                SYMBOL
            }
            Entry::Thread {
                stream,
                os_id,
                time,
            } => {
                out.varint(stream.into());
                out.varint(os_id.into());
                out.varint(time);
                THREAD
            }
            Entry::ThreadName { stream, name } => {
                out.varint(stream.into());
                out.text(&name[..name.len().min(MAX_SMALL_ENTRY_BYTES - 64)]);
                THREAD_NAME
            }
            Entry::Resident { time, bytes } => {
                out.varint(time);
                out.varint(bytes);
                RESIDENT
            }
            Entry::Limit { bytes } => {
                out.varint(bytes);
                LIMIT
            }
            Entry::Clock {
                ticks,
                monotonic_ns,
                unix_ns,
            } => {
                out.varint(ticks);
                out.varint(monotonic_ns);
                out.varint(unix_ns);
                CLOCK
            }
            Entry::Lost { reason, count } => {
                out.u8(reason as u8);
                out.varint(count);
                LOST
            }
            Entry::OwnMemory { bytes } => {
                out.varint(bytes);
                OWN_MEMORY
            }
            Entry::Memory { part, bytes } => {
                out.u8(part as u8);
                out.varint(bytes);
                MEMORY
            }
            Entry::JobBegan(job) => {
                job.write(out);
                JOB_BEGAN
            }
            Entry::JobEnded(job) => {
                job.write(out);
                JOB_ENDED
            }
            Entry::Label { key, value } => {
                out.text(&key[..key.len().min(MAX_LABEL_BYTES)]);
                out.text(&value[..value.len().min(MAX_LABEL_BYTES)]);
                LABEL
            }
            Entry::ModeChange(change) => {
                out.varint(change.number.into());
                out.varint(change.time);
                out.varint(change.mode.sample_bytes);
                out.u8(u8::from(change.mode.objects) | u8::from(change.mode.native) << 1);
                MODE_CHANGE
            }
            Entry::End { time } => {
                out.varint(time);
                END
            }
        }
    }

    /// Reads the next entry of a registry chunk. `Some(None)` is a skipped entry of a later release;
    /// `None` is the end of the chunk or an invalid entry.
    pub fn read(input: &mut Reader<'a>) -> Option<Option<Entry<'a>>> {
        let tag = input.u8()?;
        let mut fields = Reader::new(input.text()?);
        let small = |value: u64| u32::try_from(value).ok();
        let entry = match tag {
            CODE => Entry::Code(Code {
                id: small(fields.varint()?)?,
                first_line: i32::try_from(fields.signed()?).ok()?,
                name: fields.text()?,
                qualifier: fields.text()?,
                file: fields.text()?,
                line_table: fields.text()?,
            }),
            MODULE => Entry::Module(Module {
                id: small(fields.varint()?)?,
                base: fields.varint()?,
                start: fields.varint()?,
                length: fields.varint()?,
                time: fields.varint()?,
                path: fields.text()?,
                build_id: fields.text()?,
            }),
            SYMBOL => Entry::Symbol(Symbol {
                module: small(fields.varint()?)?,
                offset: small(fields.varint()?)?,
                function: fields.text()?,
                file: fields.text()?,
                line: small(fields.varint()?)?,
            }),
            THREAD => Entry::Thread {
                stream: small(fields.varint()?)?,
                os_id: small(fields.varint()?)?,
                time: fields.varint()?,
            },
            THREAD_NAME => Entry::ThreadName {
                stream: small(fields.varint()?)?,
                name: fields.text()?,
            },
            RESIDENT => Entry::Resident {
                time: fields.varint()?,
                bytes: fields.varint()?,
            },
            LIMIT => Entry::Limit {
                bytes: fields.varint()?,
            },
            CLOCK => Entry::Clock {
                ticks: fields.varint()?,
                monotonic_ns: fields.varint()?,
                unix_ns: fields.varint()?,
            },
            LOST => match Lost::from_number(fields.u8()?) {
                Some(reason) => Entry::Lost {
                    reason,
                    count: fields.varint()?,
                },
                None => return Some(None),
            },
            OWN_MEMORY => Entry::OwnMemory {
                bytes: fields.varint()?,
            },
            MEMORY => match MemoryPart::from_number(fields.u8()?) {
                Some(part) => Entry::Memory {
                    part,
                    bytes: fields.varint()?,
                },
                None => return Some(None),
            },
            JOB_BEGAN => Entry::JobBegan(JobBegan::read(&mut fields)?),
            JOB_ENDED => Entry::JobEnded(JobEnded::read(&mut fields)?),
            LABEL => Entry::Label {
                key: fields.text()?,
                value: fields.text()?,
            },
            MODE_CHANGE => {
                let (number, time) = (small(fields.varint()?)?, fields.varint()?);
                let (sample_bytes, flags) = (fields.varint()?, fields.u8()?);
                let mode = Mode {
                    sample_bytes,
                    objects: flags & 1 != 0,
                    native: flags & 2 != 0,
                    ..Mode::default()
                };
                Entry::ModeChange(ModeChange { number, time, mode })
            }
            END => Entry::End {
                time: fields.varint()?,
            },
            _ => return Some(None),
        };
        Some(Some(entry))
    }
}
