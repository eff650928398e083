//! Measures the events per second that one core decodes: `cargo run --release -p heaptide-tally --example decode_rate`.
//!
//! The streams imitate programs: blocks that are freed and allocated again, stacks whose innermost frames change, and an
//! occasional time record. The best of many rounds is printed, because the machine is rarely idle.

use std::time::Instant;

use heaptide_capture::area::{BlockHead, ChunkHead};
use heaptide_capture::event::MAX_RECORD_BYTES;
use heaptide_capture::wire::Writer;
use heaptide_capture::{Allocator, Capture, DecodedChunk, Frame, Header, Packer, Tables};
use heaptide_tally::replay;

const PAYLOAD_LEN: usize = 65_536 - 64;
/// Too many for a branch predictor to learn.
const N_CHUNKS: u32 = 64;

/// A random number generator with a fixed seed, so that every run decodes the same bytes.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A payload and the number of its events.
type Chunk = (Vec<u8>, u32);

/// Fills chunks by calling `event`, which returns the number of events it wrote.
fn fill(mut event: impl FnMut(&mut Tables, &mut Writer) -> u32) -> Vec<Chunk> {
    let fill_one = |_| {
        let mut payload = vec![0; PAYLOAD_LEN];
        let mut out = Writer::new(&mut payload);
        let mut tables = Tables::new();
        let mut n_events = 0;
        while out.len() + 64 * MAX_RECORD_BYTES < PAYLOAD_LEN {
            n_events += event(&mut tables, &mut out);
        }
        let len = out.len();
        payload.truncate(len);
        (payload, n_events)
    };
    (0..N_CHUNKS).map(fill_one).collect()
}

/// One block, allocated and freed in a loop.
fn loop_stream() -> Vec<Chunk> {
    fill(|tables, out| {
        tables.write_alloc(out, Allocator::Malloc, 600, 0x5555_0000);
        tables.write_free(out, 0x5555_0000);
        2
    })
}

/// A program that repeats a few hundred steps, with an allocator that returns the block freed last, as in most captures.
fn job_stream() -> Vec<Chunk> {
    #[derive(Clone, Copy)]
    enum Step {
        Call(Frame),
        Return,
        Alloc(u64),
        Free(usize),
    }
    let mut dice = Dice(0x9876_5432_1fed_cba9);
    let mut steps = Vec::new();
    let (mut depth, mut n_alive) = (0, 0);
    for _ in 0..400 {
        steps.push(match dice.below(10) {
            0..2 if depth < 12 => {
                depth += 1;
                Step::Call(Frame {
                    code: dice.below(40) as u32,
                    instruction: dice.below(60) as u32,
                })
            }
            2..4 if depth > 0 => {
                depth -= 1;
                Step::Return
            }
            4..7 if n_alive > 0 => {
                n_alive -= 1;
                Step::Free(dice.below(3) as usize)
            }
            _ => {
                n_alive += 1;
                Step::Alloc(32 + dice.below(12) * 48)
            }
        });
    }
    steps.extend((0..depth).map(|_| Step::Return));
    steps.extend((0..n_alive).map(|_| Step::Free(0)));
    let mut free = vec![Vec::new(); 64];
    let mut alive: Vec<(u64, u64)> = Vec::new();
    let mut top = 0x5555_0000;
    let mut steps = steps.into_iter().cycle();
    fill(move |tables, out| {
        loop {
            match steps.next() {
                Some(Step::Call(frame)) => tables.write_push(out, frame),
                Some(Step::Return) => tables.write_pop(out, 1),
                Some(Step::Alloc(size)) => {
                    let address = free[size as usize / 16].pop().unwrap_or_else(|| {
                        top += size + 16;
                        top & !15
                    });
                    alive.push((address, size));
                    tables.write_alloc(out, Allocator::Malloc, size, address);
                    return 1;
                }
                Some(Step::Free(back)) => {
                    let at = alive.len().saturating_sub(1 + back);
                    let (address, size) = alive.remove(at);
                    free[size as usize / 16].push(address);
                    tables.write_free(out, address);
                    return 1;
                }
                None => return 0,
            }
        }
    })
}

