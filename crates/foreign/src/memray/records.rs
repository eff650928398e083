//! The records of a memray file.
//!
//! ```text
//! 1ppppaaa  allocation or free     position (4 bits) among the last 15 addresses, 15: signed step of address / 8 follows;
//!                                  allocator (3 bits), 0: a byte follows;
//!                                  signed step of the native stack's number, if those are recorded and it is not a `free`;
//!                                  size, unless it is a `free`
//! 01.....e  push                   code object, signed instruction; e: called from C
//! 001ppppc  object created/freed   only in files that track object lifetimes; counts as damage
//! 0001nnnn  pop                    n + 1 frames
//! 0x01      trailer
//! 0x02      resident size          bytes, milliseconds since the start
//!
//! in both formats of files
//! 0x05      native frame           signed step of the address, signed step of the number
//! 0x06 0x07 0x08  memory map       start; text file, number of segments, u64 address; u64 address, length
//! 0x0a      thread name            text
//! 0x0c      thread                 u64 thread of the records that follow
//! 0x0e      code object            number, text name, text file, signed step of first line, length, line table
//!
//! in aggregated files
//! 0x01      sizes at a moment      u64 milliseconds since 1970, u64 resident, u64 heap
//! 0x02      sum                    u64 thread, u8 allocator and 7 bytes, u64 native stack, u64 stack, u64 map,
//!                                  u64 blocks at the peak, at the end, u64 bytes at the peak, at the end
//! 0x03      stack                  frame, calling stack; counted from 1
//! 0x04      frame                  number, code object, signed instruction, u8 called from C?
//! 0x0f      trailer
//! ```

use std::io::ErrorKind;

use heaptide_capture::foreign::BlockSum;
use heaptide_capture::{Allocator, Code, Damage, DamageCategory, Frame};

use super::bytes::Bytes;
use super::header::FileHeader;
use super::input::Input;

/// Number of remembered addresses.
const N_RECENT: usize = 15;
/// The upper half of `sys.hexversion`. Only Python 3.10 counts instructions; other versions count bytes, two per
/// instruction.
const PYTHON_3_10: u32 = 0x030a;

/// A record of a file.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    Alloc {
        address: u64,
        size: u64,
        allocator: Allocator,
    },
    Free {
        address: u64,
    },
    FreeRange {
        address: u64,
        length: u64,
    },
    Push(Frame),
    Pop(usize),
    /// Milliseconds since the start.
    Resident {
        time: u64,
        bytes: u64,
    },
    Thread(u64),
    ThreadName(&'a [u8]),
    Code(Code<'a>),
    Trailer,
    Sum {
        thread: u64,
        /// Index into the stacks, 0 for none.
        stack: u64,
        allocator: Allocator,
        at_peak: BlockSum,
        at_end: BlockSum,
    },
    Heap {
        time: u64,
        resident: u64,
        heap: u64,
    },
    Stack {
        frame: u64,
        parent: u64,
    },
    Frame {
        number: u64,
        frame: Frame,
    },
    /// Native frames and memory maps, which are skipped.
    Other,
}

/// How to continue after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Read,
    /// Stop reading.
    Stop,
    /// The record is impossible: the records after it cannot be trusted.
    Refuse,
}

/// The reason why a record could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The bytes end inside the record.
    TooShort,
    Wrong,
}

/// State that is kept from record to record.
pub struct Records {
    has_native_stacks: bool,
    is_aggregated: bool,
    start_ms: u64,
    counts_instructions: bool,
    /// The newest is before `next_recent`.
    recent: [u64; N_RECENT + 1],
    next_recent: usize,
    address: u64,
    first_line: i64,
}

impl Records {
    pub fn new(header: &FileHeader) -> Records {
        Records {
            has_native_stacks: header.has_native_stacks,
            is_aggregated: header.is_aggregated,
            start_ms: header.start_ms,
            counts_instructions: header.common.python_version >> 16 == PYTHON_3_10,
            recent: [0; N_RECENT + 1],
            next_recent: 0,
            address: 0,
            first_line: 0,
        }
    }

