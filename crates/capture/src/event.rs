//! Events of one thread as bytes, and back: the encoding of a chunk's payload.
//!
//! A chunk can be read without any other chunk. Writer and reader start from the same empty [`Tables`] and change them in
//! the same way after each record. A record can therefore refer to "the address in slot 17 of the table" with one byte. The
//! first byte of a record is its tag:
//!
//! ```text
//! 0x01 time      varint: clock units since the previous time record
//! 0x02 switch    varint: sequence number minus the previous one of this thread (order between threads)
//! 0x03 free      u8: slot in the address table
//! 0x04 free      signed varint: (address - previously freed address) / 16
//! 0x05 free      u64: any address
//! 0x06 alloc     u8 allocator, varint size, signed varint: (address - previous address of the shape's slot) / 16
//! 0x07 alloc     u8 allocator, varint size, u64: any address
//! 0x08 free      u64 address, varint length: a range, which may cover several blocks or parts of them
//! 0x09 unfree    the thread's previous free did not happen: the allocator refused
//! 0x0a job       varint number, varint number of its name: allocations that follow belong to this job; 0: to none
//! 0x0b push      varint code, varint instruction + 1 (0: at the start): a frame that the innermost one called
//! 0x0d job end   varint number: the job ended between the events before and after
//! 0x0f pop       varint: number of frames that returned
//! 0x10…0x1f pop  1 to 16 frames
//! 0x40…0x7f push slot (6 bits) in the frame table
//! 0x80…0xbf alloc  slot (6 bits) in the shape table; u8: slot in the address table
//! 0xc0…0xff alloc  slot (6 bits) in the shape table; signed varint: (address - the shape's previous address) / 16
//! ```
//!
//! A *shape* is an allocator and a size. Tables are filled by hash, not by age, so that finding a slot costs one
//! multiplication. Example: `bytearray(600)` in a loop, where libc returns the block freed just before:
//! `9c 5b` allocate the shape in slot 28 at the address in slot 91; `03 5b` free it; four bytes for two events.

use crate::allocator::Allocator;
use crate::wire::{Reader, Writer};

/// No record is longer. A writer with this much room can write any record.
pub const MAX_RECORD_BYTES: usize = 32;

/// A Python frame: a code object and a position in it. Or a native frame: a library and an address in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Frame {
    /// The id of the code object or the library in the registry.
    pub code: u32,
    /// The instruction's offset in code units (two bytes each), or [`Frame::AT_START`]. In a native frame, the address.
    pub instruction: u32,
}

impl Frame {
    /// The frame has not run an instruction yet: its line is the function's first.
    pub const AT_START: u32 = u32::MAX;
}

/// One record of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Sets the clock, in units, for the records that follow.
    Time(u64),
    /// Sets the sequence number in the order of all threads for the events that follow.
    Switch(u64),
    Pop(u32),
    Push(Frame),
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
    /// The previous free of this thread did not happen.
    Unfree,
    /// The allocations that follow belong to this job; 0 is none.
    Job {
        number: u32,
        name: u32,
    },
    JobEnd {
        number: u32,
    },
}

#[derive(Clone, Copy, Default)]
struct Shape {
    size: u64,
    previous_address: u64,
    allocator: u8,
}

