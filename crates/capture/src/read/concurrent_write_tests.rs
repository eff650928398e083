//! Scanning while the program writes: the scan returns the chunks that the file contained at one moment.

use crate::Allocator;
use crate::area::{BlockHead, ChunkHead, ExtentHead, SlotHead};
use crate::event::Tables;
use crate::pack::Packer;
use crate::wire::Writer;

use super::chunk::{Container, Sorted};
use super::scan::Scan;
use super::source::Source;
use super::source::changing::Changing;

const SLOT_LEN: usize = 1024;
const SLOTS_OFFSET: usize = 128;
const N_SLOTS: usize = 2;
/// Events in a full slot.
const FULL: u64 = 20;

type ScannedChunk = (u32, Container, u64);

fn slot_at(index: usize) -> usize {
    SLOTS_OFFSET + index * SLOT_LEN
}

fn head(number: u32) -> ChunkHead {
    ChunkHead {
        stream: 1,
        number,
        ..ChunkHead::default()
    }
}

fn payload(n_events: u64) -> Vec<u8> {
    let mut bytes = vec![0; SLOT_LEN - SlotHead::LEN];
    let mut out = Writer::new(&mut bytes);
    let mut tables = Tables::new();
    tables.reset(0, 0);
    for n in 0..n_events {
        tables.write_alloc(&mut out, Allocator::Malloc, 8, 0x1000 * n);
    }
    let len = out.len();
    bytes.truncate(len);
    bytes
}

/// An extent whose slots were never used, at the beginning of the scanned bytes.
fn empty_slots() -> Vec<u8> {
    let head = ExtentHead {
        area_len: (SLOTS_OFFSET + N_SLOTS * SLOT_LEN) as u64,
        slots_offset: SLOTS_OFFSET as u32,
        slot_len: SLOT_LEN as u32,
        n_slots: N_SLOTS as u32,
    };
    let mut bytes = vec![0; head.area_len as usize];
    bytes[..ExtentHead::LEN].copy_from_slice(&head.to_bytes());
    bytes
}

fn fill(bytes: &mut [u8], slot: usize, number: u32, n_events: u64) {
    let payload = payload(n_events);
    let head = SlotHead {
        chunk: head(number),
        committed: payload.len() as u64,
        in_use: true,
    };
    bytes[slot_at(slot)..][..SlotHead::LEN].copy_from_slice(&head.to_bytes());
    bytes[slot_at(slot) + SlotHead::LEN..][..payload.len()].copy_from_slice(&payload);
}

fn append_block(bytes: &mut Vec<u8>, number: u32) {
    let head = BlockHead {
        chunk: head(number),
        n_events: FULL as u32,
        ..BlockHead::default()
    };
    bytes.extend_from_slice(Packer::new().block(head, &payload(FULL)));
}

/// Scans the file; returns number, container and event count of each chunk. `change` runs before each read of a slot. It
/// receives the slot and how often the slot was read, including this read.
fn scan_while_changing(
    bytes: Vec<u8>,
    change: fn(slot: usize, n_reads: u32, &mut Vec<u8>),
) -> Vec<ScannedChunk> {
    let mut n_reads = [0; N_SLOTS];
    let source = Source::Changing(Changing::new(bytes, move |offset, bytes| {
        if let Some(slot) = (0..N_SLOTS).find(|slot| slot_at(*slot) as u64 == offset) {
            n_reads[slot] += 1;
            change(slot, n_reads[slot], bytes);
        }
    }));
    let sorted = Sorted::new(Scan::run(&source, 0));
    assert_eq!(sorted.damage, []);
    let chunks = sorted.events.iter();
    chunks
        .map(|chunk| {
            (
                chunk.head.number,
                chunk.container,
                u64::from(chunk.n_events),
            )
        })
        .collect()
}

#[test]
fn slot_filled_before_the_next_one_is_read_is_found_full() {
    let mut bytes = empty_slots();
    fill(&mut bytes, 0, 0, 5);
    let chunks = scan_while_changing(bytes, |slot, n_reads, bytes| {
        if (slot, n_reads) == (1, 1) {
            fill(bytes, 0, 0, FULL);
            fill(bytes, 1, 1, 3);
        }
    });
    assert_eq!(
        chunks,
        [(0, Container::Slot, FULL), (1, Container::Slot, 3)]
    );
}

#[test]
fn slot_begun_and_filled_before_the_next_one_is_read_is_found() {
    let chunks = scan_while_changing(empty_slots(), |slot, n_reads, bytes| {
        if (slot, n_reads) == (1, 1) {
            fill(bytes, 0, 0, FULL);
            fill(bytes, 1, 1, 3);
        }
    });
    assert_eq!(
        chunks,
        [(0, Container::Slot, FULL), (1, Container::Slot, 3)]
    );
}

#[test]
fn slot_emptied_before_it_is_read_again_is_found_as_a_block() {
    let mut bytes = empty_slots();
    fill(&mut bytes, 0, 0, 5);
    let chunks = scan_while_changing(bytes, |slot, n_reads, bytes| match (slot, n_reads) {
        (1, 1) => {
            fill(bytes, 0, 0, FULL);
            fill(bytes, 1, 1, 3);
        }
        // The slot's next chunk was not in the file at the first scan.
        (0, 3) => {
            append_block(bytes, 0);
            fill(bytes, 1, 1, FULL);
            fill(bytes, 0, 2, 7);
        }
        _ => {}
    });
    assert_eq!(
        chunks,
        [(0, Container::Block, FULL), (1, Container::Slot, FULL)]
    );
}