/// Nothing repeats: blocks have many sizes, and the stack changes at random at every other event.
fn random_stream() -> Vec<Chunk> {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let mut alive = Vec::new();
    let mut depth = 0;
    let mut time = 0;
    fill(move |tables, out| {
        if dice.below(2) == 0 {
            let pops = dice.below(3).min(depth);
            if pops > 0 {
                tables.write_pop(out, pops as usize);
            }
            depth -= pops;
            for _ in 0..dice.below(3) {
                depth += 1;
                let frame = Frame {
                    code: (depth * 3 + dice.below(3)) as u32,
                    instruction: dice.below(4) as u32 * 6,
                };
                tables.write_push(out, frame);
            }
        }
        if dice.below(500) == 0 {
            time += 1;
            tables.write_time(out, time);
        }
        if alive.len() > 60 || (dice.below(2) == 0 && !alive.is_empty()) {
            let block = alive.swap_remove(dice.below(alive.len() as u64) as usize);
            tables.write_free(out, block);
        } else {
            let size = 16 + dice.below(24) * 40;
            let address = 0x5555_0000 + dice.below(400) * 0x400;
            tables.write_alloc(out, Allocator::Malloc, size, address);
            alive.push(address);
        }
        1
    })
}

fn measure(name: &str, chunks: &[Chunk]) {
    let n_events: u32 = chunks.iter().map(|(_, n_events)| n_events).sum();
    let raw_len: usize = chunks.iter().map(|(payload, _)| payload.len()).sum();
    let bytes = capture(chunks);
    let file_len = bytes.len();
    let capture = Capture::from_bytes(bytes).expect("just written");
    let mut chunk = DecodedChunk::new();
    let mut raw = Vec::new();
    let mut n_stacks = 0;
    // The best round of each chunk counts, because other programs also use the machine.
    let mut decoding = vec![f64::MAX; capture.chunks.len()];
    let mut unpacking = decoding.clone();
    let mut replaying = f64::MAX;
    for _ in 0..50 {
        for (index, reference) in capture.chunks.iter().enumerate() {
            let start = Instant::now();
            capture.read_chunk(reference, &mut raw).expect("intact");
            let middle = Instant::now();
            chunk.decode(&reference.head, &raw);
            let end = Instant::now();
            decoding[index] = decoding[index].min((end - middle).as_secs_f64());
            unpacking[index] = unpacking[index].min((middle - start).as_secs_f64());
            assert!(chunk.complete && chunk.ops.len() == reference.n_events as usize);
            n_stacks = chunk.nodes.len();
        }
        let start = Instant::now();
        let mut sum = 0u64;
        replay(&capture, &mut |_| {}, &mut |chunk, ops| {
            for op in &chunk.ops[ops] {
                sum = sum.wrapping_add(op.size);
            }
        });
        std::hint::black_box(sum);
        replaying = replaying.min(start.elapsed().as_secs_f64());
    }
    let (decoding, unpacking): (f64, f64) = (decoding.iter().sum(), unpacking.iter().sum());
    let rate = |seconds: f64| f64::from(n_events) / seconds / 1e6;
    println!(
        "{name:7} {:.2} bytes per event, {:.2} in the file, {n_stacks} stacks per chunk; M events/s: {:.0} decoded, \
         {:.0} with unpacking, {:.0} replayed on all cores",
        raw_len as f64 / f64::from(n_events),
        file_len as f64 / f64::from(n_events),
        rate(decoding),
        rate(decoding + unpacking),
        rate(replaying),
    );
}

/// The chunks as one thread's capture.
fn capture(chunks: &[Chunk]) -> Vec<u8> {
    let mut bytes = Header::default().to_bytes();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let mut packer = Packer::new();
    for (number, (payload, n_events)) in chunks.iter().enumerate() {
        let head = BlockHead {
            chunk: ChunkHead {
                stream: 1,
                number: number as u32,
                ..ChunkHead::default()
            },
            n_events: *n_events,
            ..BlockHead::default()
        };
        bytes.extend_from_slice(packer.block(head, payload));
    }
    bytes
}

fn main() {
    measure("loop", &loop_stream());
    measure("job", &job_stream());
    measure("random", &random_stream());
}