/// The state by which a writer encodes records and a reader decodes them. 4 KiB; emptied at the start of every chunk.
pub struct Tables {
    addresses: [u64; 256],
    shapes: [Shape; 64],
    frames: [Frame; 64],
    previous_free: u64,
    sequence: u64,
    time: u64,
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Tables {
    pub const fn new() -> Self {
        Tables {
            addresses: [0; 256],
            shapes: [Shape {
                size: 0,
                previous_address: 0,
                allocator: 0,
            }; 64],
            frames: [Frame {
                code: 0,
                instruction: 0,
            }; 64],
            previous_free: 0,
            sequence: 0,
            time: 0,
        }
    }

    /// Starts a chunk that begins at `sequence` and `time`, as in its head.
    pub fn reset(&mut self, sequence: u64, time: u64) {
        *self = Tables::new();
        self.sequence = sequence;
        self.time = time;
    }

    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    #[inline(always)]
    pub fn time(&self) -> u64 {
        self.time
    }

    #[inline(always)]
    fn address_slot(address: u64) -> usize {
        ((address >> 4).wrapping_mul(SPREAD) >> 56) as usize
    }

    #[inline(always)]
    fn shape_slot(allocator: u8, size: u64) -> usize {
        ((size ^ (u64::from(allocator) << 40)).wrapping_mul(SPREAD) >> 58) as usize
    }

    #[inline(always)]
    fn frame_slot(frame: Frame) -> usize {
        let key = u64::from(frame.code) << 32 | u64::from(frame.instruction);
        (key.wrapping_mul(SPREAD) >> 58) as usize
    }
}

impl Default for Tables {
    fn default() -> Self {
        Tables::new()
    }
}

/// Writing. Each function writes one record and needs [`MAX_RECORD_BYTES`] of room.
impl Tables {
    #[inline(always)]
    pub fn write_time(&mut self, out: &mut Writer, time: u64) {
        out.u8(0x01);
        out.varint(time.wrapping_sub(self.time));
        self.time = time;
    }

    pub fn write_switch(&mut self, out: &mut Writer, sequence: u64) {
        out.u8(0x02);
        out.varint(sequence.wrapping_sub(self.sequence));
        self.sequence = sequence;
    }

    #[inline(always)]
    pub fn write_pop(&mut self, out: &mut Writer, n_frames: usize) {
        if n_frames <= 16 {
            out.u8(0x0f + n_frames as u8);
        } else {
            out.u8(0x0f);
            out.varint(n_frames as u64);
        }
    }

    #[inline(always)]
    pub fn write_push(&mut self, out: &mut Writer, frame: Frame) {
        let slot = Tables::frame_slot(frame);
        if self.frames[slot] == frame {
            out.u8(0x40 | slot as u8);
            return;
        }
        self.frames[slot] = frame;
        out.u8(0x0b);
        out.varint(u64::from(frame.code));
        out.varint(u64::from(frame.instruction.wrapping_add(1)));
    }

    #[inline(always)]
    pub fn write_free(&mut self, out: &mut Writer, address: u64) {
        let slot = Tables::address_slot(address);
        if self.addresses[slot] == address {
            out.u8(0x03);
            out.u8(slot as u8);
        } else if address & 15 == 0 {
            out.u8(0x04);
            out.signed(address.wrapping_sub(self.previous_free) as i64 >> 4);
            self.addresses[slot] = address;
        } else {
            out.u8(0x05);
            out.u64(address);
            return;
        }
        self.previous_free = address;
    }

    #[inline(always)]
    pub fn write_alloc(&mut self, out: &mut Writer, allocator: Allocator, size: u64, address: u64) {
        let allocator = allocator as u8;
        if address & 15 != 0 {
            out.u8(0x07);
            out.u8(allocator);
            out.varint(size);
            out.u64(address);
            return;
        }
        let slot = Tables::shape_slot(allocator, size);
        let address_slot = Tables::address_slot(address);
        let shape = &mut self.shapes[slot];
        let step = address.wrapping_sub(shape.previous_address) as i64 >> 4;
        if shape.size == size && shape.allocator == allocator {
            if self.addresses[address_slot] == address {
                out.u8(0x80 | slot as u8);
                out.u8(address_slot as u8);
            } else {
                out.u8(0xc0 | slot as u8);
                out.signed(step);
            }
        } else {
            out.u8(0x06);
            out.u8(allocator);
            out.varint(size);
            out.signed(step);
            shape.size = size;
            shape.allocator = allocator;
        }
        shape.previous_address = address;
        self.addresses[address_slot] = address;
    }

