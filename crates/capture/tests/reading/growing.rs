//! Captures that are read while the program writes: all events that the file had at opening stay readable.

use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use heaptide_capture::area::BlockHead;
use heaptide_capture::{Allocator, Capture};
use heaptide_tally::Follower;
use heaptide_tally::replay_between;

use crate::file::{FileBuilder, SLOT_LEN, fill_slot};
use crate::opening::Folder;
use crate::program::{Action, Chunk, Program, ReplayedOp, SMALLEST_PAYLOAD, replayed};

fn chunks_of_one_thread() -> (Vec<Chunk>, Vec<ReplayedOp>) {
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

/// Returns the first `n_events` events of a chunk, as the slot contained them earlier.
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

    // The program continues: it fills the slot's chunk, writes it as a block, and begins the next chunk in the slot.
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

    let (events, damage) = replayed(&capture);
    assert_eq!(damage, []);
    assert_eq!(events, truth[..n_events as usize]);
}

#[test]
fn slot_that_grows_after_opening_is_read_up_to_its_length_at_opening() {
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
    let (events, damage) = replayed(&capture);
    assert_eq!(damage, []);
    assert_eq!(events, truth[..7]);
}

/// A file as a reader may find it while the program writes: the first slot has five events, and only the head of its
/// block is written.
struct HalfWrittenFile {
    /// The file when the reader opens it.
    at_opening: Vec<u8>,
    slot_at: u64,
    block: Range<usize>,
    /// The file a moment later.
    whole: Vec<u8>,
}

impl HalfWrittenFile {
    fn new(chunks: &[Chunk]) -> HalfWrittenFile {
        let mut file = FileBuilder::new();
        let extent = file.bytes.len();
        file.extent(&[Some(&beginning_of(&chunks[0], 5))]);
        for chunk in chunks {
            file.block(chunk);
        }
        let block = file.blocks[0].0.clone();
        let mut at_opening = file.bytes.clone();
        at_opening[block.start + BlockHead::LEN..block.end].fill(0);
        HalfWrittenFile {
            at_opening,
            slot_at: FileBuilder::slot_offset(extent, 0) as u64,
            block,
            whole: file.bytes,
        }
    }

    fn fill_slot(&self, path: &Path, chunk: &Chunk) {
        let mut slot = vec![0; SLOT_LEN];
        fill_slot(&mut slot, chunk);
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&slot, self.slot_at).unwrap();
    }

    fn finish_block(&self, path: &Path) {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let block = &self.whole[self.block.clone()];
        file.write_all_at(block, self.block.start as u64).unwrap();
    }
}

#[test]
fn chunk_is_complete_if_its_slot_was_read_early_and_its_block_is_unfinished() {
    let (chunks, truth) = chunks_of_one_thread();
    let half_written = HalfWrittenFile::new(&chunks);
    let folder = Folder::new("half_written");
    let path = folder.file(&half_written.at_opening);
    let capture = Capture::open(&path).unwrap();
    half_written.fill_slot(&path, &chunks[0]);
    assert_eq!(replayed(&capture), (truth.clone(), vec![]));
    // The slot gets another chunk only after the block is complete.
    half_written.finish_block(&path);
    half_written.fill_slot(&path, &chunks[1]);
    assert_eq!(replayed(&capture), (truth, vec![]));
}

#[test]
fn follower_that_finds_an_unfinished_slot_and_block_loses_no_event() {
    let (chunks, truth) = chunks_of_one_thread();
    let half_written = HalfWrittenFile::new(&chunks);
    let folder = Folder::new("followed");
    let path = folder.file(&half_written.at_opening);
    let mut follower = Follower::open(&path).unwrap();
    half_written.fill_slot(&path, &chunks[0]);
    half_written.finish_block(&path);
    follower.refresh(false);
    follower.refresh(false);
    assert_eq!(follower.tally().snapshot().n_events, truth.len() as u64);
    assert_eq!(follower.damage(), []);
}

