//! Compares a tally with a naive replay: a list of blocks with linear search.

use super::step::is_range;
use super::*;
use crate::Amount;
use heaptide_capture::{Frame, Node};
use proptest::prelude::*;

/// Node 0 is the empty stack; nodes 1 to 4 are `main`, `main > f`, `main > g` and `main > g > f`.
pub(super) fn nodes() -> Vec<Node> {
    let node = |parent, code| Node {
        parent,
        frame: Frame {
            code,
            instruction: 1,
        },
    };
    vec![
        Node::default(),
        node(0, 1),
        node(1, 2),
        node(1, 3),
        node(3, 2),
    ]
}

pub(super) fn chunk(stream: u32, ops: Vec<Op>) -> DecodedChunk {
    let marks = (0..ops.len() as u32).step_by(5);
    let mark = |first_op: u32| TimeMark {
        time: u64::from(first_op / 5) * 3,
        first_op,
    };
    let mut chunk = DecodedChunk::new();
    chunk.head.stream = stream;
    chunk.nodes = nodes();
    chunk.times = std::iter::once(mark(0))
        .chain(marks.skip(1).map(mark))
        .collect();
    chunk.ops = ops;
    chunk
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct NaiveBlock {
    /// Pieces of one mapping share a number.
    pub number: usize,
    pub start: u64,
    pub length: u64,
    pub is_range: bool,
    pub is_file: bool,
    pub site: (u32, u32, u8),
    /// Time of its allocation.
    pub born: u64,
}

#[derive(Default)]
pub(super) struct Naive {
    pub blocks: Vec<NaiveBlock>,
    pub time: u64,
    pub n_blocks: usize,
    /// The last free of each stream.
    pub previous: Vec<(u32, Vec<NaiveBlock>)>,
    pub peak: u64,
    peak_blocks: Vec<NaiveBlock>,
    total: (u64, u64),
    n_unknown: u64,
    n_overlaps: u64,
}

pub(super) fn bytes(blocks: &[NaiveBlock]) -> u64 {
    let heap = blocks.iter().filter(|block| !block.is_file);
    heap.map(|block| block.length).sum()
}

fn count(blocks: &[NaiveBlock]) -> u64 {
    let heap = blocks.iter().filter(|block| !block.is_file);
    let numbers: std::collections::HashSet<usize> = heap.map(|block| block.number).collect();
    numbers.len() as u64
}

impl Naive {
    /// Cuts a range out of the mappings; returns the pieces.
    fn cut(&mut self, start: u64, length: u64) -> Vec<NaiveBlock> {
        let end = start + length;
        let (mut kept, mut cut) = (Vec::new(), Vec::new());
        for block in self.blocks.drain(..) {
            let block_end = block.start + block.length;
            let (from, to) = (block.start.max(start), block_end.min(end));
            if !block.is_range || from >= to {
                kept.push(block);
                continue;
            }
            for (a, b, is_cut) in [
                (block.start, from, false),
                (from, to, true),
                (to, block_end, false),
            ] {
                let piece = NaiveBlock {
                    start: a,
                    length: b - a,
                    ..block.clone()
                };
                if a < b {
                    if is_cut { &mut cut } else { &mut kept }.push(piece);
                }
            }
        }
        self.blocks = kept;
        cut
    }

    fn take(&mut self, address: u64) -> Vec<NaiveBlock> {
        let matches = |block: &NaiveBlock| !block.is_range && block.start == address;
        let taken = self.blocks.iter().filter(|b| matches(b)).cloned().collect();
        self.blocks.retain(|block| !matches(block));
        taken
    }

    pub fn apply(&mut self, stream: u32, op: &Op) {
        if bytes(&self.blocks) > self.peak {
            self.peak = bytes(&self.blocks);
            self.peak_blocks = self.blocks.clone();
        }
        match op.action {
            OpAction::Alloc => {
                self.total.0 += op.size;
                self.total.1 += 1;
                self.n_blocks += 1;
                let is_range = is_range(op.allocator);
                let released = self.previous.iter().find(|(owner, _)| *owner == stream);
                let was_file = released.is_some_and(|(_, gone)| gone.iter().any(|b| b.is_file));
                // A resized or moved file mapping is still a file mapping.
                let allocator = match op.allocator == Allocator::Mremap as u8 && was_file {
                    true => Allocator::MmapFile as u8,
                    false => op.allocator,
                };
                if is_range {
                    self.cut(op.address, op.size);
                } else {
                    self.n_overlaps += self.take(op.address).len() as u64;
                }
                self.blocks.push(NaiveBlock {
                    number: self.n_blocks,
                    start: op.address,
                    length: op.size,
                    is_range,
                    is_file: allocator == Allocator::MmapFile as u8,
                    site: (stream, op.node, allocator),
                    born: self.time,
                });
            }
            OpAction::Free | OpAction::FreeRange => {
                let gone = match op.action {
                    OpAction::Free => self.take(op.address),
                    _ => self.cut(op.address, op.size),
                };
                self.n_unknown += u64::from(gone.is_empty());
                self.previous.retain(|(owner, _)| *owner != stream);
                self.previous.push((stream, gone));
            }
            OpAction::JobEnd => {}
            OpAction::Unfree => {
                if let Some(at) = self.previous.iter().position(|(owner, _)| *owner == stream) {
                    let (_, back) = self.previous.remove(at);
                    self.blocks.extend(back);
                }
            }
        }
    }
}

/// An operation on few addresses, so that blocks are freed, reused and cut. An unfree only follows a free of
/// the same thread directly: the allocator refuses before another thread can get the memory.
pub(super) fn step() -> impl Strategy<Value = Vec<(u32, Op)>> {
    let block = (0u64..24).prop_map(|n| 0x1_0000 + n * 64);
    let page = (0u64..12).prop_map(|n| 0x100_0000 + n * 4096);
    let op = move |action, address, size, node, allocator: u8| Op {
        address,
        size,
        node,
        action,
        allocator,
    };
    let malloc = (block.clone(), 1u64..5_000, 0u32..5, 1u8..10)
        .prop_map(move |(a, s, n, k)| op(OpAction::Alloc, a, s, n, k));
    let mmap = (page.clone(), 1u64..5, 0u32..5, 10u8..13)
        .prop_map(move |(a, s, n, k)| op(OpAction::Alloc, a, s * 4096, n, k));
    let free = block.prop_map(move |a| op(OpAction::Free, a, 0, 0, 0));
    let munmap = (page, 1u64..5).prop_map(move |(a, s)| op(OpAction::FreeRange, a, s * 4096, 0, 0));
    let release = prop_oneof![3 => free, 1 => munmap];
    let refused = release
        .clone()
        .prop_map(move |release| vec![release, op(OpAction::Unfree, 0, 0, 0, 0)]);
    let any = prop_oneof![
        6 => malloc.prop_map(|op| vec![op]),
        2 => mmap.prop_map(|op| vec![op]),
        5 => release.prop_map(|op| vec![op]),
        1 => refused,
    ];
    (1u32..4, any).prop_map(|(stream, ops)| ops.into_iter().map(|op| (stream, op)).collect())
}

proptest! {
    #[test]
    fn peak_live_and_totals_equal_a_naive_replay(steps in prop::collection::vec(step(), 0..300)) {
        let events: Vec<(u32, Op)> = steps.concat();
        let mut naive = Naive::default();
        for (stream, op) in &events {
            naive.apply(*stream, op);
        }
        naive.apply(9, &Op { action: OpAction::Unfree, ..Op::default() });

        // Each thread's events are one chunk, and are applied in runs as they alternate.
        let of_stream = |stream: u32| -> Vec<Op> {
            let own = events.iter().filter(|(owner, _)| *owner == stream);
            own.map(|(_, op)| *op).collect()
        };
        let chunks: Vec<DecodedChunk> = (1..4).map(|stream| chunk(stream, of_stream(stream))).collect();
        let mut done = [0usize; 4];
        let mut tally = Tally::new(0);
        for run in events.chunk_by(|a, b| a.0 == b.0) {
            let stream = run[0].0 as usize;
            let from = done[stream];
            done[stream] += run.len();
            tally.apply(&chunks[stream - 1], from..done[stream]);
        }
        let sums = tally.finish();

        prop_assert_eq!((sums.total.bytes, sums.total.count), naive.total);
        prop_assert_eq!(sums.live.bytes, bytes(&naive.blocks));
        prop_assert_eq!(sums.live.count, count(&naive.blocks));
        prop_assert_eq!(sums.peak.bytes, naive.peak);
        prop_assert_eq!(sums.peak.count, count(&naive.peak_blocks));
        prop_assert_eq!(sums.n_overlaps, naive.n_overlaps);
        prop_assert_eq!(sums.n_unknown_frees, naive.n_unknown);
        prop_assert_eq!(sums.heap.highest.iter().copied().max().unwrap_or(0), naive.peak);
        let of_size: u64 = sums.sizes.iter().map(|&(size, n)| size * n).sum();
        prop_assert_eq!(of_size, naive.total.0);

        // Also compares every site's share of the peak and of the live blocks. Nodes 0 to 4 are five different stacks.
        let node_stack: Vec<StackId> = {
            let mut stacks = sums.stacks;
            let mut ids: Vec<StackId> = vec![StackId::EMPTY];
            for node in &nodes()[1..] {
                let id = stacks.intern(ids[node.parent as usize], node.frame);
                ids.push(id);
            }
            ids
        };
        for site in &sums.sites {
            let matches = |block: &&NaiveBlock| {
                let (stream, node, allocator) = block.site;
                stream == site.stream && allocator == site.allocator as u8 && node_stack[node as usize] == site.stack
            };
            let heap = |block: &&NaiveBlock| !block.is_file;
            let sum = |blocks: &[NaiveBlock]| blocks.iter().filter(heap).filter(matches).map(|b| b.length).sum::<u64>();
            prop_assert_eq!(site.live.bytes, sum(&naive.blocks));
            prop_assert_eq!(site.peak.bytes, sum(&naive.peak_blocks));
        }
    }
}

fn op(action: OpAction, address: u64, size: u64) -> Op {
    Op {
        address,
        size,
        node: 2,
        action,
        allocator: Allocator::Malloc as u8,
    }
}

#[test]
fn time_of_the_peak_is_that_of_its_last_allocation() {
    // A mark every five operations, three units apart.
    let mut ops: Vec<Op> = (1..=12).map(|n| op(OpAction::Alloc, n * 16, 10)).collect();
    ops.push(op(OpAction::Free, 16, 0));
    ops.extend((1..=8).map(|n| op(OpAction::Free, (n + 1) * 16, 0)));
    let mut tally = Tally::new(0);
    let chunk = chunk(1, ops);
    tally.apply(&chunk, 0..chunk.ops.len());
    let sums = tally.finish();
    assert_eq!(
        (sums.peak.bytes, sums.peak.count, sums.peak_time),
        (120, 12, 6)
    );
    assert_eq!(sums.last_time, 12);
}

#[test]
fn sampled_mapping_freed_in_parts_leaves_no_remainder() {
    let mut ops = vec![
        Op {
            allocator: Allocator::Mmap as u8,
            ..op(OpAction::Alloc, 0x1000, 0x5000)
        },
        op(OpAction::FreeRange, 0x2000, 0x1000),
        op(OpAction::FreeRange, 0x1000, 0x1000),
        op(OpAction::FreeRange, 0x3000, 0x3000),
    ];
    ops.push(op(OpAction::Alloc, 0x9000, 64));
    ops.push(op(OpAction::Free, 0x9000, 0));
    let mut tally = Tally::new(512 << 10);
    let chunk = chunk(1, ops);
    tally.apply(&chunk, 0..chunk.ops.len());
    let sums = tally.finish();
    assert_eq!(sums.live, Amount::default());
    assert!(sums.peak.bytes >= 512 << 10);
}

#[test]
fn impossible_operations_do_not_panic() {
    let mut ops = Vec::new();
    for action in [
        OpAction::Alloc,
        OpAction::Free,
        OpAction::FreeRange,
        OpAction::Unfree,
    ] {
        for address in [0, 1, u64::MAX] {
            for size in [0, u64::MAX] {
                for allocator in [0, Allocator::Malloc as u8, Allocator::Mmap as u8, 255] {
                    ops.push(Op {
                        address,
                        size,
                        node: 77,
                        action,
                        allocator,
                    });
                }
            }
        }
    }
    for sample_bytes in [0, 1, u64::MAX] {
        let mut tally = Tally::new(sample_bytes);
        let mut chunk = chunk(u32::MAX, ops.clone());
        chunk.times.push(TimeMark {
            time: u64::MAX,
            first_op: 0,
        });
        tally.apply(&chunk, 0..chunk.ops.len());
        tally.apply(&chunk, 5..usize::MAX);
        tally.finish();
    }
}
