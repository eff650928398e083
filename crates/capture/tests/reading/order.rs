//! Segments of several threads, ordered by their numbers.

use heaptide_capture::{Allocator, Capture, DamageCategory, OpAction};
use heaptide_tally::replay;

use crate::file::FileBuilder;
use crate::program::{Action, Program, SMALLEST_PAYLOAD, replayed};

fn alloc(address: u64) -> Action {
    Action::Alloc {
        address,
        size: 64,
        allocator: Allocator::Malloc,
    }
}

fn capture_of(program: Program) -> Capture {
    let (chunks, _) = program.finish();
    let mut file = FileBuilder::new();
    for chunk in &chunks {
        file.block(chunk);
    }
    Capture::from_bytes(file.bytes).unwrap()
}

#[test]
fn block_passed_between_threads_is_allocated_before_it_is_freed() {
    let mut program = Program::new(3, SMALLEST_PAYLOAD);
    // All threads use the same address: each frees the block of the previous one.
    for round in 0..300 {
        program.run(round % 3, alloc(0x5000));
        program.run((round + 1) % 3, Action::Free { address: 0x5000 });
    }
    let mut is_alive = false;
    let (events, _) = replayed(&capture_of(program));
    for op in &events {
        assert_eq!(op.action == OpAction::Alloc, !is_alive);
        is_alive = !is_alive;
    }
    assert_eq!(events.len(), 600);
}

#[test]
fn segment_that_fills_several_chunks_is_not_interrupted() {
    let mut program = Program::new(2, SMALLEST_PAYLOAD);
    program.run(0, alloc(0x10));
    program.run(1, alloc(0x20));
    for n in 0..500 {
        program.run(0, alloc(0x7000_0000 + n * 0x10_0000));
    }
    program.run(1, alloc(0x30));
    let capture = capture_of(program);
    assert!(capture.chunks.len() > 4);
    let mut pieces = Vec::new();
    replay(&capture, &mut |_| {}, &mut |chunk, ops| {
        pieces.push((chunk.head.stream, ops.len()));
    });
    let streams: Vec<u32> = pieces.iter().map(|(stream, _)| *stream).collect();
    let n_pieces = streams.len();
    assert_eq!(streams[..2], [1, 2]);
    assert!(streams[2..n_pieces - 1].iter().all(|stream| *stream == 1));
    assert_eq!(streams[n_pieces - 1], 2);
}

#[test]
fn thread_that_keeps_its_turn_is_replayed_in_one_piece_for_each_chunk() {
    let mut program = Program::new(1, SMALLEST_PAYLOAD);
    for n in 0..200 {
        program.run(0, alloc(0x1000 + n * 16));
    }
    let capture = capture_of(program);
    let mut n_pieces = 0;
    replay(&capture, &mut |_| {}, &mut |chunk, ops| {
        assert_eq!(ops, 0..chunk.ops.len());
        n_pieces += 1;
    });
    assert_eq!(n_pieces, capture.chunks.len());
}

#[test]
fn events_of_thousands_of_threads_are_replayed_in_order() {
    let n_threads = 3000;
    let mut program = Program::new(n_threads, SMALLEST_PAYLOAD);
    for round in 0..3 {
        for thread in 0..n_threads {
            program.run(thread, alloc((round * n_threads + thread) as u64 * 16));
        }
    }
    let (events, damage) = replayed(&capture_of(program));
    assert_eq!(damage, []);
    assert!(events.is_sorted_by_key(|op| op.address));
    assert_eq!(events.len(), 3 * n_threads);
}

#[test]
fn missing_chunk_is_reported_and_its_neighbours_are_replayed() {
    let mut program = Program::new(1, SMALLEST_PAYLOAD);
    for n in 0..2000 {
        program.run(0, alloc(n * 0x1_0000));
    }
    let (chunks, truth) = program.finish();
    let mut file = FileBuilder::new();
    for chunk in chunks
        .iter()
        .filter(|chunk| ![2, 3].contains(&chunk.head.number))
    {
        file.block(chunk);
    }
    let capture = Capture::from_bytes(file.bytes).unwrap();
    let categories: Vec<_> = capture
        .damage
        .iter()
        .map(|note| note.category.clone())
        .collect();
    assert_eq!(
        categories,
        [DamageCategory::Missing {
            stream: 1,
            first: 2,
            n_chunks: 2
        }]
    );
    let n_missing = chunks[2].n_events + chunks[3].n_events;
    let (events, damage) = replayed(&capture);
    assert_eq!(damage, []);
    assert_eq!(events.len(), truth.len() - n_missing as usize);
    assert_eq!(events.last(), truth.last());
}

#[test]
fn sink_that_panics_does_not_leave_the_replay_hanging() {
    let mut program = Program::new(2, SMALLEST_PAYLOAD);
    for n in 0..5000 {
        program.run(n as usize / 50 % 2, alloc(n * 0x1_0000));
    }
    let capture = capture_of(program);
    let result = std::panic::catch_unwind(|| {
        replay(&capture, &mut |_| {}, &mut |_, _| panic!("enough"));
    });
    assert!(result.is_err());
}
