//! Captures that are read while the program goes on: what was there at opening stays readable.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;

use heaptide_capture::{Allocator, Capture};

use crate::file::{FileBuilder, SLOT_LEN, fill_slot};
use crate::opening::Folder;
use crate::program::{Action, Chunk, Happened, Program, SMALLEST_PAYLOAD, replayed};

fn chunks_of_one_thread() -> (Vec<Chunk>, Vec<Happened>) {
    let mut program = Program::new(1, SMALLEST_PAYLOAD);
    for n in 0..400 {
        program.run(
            0,
            Action::Alloc {
                address: n * 0x1_0000,
                size: n,
                allocator: Allocator::Malloc,
            },
        );
    }
    program.finish()
}

/// The first `n_events` events of a chunk: what was in the slot earlier.
fn beginning_of(chunk: &Chunk, n_events: u32) -> Chunk {
    let mut input = heaptide_capture::wire::Reader::new(&chunk.payload);
    let mut tables = heaptide_capture::Tables::new();
    tables.reset(chunk.head.sequence, chunk.head.time);
    for _ in 0..n_events {
        tables.read(&mut input).unwrap();
    }
    Chunk {
        payload: chunk.payload[..input.position()].to_vec(),
        n_events,
        ..chunk.clone()
    }
}

#[test]
fn slot_emptied_into_a_block_after_opening_is_read_from_the_block() {
    let (chunks, truth) = chunks_of_one_thread();
    let mut file = FileBuilder::new();
    let extent = file.bytes.len();
    file.extent(&[Some(&beginning_of(&chunks[1], 5))]);
    file.block(&chunks[0]);
    let folder = Folder::new("emptied");
    let path = folder.file(&file.bytes);
    let capture = Capture::open(&path).unwrap();
    let n_events = capture.n_events();
    assert_eq!(n_events, u64::from(chunks[0].n_events) + 5);

    // The program goes on: the slot's chunk becomes full and a block, then the slot takes the next chunk.
    let length_before = file.bytes.len();
    file.block(&chunks[1]);
    let growing = OpenOptions::new().append(true).open(&path).unwrap();
    (&growing).write_all(&file.bytes[length_before..]).unwrap();
    let mut slot = vec![0; SLOT_LEN];
    fill_slot(&mut slot, &chunks[2]);
    let in_place = OpenOptions::new().write(true).open(&path).unwrap();
    in_place
        .write_all_at(&slot, FileBuilder::slot_offset(extent, 0) as u64)
        .unwrap();

    let (happened, damage) = replayed(&capture);
    assert_eq!(damage, []);
    assert_eq!(happened, truth[..n_events as usize]);
}

#[test]
fn slot_that_was_filled_further_after_opening_ends_where_it_did() {
    let (chunks, truth) = chunks_of_one_thread();
    let mut file = FileBuilder::new();
    let extent = file.bytes.len();
    file.extent(&[Some(&beginning_of(&chunks[0], 7))]);
    let folder = Folder::new("filled");
    let path = folder.file(&file.bytes);
    let capture = Capture::open(&path).unwrap();
    let mut slot = vec![0; SLOT_LEN];
    fill_slot(&mut slot, &chunks[0]);
    let in_place = OpenOptions::new().write(true).open(&path).unwrap();
    in_place
        .write_all_at(&slot, FileBuilder::slot_offset(extent, 0) as u64)
        .unwrap();
    let (happened, damage) = replayed(&capture);
    assert_eq!(damage, []);
    assert_eq!(happened, truth[..7]);
}

#[test]
fn file_cut_after_opening_is_damage_not_a_panic() {
    let (chunks, _) = chunks_of_one_thread();
    let mut file = FileBuilder::new();
    for chunk in &chunks {
        file.block(chunk);
    }
    let folder = Folder::new("shrunk");
    let path = folder.file(&file.bytes);
    let capture = Capture::open(&path).unwrap();
    let writable = OpenOptions::new().write(true).open(&path).unwrap();
    writable
        .set_len(file.blocks[1].0.start as u64 + 100)
        .unwrap();
    let (happened, damage) = replayed(&capture);
    assert_eq!(happened.len(), chunks[0].n_events as usize);
    assert_eq!(damage.len(), chunks.len() - 1);
}
