//! Synthetic captures of threads that take turns: the order of events does not depend on how the chunks are decoded.

use super::*;
use crate::Tally;
use heaptide_capture::area::{BlockHead, ChunkHead};
use heaptide_capture::wire::Writer;
use heaptide_capture::{Allocator, Frame, Header, Packer, Tables};

const N_STREAMS: u64 = 5;
const N_CHUNKS: u64 = 4;
const SEGMENTS_PER_CHUNK: u64 = 300;
const N_OPS: u64 = N_STREAMS * N_CHUNKS * SEGMENTS_PER_CHUNK;

/// Threads that take turns after every event. Each event frees an address that equals the event's position in the order
/// of all events.
fn taking_turns() -> Capture {
    capture_of(4096, |tables, out, position| {
        tables.write_free(out, position);
        1
    })
}

/// The same threads; `turn_at` writes the records of a turn and returns the number of its events.
fn capture_of(
    payload_len: usize,
    turn_at: impl Fn(&mut Tables, &mut Writer, u64) -> u32,
) -> Capture {
    let mut bytes = Header::default().to_bytes();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let mut packer = Packer::new();
    for stream in 0..N_STREAMS {
        let position_of = |turn: u64| turn * N_STREAMS + stream;
        for number in 0..N_CHUNKS {
            let mut payload = vec![0; payload_len];
            let mut n_events = 0;
            let mut out = Writer::new(&mut payload);
            let mut tables = Tables::new();
            let first = number * SEGMENTS_PER_CHUNK;
            tables.reset(position_of(first), 0);
            for turn in first..first + SEGMENTS_PER_CHUNK {
                if turn > first {
                    tables.write_switch(&mut out, position_of(turn));
                }
                n_events += turn_at(&mut tables, &mut out, position_of(turn));
            }
            let len = out.len();
            let chunk = ChunkHead {
                stream: stream as u32 + 1,
                number: number as u32,
                sequence: position_of(first),
                ..ChunkHead::default()
            };
            let head = BlockHead {
                chunk,
                n_events,
                last_sequence: tables.sequence(),
                ..BlockHead::default()
            };
            bytes.extend_from_slice(packer.block(head, &payload[..len]));
        }
    }
    Capture::from_bytes(bytes).unwrap()
}

fn addresses(capture: &Capture, n_workers: usize, max_held_bytes: usize) -> Vec<u64> {
    let mut addresses = Vec::new();
    let mut n_done = 0;
    let damage = replay_with(
        capture,
        0..=u64::MAX,
        n_workers,
        max_held_bytes,
        &mut |n| n_done = n,
        &mut |chunk, ops| {
            addresses.extend(chunk.ops[ops].iter().map(|op| op.address));
            ControlFlow::Continue(())
        },
    );
    assert_eq!(damage, []);
    assert_eq!(n_done, N_OPS);
    addresses
}

#[test]
fn order_is_the_same_with_any_number_of_workers() {
    let capture = taking_turns();
    for n_workers in 0..4 {
        let addresses = addresses(&capture, n_workers, MAX_HELD_BYTES);
        assert!(addresses.into_iter().eq(0..N_OPS), "{n_workers} workers");
    }
}

#[test]
fn order_is_the_same_if_chunks_must_be_dropped_and_decoded_again() {
    let capture = taking_turns();
    for n_workers in [0, 2] {
        for max_held_bytes in [0, 20_000] {
            let addresses = addresses(&capture, n_workers, max_held_bytes);
            assert!(addresses.into_iter().eq(0..N_OPS));
        }
    }
}

/// Allocates on two of many stacks, and frees one of the blocks.
fn allocate(tables: &mut Tables, out: &mut Writer, position: u64) -> u32 {
    let frame = |code: u64| Frame {
        code: code as u32,
        instruction: 3,
    };
    tables.write_push(out, frame(position % 5));
    tables.write_alloc(
        out,
        Allocator::Malloc,
        100 + position % 3,
        position * 64 + 16,
    );
    tables.write_push(out, frame(position % 1000));
    tables.write_alloc(out, Allocator::Calloc, 40, position * 64 + 32);
    tables.write_free(out, position * 64 + 16);
    tables.write_pop(out, 2);
    3
}

#[test]
fn sums_are_the_same_if_chunks_are_decoded_part_by_part() {
    let capture = capture_of(16_384, allocate);
    let sums_with = |max_held_bytes| {
        let mut tally = Tally::new(0);
        let damage = replay_with(
            &capture,
            0..=u64::MAX,
            0,
            max_held_bytes,
            &mut |_| {},
            &mut |chunk, ops| {
                tally.apply(chunk, ops);
                ControlFlow::Continue(())
            },
        );
        assert_eq!(damage, []);
        tally.finish()
    };
    let (whole, parts) = (sums_with(usize::MAX), sums_with(0));
    assert_eq!(whole.n_events, 3 * N_OPS);
    assert_eq!(whole.sites.len(), parts.sites.len());
    assert!(whole.sites.iter().eq(parts.sites.iter()));
    assert!(whole.stacks.iter().eq(parts.stacks.iter()));
    assert_eq!(whole.peak, parts.peak);
}