    /// Passes all records to `visit` until it stops. Returns the damage.
    pub fn read(
        mut self,
        mut input: Input,
        mut visit: impl FnMut(Record) -> Next,
    ) -> Option<Damage> {
        loop {
            let rest = input.rest();
            let mut bytes = Bytes::new(rest);
            let trouble = match self.parse(&mut bytes) {
                Ok(record) => match visit(record) {
                    Next::Read => {
                        let n_read = rest.len() - bytes.n_left();
                        input.advance(n_read);
                        continue;
                    }
                    Next::Stop => return None,
                    Next::Refuse => Trouble::Wrong,
                },
                Err(trouble) => trouble,
            };
            if trouble == Trouble::TooShort && input.widen() {
                continue;
            }
            let category = match (trouble, input.error) {
                (Trouble::TooShort, None) if input.rest().is_empty() => return None,
                (Trouble::TooShort, None | Some(ErrorKind::UnexpectedEof)) => {
                    DamageCategory::Cut { stream: None }
                }
                _ => DamageCategory::WrongForeignRecord,
            };
            let offset = input.offset();
            return Some(Damage { offset, category });
        }
    }

    /// Reads the next record. An incomplete record does not change the state.
    #[inline(always)]
    fn parse<'a>(&mut self, bytes: &mut Bytes<'a>) -> Result<Record<'a>, Trouble> {
        let tag = bytes.u8().ok_or(Trouble::TooShort)?;
        let record = if self.is_aggregated {
            self.sum(tag, bytes)
        } else {
            match tag {
                0x80.. => self.event(tag, bytes),
                0x40..0x80 => self.push(bytes),
                0x10..0x20 => Some(Some(Record::Pop(usize::from(tag & 15) + 1))),
                0x00 => Some(Some(Record::Other)),
                0x01 => Some(Some(Record::Trailer)),
                0x02 => self.resident(bytes),
                _ => self.common(tag, bytes),
            }
        };
        match record {
            Some(Some(record)) => Ok(record),
            Some(None) => Err(Trouble::Wrong),
            None => Err(Trouble::TooShort),
        }
    }

    /// Returns `None` if the bytes end too early and `Some(None)` if they are invalid, as all following functions do.
    #[inline(always)]
    fn event<'a>(&mut self, tag: u8, bytes: &mut Bytes<'a>) -> Option<Option<Record<'a>>> {
        let source = usize::from(tag >> 3 & 15);
        let eighth = if source == N_RECENT {
            self.address.wrapping_add(bytes.signed()? as u64)
        } else {
            self.recent[self.next_recent.wrapping_sub(1 + source) % (N_RECENT + 1)]
        };
        let function = match tag & 7 {
            0 => bytes.u8()?,
            short => short,
        };
        let address = eighth << 3;
        let record = match function {
            1 | 5 => Record::Free { address },
            _ => {
                if self.has_native_stacks {
                    bytes.number()?;
                }
                let size = bytes.number()?;
                match (function, allocator(function)) {
                    (15, _) => Record::FreeRange {
                        address,
                        length: size,
                    },
                    (_, Some(allocator)) => Record::Alloc {
                        address,
                        size,
                        allocator,
                    },
                    _ => return Some(None),
                }
            }
        };
        if source == N_RECENT {
            self.address = eighth;
            self.recent[self.next_recent] = eighth;
            self.next_recent = (self.next_recent + 1) % (N_RECENT + 1);
        }
        Some(Some(record))
    }

    fn push<'a>(&mut self, bytes: &mut Bytes<'a>) -> Option<Option<Record<'a>>> {
        let code = bytes.number()?;
        let instruction = bytes.signed()?;
        Some(self.frame(code, instruction).map(Record::Push))
    }

    fn frame(&self, code: u64, instruction: i64) -> Option<Frame> {
        let units = if self.counts_instructions {
            instruction
        } else {
            instruction.div_euclid(2)
        };
        Some(Frame {
            code: u32::try_from(code).ok()?,
            instruction: if units < 0 {
                Frame::AT_START
            } else {
                u32::try_from(units).ok()?
            },
        })
    }

    fn resident<'a>(&mut self, bytes: &mut Bytes<'a>) -> Option<Option<Record<'a>>> {
        let resident = bytes.number()?;
        let time = bytes.number()?;
        Some(Some(Record::Resident {
            time,
            bytes: resident,
        }))
    }

    fn common<'a>(&mut self, tag: u8, bytes: &mut Bytes<'a>) -> Option<Option<Record<'a>>> {
        Some(Some(match tag {
            0x05 => {
                bytes.number()?;
                bytes.number()?;
                Record::Other
            }
            0x06 => Record::Other,
            0x07 => {
                bytes.text()?;
                bytes.number()?;
                bytes.u64()?;
                Record::Other
            }
            0x08 => {
                bytes.u64()?;
                bytes.number()?;
                Record::Other
            }
            0x0a => Record::ThreadName(bytes.text()?),
            0x0c => Record::Thread(bytes.u64()?),
            0x0e => return self.code(bytes),
            _ => return Some(None),
        }))
    }

    fn code<'a>(&mut self, bytes: &mut Bytes<'a>) -> Option<Option<Record<'a>>> {
        let id = bytes.number()?;
        let name = bytes.text()?;
        let file = bytes.text()?;
        let first_line = self.first_line.wrapping_add(bytes.signed()?);
        let len = bytes.number()?;
        let line_table = bytes.raw(usize::try_from(len).unwrap_or(usize::MAX))?;
        let (Ok(id), Ok(line)) = (u32::try_from(id), i32::try_from(first_line)) else {
            return Some(None);
        };
        self.first_line = first_line;
        Some(Some(Record::Code(Code {
            id,
            first_line: line,
            name,
            qualifier: b"",
            file,
            line_table,
        })))
    }

    fn sum<'a>(&mut self, tag: u8, bytes: &mut Bytes<'a>) -> Option<Option<Record<'a>>> {
        Some(Some(match tag {
            0x00 => Record::Other,
            0x01 => Record::Heap {
                time: bytes.u64()?.saturating_sub(self.start_ms),
                resident: bytes.u64()?,
                heap: bytes.u64()?,
            },
            0x02 => {
                let thread = bytes.u64()?;
                let function = *bytes.raw(8)?.first()?;
                let _native_stack = bytes.u64()?;
                let stack = bytes.u64()?;
                let _map = bytes.u64()?;
                let (n_at_peak, n_at_end) = (bytes.u64()?, bytes.u64()?);
                let (bytes_at_peak, bytes_at_end) = (bytes.u64()?, bytes.u64()?);
                let Some(allocator) = allocator(function) else {
                    return Some(None);
                };
                Record::Sum {
                    thread,
                    stack,
                    allocator,
                    at_peak: BlockSum {
                        bytes: bytes_at_peak,
                        count: n_at_peak,
                    },
                    at_end: BlockSum {
                        bytes: bytes_at_end,
                        count: n_at_end,
                    },
                }
            }
            0x03 => Record::Stack {
                frame: bytes.number()?,
                parent: bytes.number()?,
            },
            0x04 => {
                let number = bytes.number()?;
                let code = bytes.number()?;
                let instruction = bytes.signed()?;
                bytes.u8()?;
                match self.frame(code, instruction) {
                    Some(frame) => Record::Frame { number, frame },
                    None => return Some(None),
                }
            }
            0x0f => Record::Trailer,
            _ => return self.common(tag, bytes),
        }))
    }
}

/// memray's number of an allocating function.
#[inline(always)]
fn allocator(function: u8) -> Option<Allocator> {
    Some(match function {
        2 => Allocator::PymallocMalloc,
        3 => Allocator::PymallocCalloc,
        4 => Allocator::PymallocRealloc,
        6 => Allocator::Malloc,
        7 => Allocator::Realloc,
        8 => Allocator::Calloc,
        9 => Allocator::PosixMemalign,
        10 => Allocator::AlignedAlloc,
        11 => Allocator::Memalign,
        12 => Allocator::Valloc,
        13 => Allocator::Pvalloc,
        14 => Allocator::Mmap,
        _ => return None,
    })
}