#[test]
fn follower_reports_an_unreadable_last_block_once_and_waits_for_later_blocks() {
    let (chunks, _) = chunks_of_one_thread();
    let mut file = FileBuilder::new();
    file.block(&chunks[0]);
    file.block(&chunks[1]);
    let [first_len, two_blocks] = [&file.blocks[0], &file.blocks[1]].map(|block| block.0.end);
    file.block(&chunks[2]);
    let whole = file.bytes;
    let folder = Folder::new("unreadable");
    let path = folder.file(&whole[..two_blocks]);
    let writable = OpenOptions::new().write(true).open(&path).unwrap();
    let broken = (first_len + BlockHead::LEN) as u64;
    writable.write_all_at(&[0xff; 16], broken).unwrap();
    let mut follower = Follower::open(&path).unwrap();
    for _ in 0..30 {
        follower.refresh(false);
    }
    assert_eq!(follower.damage().len(), 1, "{:?}", follower.damage());

    // The reader finds the next block while only its head is written.
    let (head, rest) = whole[two_blocks..].split_at(BlockHead::LEN);
    writable.write_all_at(head, two_blocks as u64).unwrap();
    writable.set_len(whole.len() as u64).unwrap();
    follower.refresh(false);
    follower.refresh(false);
    let rest_at = (two_blocks + BlockHead::LEN) as u64;
    writable.write_all_at(rest, rest_at).unwrap();
    follower.refresh(false);
    follower.refresh(false);
    assert_eq!(follower.damage().len(), 1, "{:?}", follower.damage());
    let n_read = u64::from(chunks[0].n_events) + u64::from(chunks[2].n_events);
    assert_eq!(follower.tally().snapshot().n_events, n_read);
}

#[test]
fn follower_of_thousands_of_threads_takes_each_event_once() {
    // Too many to hold all chunks at once, so that the replay decodes them part by part.
    const N_THREADS: usize = 2_000;
    let mut program = Program::new(N_THREADS, 8_192);
    for n in 0..3 * 100 * N_THREADS {
        let address = 0x1000 * (n as u64 + 1);
        program.run(n / 100 % N_THREADS, Action::Free { address });
    }
    let (chunks, truth) = program.finish();
    let mut file = FileBuilder::new();
    for chunk in &chunks {
        file.block(chunk);
    }
    let folder = Folder::new("crowded");
    let mut follower = Follower::open(&folder.file(&file.bytes)).unwrap();
    follower.refresh(false);
    assert_eq!(follower.tally().snapshot().n_events, truth.len() as u64);
    assert_eq!(follower.damage(), []);
}

#[test]
fn program_reads_its_own_events_up_to_a_cut_while_its_threads_continue() {
    let address_of = |n: u64| 0x1_0000 * (n + 1);
    let mut program = Program::new(2, SMALLEST_PAYLOAD);
    let run = |program: &mut Program, events: std::ops::Range<u64>| {
        for n in events {
            let address = address_of(n);
            program.run(n as usize / 9 % 2, Action::Free { address });
        }
    };
    run(&mut program, 0..300);
    let cut = program.cut();
    run(&mut program, 300..310);

    // When the program opens its file, both threads are in the middle of a chunk.
    let mut file = FileBuilder::new();
    let extent = file.bytes.len();
    let slots: Vec<Chunk> = program.unfinished().cloned().collect();
    assert_eq!(slots.len(), 2);
    file.extent(&[Some(&slots[0]), Some(&slots[1])]);
    for chunk in &program.chunks {
        file.block(chunk);
    }
    let folder = Folder::new("own");
    let path = folder.file(&file.bytes);
    let both = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let captures = [
        Capture::from_file(both.try_clone().unwrap(), &path).unwrap(),
        Capture::events_from_file(both.try_clone().unwrap(), &path).unwrap(),
    ];

    // When the program reads the file, the threads have filled those chunks and begun others in the same slots.
    let n_before = program.chunks.len();
    run(&mut program, 310..1000);
    let mut appended = FileBuilder::new();
    let skipped = appended.bytes.len();
    for chunk in &program.chunks[n_before..] {
        appended.block(chunk);
    }
    both.write_all_at(&appended.bytes[skipped..], file.bytes.len() as u64)
        .unwrap();
    for (index, chunk) in program.unfinished().enumerate() {
        let mut slot = vec![0; SLOT_LEN];
        fill_slot(&mut slot, chunk);
        both.write_all_at(&slot, FileBuilder::slot_offset(extent, index) as u64)
            .unwrap();
    }

    for capture in &captures {
        let mut addresses = Vec::new();
        let damage = replay_between(capture, 0, cut, 0, &mut |chunk, ops| {
            addresses.extend(chunk.ops[ops].iter().map(|op| op.address));
        });
        assert_eq!(damage, []);
        assert!(addresses.into_iter().eq((0..300).map(address_of)));
    }
}

#[test]
fn file_truncated_after_opening_is_reported_as_damage() {
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
    let (events, damage) = replayed(&capture);
    assert_eq!(events.len(), chunks[0].n_events as usize);
    assert_eq!(damage.len(), chunks.len() - 1);
}
