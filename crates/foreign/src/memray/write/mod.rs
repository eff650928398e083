//! Writes captures that memray 1.19 or 1.20 can read: `events` writes all allocations, `sums` an aggregated capture.
//!
//! Stacks are a tree whose nodes have names and lines instead of code objects and instructions. Each location becomes a code
//! object of one instruction, whose first line is the location's line. The header states Python 3.12, because the format of
//! a line table depends on the version; memray uses the version for nothing else.

mod encode;
mod events;
mod sums;

use std::io::{self, Write};

use heaptide_capture::{Allocator, Header};

use super::MAGIC;
use encode::Encoder;

pub use events::EventWriter;
pub use sums::{MemoryRecord, SumSite, write_sums};

/// memray reads only files of its own format.
pub const FORMAT_OF_1_19: u32 = 12;
pub const FORMAT_OF_1_20: u32 = 13;
const PYTHON_VERSION: u32 = 0x030c_00f0;
/// One entry: one instruction, on the first line, without columns.
const LINE_TABLE: [u8; 2] = [0x80 | 13 << 3, 0];

/// A source line.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    pub function: &'a str,
    pub file: &'a str,
    /// 0 or less if it is unknown.
    pub line: i32,
}

/// A stack: its innermost line, and the stack it was called from. Callers precede callees.
#[derive(Clone, Copy, Debug)]
pub struct StackNode {
    pub parent: Option<usize>,
    /// Index of the line.
    pub line: usize,
}

/// A thread and the number that its records carry.
#[derive(Clone, Copy, Debug)]
pub struct Thread<'a> {
    pub number: u64,
    pub name: &'a str,
}

/// Everything that precedes the events or sums.
#[derive(Clone, Copy, Debug)]
pub struct Preface<'a> {
    /// [`FORMAT_OF_1_19`] or [`FORMAT_OF_1_20`].
    pub format: u32,
    pub header: &'a Header,
    /// Allocations and frees: memray counts both.
    pub n_events: u64,
    pub duration_ms: u64,
    pub main_thread: u64,
    pub lines: &'a [Line<'a>],
    pub stacks: &'a [StackNode],
    pub threads: &'a [Thread<'a>],
}

impl Preface<'_> {
    fn start_ms(&self) -> u64 {
        self.header.started_unix_ns / 1_000_000
    }

    fn write_header(&self, out: &mut impl Write, is_aggregated: bool) -> io::Result<()> {
        let header = self.header;
        let mut bytes = Encoder::default();
        bytes.raw(&MAGIC);
        bytes.raw(&self.format.to_le_bytes());
        bytes.raw(&PYTHON_VERSION.to_le_bytes());
        // Native functions are written like Python functions, so that their names need no libraries.
        bytes.u8(0);
        bytes.u8(is_aggregated.into());
        bytes.u64(self.n_events);
        bytes.u64(self.lines.len() as u64);
        bytes.u64(self.start_ms());
        bytes.u64(self.start_ms().saturating_add(self.duration_ms));
        bytes.text(&header.command.join(" "));
        bytes.raw(&header.pid.to_le_bytes());
        bytes.u64(self.main_thread);
        // Heaptide's own frames are not on the stacks.
        bytes.u64(0);
        bytes.u8(match header.python_allocator.as_str() {
            "pymalloc" => 1,
            "pymalloc_debug" => 2,
            "malloc" => 3,
            "mimalloc" => 5,
            "mimalloc_debug" => 6,
            _ => 4,
        });
        bytes.u8(header.mode.objects.into());
        bytes.u8(0);
        if self.format < FORMAT_OF_1_20 {
            return out.write_all(&bytes.take());
        }
        bytes.text(header.stdlib_paths.first().map_or("", String::as_str));
        let is_installed =
            |path: &&String| path.ends_with("site-packages") || path.ends_with("dist-packages");
        bytes.texts(header.import_paths.iter().filter(is_installed));
        bytes.texts(header.import_paths.iter());
        out.write_all(&bytes.take())
    }

    fn write_codes(&self, out: &mut impl Write) -> io::Result<()> {
        let mut previous = 0;
        for (at, line) in self.lines.iter().enumerate() {
            let mut bytes = Encoder::default();
            let first_line = i64::from(line.line.max(0));
            bytes.u8(0x0e);
            bytes.number(code_of(at));
            bytes.text(line.function);
            bytes.text(line.file);
            bytes.signed(first_line - previous);
            bytes.number(LINE_TABLE.len() as u64);
            bytes.raw(&LINE_TABLE);
            previous = first_line;
            out.write_all(&bytes.take())?;
        }
        Ok(())
    }

    fn write_threads(&self, out: &mut impl Write) -> io::Result<()> {
        for thread in self.threads.iter().filter(|thread| !thread.name.is_empty()) {
            let mut bytes = Encoder::default();
            bytes.thread(thread.number);
            bytes.u8(0x0a);
            bytes.text(thread.name);
            out.write_all(&bytes.take())?;
        }
        Ok(())
    }
}

/// The number of a line's code object: memray counts from 1.
fn code_of(line: usize) -> u64 {
    line as u64 + 1
}

/// memray's number of an allocating function. memray distinguishes fewer functions than Heaptide.
pub fn function(allocator: Allocator) -> u8 {
    match allocator {
        Allocator::PymallocMalloc => 2,
        Allocator::PymallocCalloc => 3,
        Allocator::PymallocRealloc => 4,
        Allocator::Malloc => 6,
        Allocator::Realloc | Allocator::Reallocarray => 7,
        Allocator::Calloc => 8,
        Allocator::PosixMemalign => 9,
        Allocator::AlignedAlloc => 10,
        Allocator::Memalign => 11,
        Allocator::Valloc => 12,
        Allocator::Pvalloc => 13,
        Allocator::Mmap | Allocator::MmapFile | Allocator::Mremap => 14,
    }
}
