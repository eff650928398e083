//! Measures the events per second that a tally processes, without reading a file: churn in a small heap, and a heap of
//! 3 million blocks. `cargo run --release -p heaptide-tally --example tally_rate`

use std::time::Instant;

use heaptide_capture::{Allocator, DecodedChunk, Frame, Node, Op, OpAction, TimeMark};
use heaptide_tally::Tally;

const OPS_PER_CHUNK: usize = 20_000;

fn main() {
    for (name, n_live, random_frees) in [
        ("churn among 1 000 blocks", 1_000, true),
        ("churn among 100 000 blocks", 100_000, true),
        (
            "churn among 3 000 000 blocks, oldest first",
            3_000_000,
            false,
        ),
        ("churn among 3 000 000 blocks, any of them", 3_000_000, true),
    ] {
        let mut tally = Tally::new(0);
        let mut live: Vec<u64> = Vec::new();
        let (mut state, mut oldest, mut next) = (1u64, 0, 0x5555_0000_0000u64);
        let mut n_ops = 0;
        let mut seconds = 0.0;
        for number in 0.. {
            if n_ops >= 20_000_000 {
                break;
            }
            let mut chunk = DecodedChunk::new();
            chunk.head.stream = 1;
            chunk.head.number = number;
            chunk.nodes = (0..200u32)
                .map(|n| Node {
                    parent: n.saturating_sub(1) / 3,
                    frame: Frame {
                        code: n,
                        instruction: 1,
                    },
                })
                .collect();
            chunk.times = vec![TimeMark {
                time: u64::from(number),
                first_op: 0,
            }];
            while chunk.ops.len() < OPS_PER_CHUNK {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let mut op = Op {
                    address: next,
                    size: 16 + (state >> 33) % 600,
                    node: ((state >> 48) % 200) as u32,
                    action: OpAction::Alloc,
                    allocator: Allocator::Malloc as u8,
                };
                if live.len() < n_live {
                    next += 64;
                    live.push(op.address);
                } else {
                    oldest = (oldest + 1) % live.len();
                    let at = if random_frees {
                        (state >> 20) as usize % live.len()
                    } else {
                        oldest
                    };
                    let address = live[at];
                    chunk.ops.push(Op {
                        address,
                        action: OpAction::Free,
                        size: 0,
                        ..op
                    });
                    op.address = address;
                }
                chunk.ops.push(op);
            }
            let start = Instant::now();
            tally.apply(&chunk, 0..chunk.ops.len());
            seconds += start.elapsed().as_secs_f64();
            n_ops += chunk.ops.len();
        }
        let each = tally.heap_bytes() as f64 / n_live as f64;
        let sums = tally.finish();
        println!(
            "{name}: {:.1} ns per event, {:.1} M events/s, {each:.0} bytes per live block, peak {}",
            seconds * 1e9 / n_ops as f64,
            n_ops as f64 / seconds / 1e6,
            sums.peak.bytes,
        );
    }
}