    pub fn write_free_range(&mut self, out: &mut Writer, address: u64, length: u64) {
        out.u8(0x08);
        out.u64(address);
        out.varint(length);
    }

    pub fn write_unfree(&mut self, out: &mut Writer) {
        out.u8(0x09);
    }

    pub fn write_job(&mut self, out: &mut Writer, number: u32, name: u32) {
        out.u8(0x0a);
        out.varint(number.into());
        out.varint(name.into());
    }

    pub fn write_job_end(&mut self, out: &mut Writer, number: u32) {
        out.u8(0x0d);
        out.varint(number.into());
    }
}

/// Reading.
impl Tables {
    /// Returns the next record, or `None` if the bytes end or are invalid. The chunk is complete if the reader was at
    /// its end before the call.
    // Inlined, because the speed of readers depends on it.
    #[inline(always)]
    pub fn read(&mut self, reader: &mut Reader) -> Option<Record> {
        let tag = reader.u8()?;
        let slot = usize::from(tag & 0x3f);
        match tag {
            0x80..=0xff => {
                let shape = &mut self.shapes[slot];
                let allocator = Allocator::from_number(shape.allocator)?;
                let address = if tag < 0xc0 {
                    self.addresses[usize::from(reader.u8()?)]
                } else {
                    step_from(shape.previous_address, reader.signed()?)
                };
                shape.previous_address = address;
                self.addresses[Tables::address_slot(address)] = address;
                Some(Record::Alloc {
                    address,
                    size: shape.size,
                    allocator,
                })
            }
            0x40..=0x7f => Some(Record::Push(self.frames[slot])),
            0x03 | 0x04 => {
                let address = if tag == 0x03 {
                    self.addresses[usize::from(reader.u8()?)]
                } else {
                    step_from(self.previous_free, reader.signed()?)
                };
                self.addresses[Tables::address_slot(address)] = address;
                self.previous_free = address;
                Some(Record::Free { address })
            }
            0x10..=0x1f => Some(Record::Pop(u32::from(tag - 0x0f))),
            0x0f => Some(Record::Pop(u32::try_from(reader.varint()?).ok()?)),
            0x0b => {
                let code = u32::try_from(reader.varint()?).ok()?;
                let instruction = u32::try_from(reader.varint()?).ok()?.wrapping_sub(1);
                let frame = Frame { code, instruction };
                self.frames[Tables::frame_slot(frame)] = frame;
                Some(Record::Push(frame))
            }
            0x01 => {
                self.time = self.time.wrapping_add(reader.varint()?);
                Some(Record::Time(self.time))
            }
            0x02 => {
                self.sequence = self.sequence.wrapping_add(reader.varint()?);
                Some(Record::Switch(self.sequence))
            }
            0x06 => {
                let number = reader.u8()?;
                let allocator = Allocator::from_number(number)?;
                let size = reader.varint()?;
                let shape = &mut self.shapes[Tables::shape_slot(number, size)];
                let address = step_from(shape.previous_address, reader.signed()?);
                *shape = Shape {
                    size,
                    previous_address: address,
                    allocator: number,
                };
                self.addresses[Tables::address_slot(address)] = address;
                Some(Record::Alloc {
                    address,
                    size,
                    allocator,
                })
            }
            0x05 => Some(Record::Free {
                address: reader.u64()?,
            }),
            0x07 => {
                let allocator = Allocator::from_number(reader.u8()?)?;
                let size = reader.varint()?;
                let address = reader.u64()?;
                Some(Record::Alloc {
                    address,
                    size,
                    allocator,
                })
            }
            0x08 => Some(Record::FreeRange {
                address: reader.u64()?,
                length: reader.varint()?,
            }),
            0x09 => Some(Record::Unfree),
            0x0a => Some(Record::Job {
                number: u32::try_from(reader.varint()?).ok()?,
                name: u32::try_from(reader.varint()?).ok()?,
            }),
            0x0d => Some(Record::JobEnd {
                number: u32::try_from(reader.varint()?).ok()?,
            }),
            _ => None,
        }
    }
}

#[inline(always)]
fn step_from(base: u64, steps_of_16: i64) -> u64 {
    base.wrapping_add((steps_of_16 as u64) << 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = Record> {
        // Few distinct addresses and sizes, so that most are in the tables, and some random ones that are not.
        let address = prop_oneof![
            (0u64..64).prop_map(|n| 0x7f00_0000_0000 + n * 48),
            any::<u64>()
        ];
        let size = prop_oneof![0u64..8, any::<u64>()];
        let allocator = prop::sample::select(Allocator::ALL.to_vec());
        let frame = prop_oneof![(0u32..4, 0u32..4), any::<(u32, u32)>()];
        prop_oneof![
            any::<u64>().prop_map(Record::Time),
            any::<u64>().prop_map(Record::Switch),
            (1u32..).prop_map(Record::Pop),
            frame.prop_map(|(code, instruction)| Record::Push(Frame { code, instruction })),
            (address.clone(), size, allocator).prop_map(|(address, size, allocator)| {
                Record::Alloc {
                    address,
                    size,
                    allocator,
                }
            }),
            address.clone().prop_map(|address| Record::Free { address }),
            (address, any::<u64>())
                .prop_map(|(address, length)| Record::FreeRange { address, length }),
            Just(Record::Unfree),
            any::<(u32, u32)>().prop_map(|(number, name)| Record::Job { number, name }),
            any::<u32>().prop_map(|number| Record::JobEnd { number }),
        ]
    }

    fn write(tables: &mut Tables, out: &mut Writer, record: Record) {
        match record {
            Record::Time(time) => tables.write_time(out, time),
            Record::Switch(sequence) => tables.write_switch(out, sequence),
            Record::Pop(n_frames) => tables.write_pop(out, n_frames as usize),
            Record::Push(frame) => tables.write_push(out, frame),
            Record::Alloc {
                address,
                size,
                allocator,
            } => tables.write_alloc(out, allocator, size, address),
            Record::Free { address } => tables.write_free(out, address),
            Record::FreeRange { address, length } => tables.write_free_range(out, address, length),
            Record::Unfree => tables.write_unfree(out),
            Record::Job { number, name } => tables.write_job(out, number, name),
            Record::JobEnd { number } => tables.write_job_end(out, number),
        }
    }

    proptest! {
        #[test]
        fn records_round_trip(records in prop::collection::vec(any_record(), 0..300), sequence: u64, time: u64) {
            let mut bytes = vec![0; records.len() * MAX_RECORD_BYTES];
            let mut writer = Writer::new(&mut bytes);
            let mut tables = Tables::new();
            tables.reset(sequence, time);
            for &record in &records {
                let before = writer.len();
                write(&mut tables, &mut writer, record);
                prop_assert!(writer.len() - before <= MAX_RECORD_BYTES);
            }
            let len = writer.len();
            let mut reader = Reader::new(&bytes[..len]);
            let mut tables = Tables::new();
            tables.reset(sequence, time);
            for &record in &records {
                prop_assert_eq!(tables.read(&mut reader), Some(record));
            }
            prop_assert!(reader.is_at_end());
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut reader = Reader::new(&bytes);
            let mut tables = Tables::new();
            while tables.read(&mut reader).is_some() {}
        }
    }

    #[test]
    fn block_freed_and_allocated_again_takes_two_bytes_per_event() {
        let mut bytes = [0; 1024];
        let mut writer = Writer::new(&mut bytes);
        let mut tables = Tables::new();
        tables.write_alloc(&mut writer, Allocator::Malloc, 600, 0x5555_0000);
        tables.write_free(&mut writer, 0x5555_0000);
        let first = writer.len();
        tables.write_alloc(&mut writer, Allocator::Malloc, 600, 0x5555_0000);
        tables.write_free(&mut writer, 0x5555_0000);
        assert_eq!(writer.len() - first, 4);
    }
}
