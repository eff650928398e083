//! `heaptide transform packed-events`: the list of events for Heaptide's own reader, in records of equal length.
//!
//! The lines, stacks and threads come first, as in `transform events`, and a line `events` ends them. Each record then has
//! 32 bytes, in little-endian order:
//!
//! ```text
//! 8  address, or 0 in a sample of the resident size
//! 8  bytes; 0 in a free by function 1 or 5
//! 4  number of the stack plus 1, or 0
//! 4  number of the thread
//! 4  milliseconds
//! 1  memray's number of the function: 1, 5 and 15 free; 0 is a sample of the resident size
//! 1  always 1: the number of blocks
//! 2  1 if the block is a mapping of a file
//! ```

use clap::ArgMatches;
use heaptide_analysis::events::{Change, Event};
use heaptide_capture::Allocator;
use heaptide_foreign::memray::write::function;
use rustc_hash::FxHashSet;

use crate::exit::Failure;
use crate::input::replayed_capture::{self, Step};

pub(crate) const NAME: &str = "packed-events";

const SAMPLE: u8 = 0;
const PYTHON_FREE: u8 = 1;
const FREE: u8 = 5;
const UNMAP: u8 = 15;

pub(crate) fn write(matches: &ArgMatches) -> Result<(), Failure> {
    let mut packer = Packer::default();
    replayed_capture::write_steps(matches, NAME, "bin", &mut |out, step| match step {
        None => out.write_all(b"events\n"),
        Some(step) => out.write_all(&packer.record(step)),
    })
}

#[derive(Default)]
struct Packer {
    /// Live blocks of Python's allocators: a free does not state its function.
    of_python: FxHashSet<u64>,
}

impl Packer {
    fn record(&mut self, step: Step) -> [u8; 32] {
        let event = match step {
            Step::Event(event) => event,
            Step::Resident(sample) => {
                return pack(0, sample.bytes, 0, 0, sample.elapsed_ns, SAMPLE, false);
            }
        };
        let Event {
            elapsed_ns,
            stream,
            address,
            change,
        } = event;
        match change {
            Change::Alloc {
                size,
                allocator,
                stack,
            } => {
                if is_of_python(allocator) {
                    self.of_python.insert(address);
                }
                let stack = stack.map_or(0, |number| number + 1);
                let is_file = allocator == Allocator::MmapFile;
                let function = function(allocator);
                pack(address, size, stack, stream, elapsed_ns, function, is_file)
            }
            Change::Free => {
                let is_python = self.of_python.remove(&address);
                let function = if is_python { PYTHON_FREE } else { FREE };
                pack(address, 0, 0, stream, elapsed_ns, function, false)
            }
            Change::FreeRange { length } => {
                pack(address, length, 0, stream, elapsed_ns, UNMAP, false)
            }
        }
    }
}

fn is_of_python(allocator: Allocator) -> bool {
    matches!(
        allocator,
        Allocator::PymallocMalloc | Allocator::PymallocCalloc | Allocator::PymallocRealloc
    )
}

fn pack(
    address: u64,
    size: u64,
    stack: usize,
    thread: u32,
    elapsed_ns: u64,
    function: u8,
    is_file: bool,
) -> [u8; 32] {
    let stack = u32::try_from(stack).unwrap_or(0);
    let milliseconds = u32::try_from(elapsed_ns / 1_000_000).unwrap_or(u32::MAX);
    let mut record = [0; 32];
    record[..8].copy_from_slice(&address.to_le_bytes());
    record[8..16].copy_from_slice(&size.to_le_bytes());
    record[16..20].copy_from_slice(&stack.to_le_bytes());
    record[20..24].copy_from_slice(&thread.to_le_bytes());
    record[24..28].copy_from_slice(&milliseconds.to_le_bytes());
    record[28] = function;
    record[29] = 1;
    record[30] = u8::from(is_file);
    record
}
