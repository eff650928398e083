//! An aggregated file: the blocks of every site at the peak and at the end.

use std::io::{self, Write};

use heaptide_capture::Allocator;
use heaptide_capture::foreign::BlockSum;

use super::encode::Encoder;
use super::{Preface, code_of, function};

/// The blocks of one site.
#[derive(Clone, Copy, Debug)]
pub struct SumSite {
    pub thread: u64,
    pub stack: Option<usize>,
    pub allocator: Allocator,
    pub at_peak: BlockSum,
    pub at_end: BlockSum,
}

/// The sizes of the process and of its heap at one time.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRecord {
    pub elapsed_ms: u64,
    pub resident: u64,
    pub heap: u64,
}

/// Writes a whole file.
pub fn write_sums(
    mut out: impl Write,
    preface: &Preface,
    memory_records: impl Iterator<Item = MemoryRecord>,
    sites: impl Iterator<Item = SumSite>,
) -> io::Result<()> {
    preface.write_header(&mut out, true)?;
    let mut record = Encoder::default();
    for memory in memory_records {
        record.u8(0x01);
        record.u64(preface.start_ms().saturating_add(memory.elapsed_ms));
        record.u64(memory.resident);
        record.u64(memory.heap);
        out.write_all(&record.take())?;
    }
    preface.write_threads(&mut out)?;
    preface.write_codes(&mut out)?;
    for line in 0..preface.lines.len() {
        record.u8(0x04);
        record.number(line as u64);
        record.number(code_of(line));
        record.signed(0);
        record.u8(0);
        out.write_all(&record.take())?;
    }
    for node in preface.stacks {
        record.u8(0x03);
        record.number(node.line as u64);
        record.number(node_of(node.parent));
        out.write_all(&record.take())?;
    }
    for site in sites {
        record.u8(0x02);
        let numbers = [
            site.thread,
            // One byte, and seven bytes of padding.
            function(site.allocator).into(),
            0,
            node_of(site.stack),
            0,
            site.at_peak.count,
            site.at_end.count,
            site.at_peak.bytes,
            site.at_end.bytes,
        ];
        for number in numbers {
            record.u64(number);
        }
        out.write_all(&record.take())?;
    }
    out.write_all(&[0x0f])
}

/// The number of a stack, counted from 1.
fn node_of(stack: Option<usize>) -> u64 {
    stack.map_or(0, |at| at as u64 + 1)
}
