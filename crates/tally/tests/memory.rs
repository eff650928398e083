//! The memory of a replay does not grow with the number of events, and grows little with the number of threads. This is a
//! separate binary whose tests run one at a time, because it counts every byte that the process allocates.

use std::sync::{Mutex, PoisonError};

use heaptide_capture::area::{BlockHead, ChunkHead};
use heaptide_capture::event::MAX_RECORD_BYTES;
use heaptide_capture::wire::Writer;
use heaptide_capture::{Allocator, Capture, Damage, Frame, Header, Packer, Tables};
use heaptide_tally::{replay, replay_between};
use heaptide_testkit::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const PAYLOAD_LEN: usize = 65_472;
const N_STREAMS: u32 = 3;
static ALONE: Mutex<()> = Mutex::new(());

/// Three threads that take turns, each with this many full chunks; each chunk has different stacks.
fn capture(n_chunks: u32) -> Capture {
    let mut bytes = Header::default().to_bytes();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let mut packer = Packer::new();
    let mut sequences = 1..;
    for number in 0..n_chunks {
        for stream in 1..=N_STREAMS {
            let sequence = sequences.next().unwrap_or(0);
            let mut payload = vec![0; PAYLOAD_LEN];
            let mut out = Writer::new(&mut payload);
            let mut tables = Tables::new();
            tables.reset(sequence, 0);
            let mut n_events = 0;
            while out.len() + 4 * MAX_RECORD_BYTES < PAYLOAD_LEN {
                let frame = Frame {
                    code: number,
                    instruction: n_events % 1000,
                };
                tables.write_push(&mut out, frame);
                tables.write_alloc(&mut out, Allocator::Malloc, 64, 0x1000);
                tables.write_pop(&mut out, 1);
                n_events += 1;
            }
            let len = out.len();
            let head = BlockHead {
                chunk: ChunkHead {
                    stream,
                    number,
                    sequence,
                    ..ChunkHead::default()
                },
                n_events,
                last_sequence: sequence,
                ..BlockHead::default()
            };
            bytes.extend_from_slice(packer.block(head, &payload[..len]));
        }
    }
    Capture::from_bytes(bytes).expect("just written")
}

/// Returns the peak of the bytes that a replay allocates, and the number of events it replays.
fn peak_of_replay(capture: &Capture) -> (usize, usize) {
    peak_of(|n_events| replay(capture, &mut |_| {}, &mut |_, ops| *n_events += ops.len()))
}

/// Does the same without threads that decode ahead, whose progress is random.
fn peak_of_replay_alone(capture: &Capture) -> (usize, usize) {
    peak_of(|n_events| {
        replay_between(capture, 0, u64::MAX, 0, &mut |_, ops| {
            *n_events += ops.len()
        })
    })
}

fn peak_of(replay: impl FnOnce(&mut usize) -> Vec<Damage>) -> (usize, usize) {
    ALLOCATOR.peak_of(|| {
        let mut n_events = 0;
        assert_eq!(replay(&mut n_events), []);
        n_events
    })
}

/// Threads that take turns after every few events: all are always in the middle of a chunk.
fn many_threads(n_streams: u32, n_chunks: u32) -> Capture {
    const PAYLOAD_LEN: usize = 131_008;
    let mut bytes = Header::default().to_bytes();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let mut packer = Packer::new();
    for stream in 1..=n_streams {
        let mut turns = 0..;
        for number in 0..n_chunks {
            let mut sequence =
                || turns.next().unwrap_or(0) * u64::from(n_streams) + u64::from(stream);
            let first = sequence();
            let mut payload = vec![0; PAYLOAD_LEN];
            let mut out = Writer::new(&mut payload);
            let mut tables = Tables::new();
            tables.reset(first, 0);
            let mut n_events = 0;
            while out.len() + 100 * MAX_RECORD_BYTES < PAYLOAD_LEN {
                for _ in 0..20 {
                    tables.write_alloc(&mut out, Allocator::Malloc, 64, 0x1000);
                    tables.write_free(&mut out, 0x1000);
                    n_events += 2;
                }
                tables.write_switch(&mut out, sequence());
            }
            let len = out.len();
            let head = BlockHead {
                chunk: ChunkHead {
                    stream,
                    number,
                    sequence: first,
                    ..ChunkHead::default()
                },
                n_events,
                last_sequence: tables.sequence(),
                ..BlockHead::default()
            };
            bytes.extend_from_slice(packer.block(head, &payload[..len]));
        }
    }
    Capture::from_bytes(bytes).expect("just written")
}

#[test]
fn dozens_of_threads_in_the_middle_of_chunks_take_little_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let capture = many_threads(64, 1);
    let (peak, n_events) = peak_of_replay(&capture);
    assert_eq!(n_events as u64, capture.n_events());
    assert!(peak < 32 << 20, "{peak} bytes for {n_events} events");
}

#[test]
fn memory_of_a_replay_does_not_grow_with_the_number_of_events() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let large = capture(250);
    let (small_peak, small_count) = peak_of_replay_alone(&capture(20));
    let (large_peak, large_count) = peak_of_replay_alone(&large);
    assert!(large_count > small_count * 10);
    // Each chunk takes a few bytes in the list of chunks to decode.
    assert!(
        large_peak < small_peak * 3 / 2,
        "{small_peak} bytes for {small_count} events, {large_peak} for {large_count}"
    );
    // At most four workers, and at most six chunks that are decoded or being decoded.
    let (peak, count) = peak_of_replay(&large);
    assert_eq!(count, large_count);
    assert!(
        peak < large_peak * 16,
        "{peak} bytes with threads, {large_peak} without"
    );
}
