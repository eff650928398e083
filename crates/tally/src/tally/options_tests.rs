//! Compares intervals, lifetimes and temporary blocks with a naive replay that keeps every state of the heap.

use std::collections::HashSet;

use super::tests::{Naive, NaiveBlock, bytes, chunk, step};
use super::*;
use crate::Lifetime;
use proptest::prelude::*;

/// All events with their times. A thread's clock advances every five of its events; times of all threads ascend.
fn timed(events: &[(u32, Op)]) -> Vec<u64> {
    let mut n_seen = [0u64; 4];
    let mut now = 0;
    let time = |(stream, _): &(u32, Op)| {
        let n = &mut n_seen[*stream as usize];
        now = now.max(*n / 5 * 3);
        *n += 1;
        now
    };
    events.iter().map(time).collect()
}

fn tally(events: &[(u32, Op)], options: TallyOptions) -> Sums {
    let of_stream = |stream: u32| -> Vec<Op> {
        let own = events.iter().filter(|(owner, _)| *owner == stream);
        own.map(|(_, op)| *op).collect()
    };
    let chunks: Vec<DecodedChunk> = (1..4)
        .map(|stream| chunk(stream, of_stream(stream)))
        .collect();
    let mut done = [0usize; 4];
    let mut tally = Tally::new(0);
    tally.configure(options);
    for run in events.chunk_by(|a, b| a.0 == b.0) {
        let stream = run[0].0 as usize;
        let from = done[stream];
        done[stream] += run.len();
        tally.apply(&chunks[stream - 1], from..done[stream]);
    }
    tally.finish()
}

/// The results of the naive replay: states at the edges, and sums between them.
struct NaiveSums {
    /// Live blocks at each edge.
    states: Vec<Vec<NaiveBlock>>,
    /// Time and size of every allocation within the edges.
    allocated: Vec<(u64, u64)>,
    temporary: (u64, u64),
    block_time: u64,
    peak: u64,
    live: u64,
}

fn naive_sums(events: &[(u32, Op)], edges: &[u64], threshold: usize) -> NaiveSums {
    let (first, last) = (edges[0], edges[edges.len() - 1]);
    let mut naive = Naive::default();
    let mut naive_sums = NaiveSums {
        states: Vec::new(),
        allocated: Vec::new(),
        temporary: (0, 0),
        block_time: 0,
        peak: 0,
        live: 0,
    };
    // Nothing is alive at the very beginning.
    naive_sums.states.extend((first == 0).then(Vec::new));
    // For each stream: number, site and size of the blocks it allocated, oldest first.
    let mut recent: Vec<Vec<(usize, u64, u64)>> = vec![Vec::new(); 4];
    // The last free of each stream, to undo it.
    let mut counted = [None; 4];
    let inside = |time: u64| first <= time && time < last;
    for ((stream, op), time) in events.iter().zip(timed(events)) {
        let is_over = time >= last;
        let time = time.min(last);
        let numbers: HashSet<usize> = {
            let born = naive.blocks.iter().filter(|block| inside(block.born));
            born.map(|block| block.number).collect()
        };
        naive_sums.block_time += (time - naive.time.max(first).min(time)) * numbers.len() as u64;
        // Blocks live when counting begins are part of the peak, even if no event happens before counting ends.
        if naive.time < first && first <= time {
            naive_sums.peak = bytes(&naive.blocks);
        }
        if is_over {
            break;
        }
        for _ in edges
            .iter()
            .filter(|&&edge| naive.time < edge && edge <= time)
        {
            naive_sums.states.push(naive.blocks.clone());
        }
        if inside(time) {
            naive_sums.peak = naive_sums.peak.max(bytes(&naive.blocks));
        }
        naive.time = time;
        naive.apply(*stream, op);
        if inside(time) {
            naive_sums.peak = naive_sums.peak.max(bytes(&naive.blocks));
        }
        let thread = *stream as usize;
        match op.action {
            OpAction::Alloc => {
                recent[thread].push((naive.n_blocks, op.address, op.size));
                if inside(time) {
                    naive_sums.allocated.push((time, op.size));
                }
            }
            OpAction::JobEnd => {}
            OpAction::Unfree => {
                if let Some(size) = counted[thread].take() {
                    naive_sums.temporary.0 -= size;
                    naive_sums.temporary.1 -= 1;
                }
            }
            OpAction::Free | OpAction::FreeRange => {
                let gone = naive.previous.iter().find(|(owner, _)| owner == stream);
                let gone = gone.map_or(&[][..], |(_, gone)| gone);
                let last_few = recent[thread].iter().rev().take(threshold + 1);
                counted[thread] = match gone {
                    [block] if inside(block.born) => {
                        let whole = (block.number, block.start, block.length);
                        last_few
                            .into_iter()
                            .any(|it| *it == whole)
                            .then_some(whole.2)
                    }
                    _ => None,
                };
                if let Some(size) = counted[thread] {
                    naive_sums.temporary.0 += size;
                    naive_sums.temporary.1 += 1;
                }
            }
        }
    }
    // At the edges after the last event, the state is the final one.
    naive_sums.states.resize(edges.len(), naive.blocks.clone());
    let heap = naive.blocks.iter().filter(|block| !block.is_file);
    naive_sums.live = heap
        .filter(|block| inside(block.born))
        .map(|block| block.length)
        .sum();
    naive_sums
}

/// Any ascending edges, also at the times of events: sums must be exact at each of them.
fn edges() -> impl Strategy<Value = Vec<u64>> {
    let steps = prop::collection::vec(1u64..30, 1..9);
    (0u64..20, steps, any::<bool>()).prop_map(|(first, steps, is_open)| {
        let mut edges = vec![first];
        for step in steps {
            edges.push(edges[edges.len() - 1] + step);
        }
        if is_open {
            edges[0] = 0;
            edges.push(u64::MAX);
        }
        edges
    })
}

proptest! {
    #[test]
    fn intervals_lifetimes_and_temporary_blocks_equal_a_naive_replay(
        steps in prop::collection::vec(step(), 0..200),
        edges in edges(),
        threshold in 0usize..4,
        n_halvings in 0usize..3,
    ) {
        let events: Vec<(u32, Op)> = steps.concat();
        let naive_sums = naive_sums(&events, &edges, threshold);
        let options = TallyOptions { edges: edges.clone(), temporary: Some(threshold as u32), ..TallyOptions::default() };
        let sums = tally(&events, options);
        prop_assert_eq!(sums.total.count, naive_sums.allocated.len() as u64);
        prop_assert_eq!(sums.total.bytes, naive_sums.allocated.iter().map(|it| it.1).sum::<u64>());
        prop_assert_eq!(sums.peak.bytes, naive_sums.peak);
        prop_assert_eq!(sums.live.bytes, naive_sums.live);
        prop_assert_eq!((sums.temporary.bytes, sums.temporary.count), naive_sums.temporary);
        let of_sites: u64 = sums.sites.iter().filter_map(|site| site.block_time).sum();
        prop_assert_eq!(of_sites, naive_sums.block_time);

        let mut lives = sums.lives;
        for _ in 0..n_halvings {
            lives.halve();
        }
        let index_of = |edge: u64| edges.iter().position(|&known| known == edge).unwrap_or(0);
        for (a, &from) in lives.edges.iter().enumerate() {
            for (b, &to) in lives.edges.iter().enumerate().skip(a + 1) {
                let born = |life: &&Lifetime| a <= usize::from(life.birth) && usize::from(life.birth) < b;
                let sum = |lives: Vec<&Lifetime>| lives.iter().map(|life| life.bytes).sum::<i64>() as u64;
                let allocated = sum(lives.entries.iter().filter(born).collect());
                let within = naive_sums.allocated.iter().filter(|(time, _)| (from..to).contains(time));
                prop_assert_eq!(allocated, within.map(|it| it.1).sum::<u64>());
                let alive = lives.entries.iter().filter(born).filter(|life| usize::from(life.death) >= b);
                let state = naive_sums.states[index_of(to)].iter().filter(|block| !block.is_file);
                let expected: u64 = state.filter(|block| (from..to).contains(&block.born)).map(|block| block.length).sum();
                prop_assert_eq!(sum(alive.collect()), expected, "alive at {} since {}", to, from);
            }
        }
    }

    #[test]
    fn options_do_not_change_sums(steps in prop::collection::vec(step(), 0..200), width in 1u64..40) {
        let events: Vec<(u32, Op)> = steps.concat();
        let plain = tally(&events, TallyOptions::default());
        let edges = (0..9).map(|n| n * width).chain([u64::MAX]).collect();
        let with_options = tally(&events, TallyOptions { edges, temporary: Some(1), ..TallyOptions::default() });
        prop_assert_eq!(plain.peak, with_options.peak);
        prop_assert_eq!(plain.peak_time, with_options.peak_time);
        let same = plain.sites.iter().zip(&with_options.sites);
        for (one, other) in same {
            prop_assert_eq!(SiteSums { temporary: other.temporary, ..*one }, *other);
        }
        prop_assert_eq!(plain.sites.len(), with_options.sites.len());
        prop_assert_eq!(plain.heap, with_options.heap);
    }

    #[test]
    fn heap_sizes_are_the_same_without_stacks(steps in prop::collection::vec(step(), 0..200)) {
        let events: Vec<(u32, Op)> = steps.concat();
        let plain = tally(&events, TallyOptions::default());
        let flat = tally(&events, TallyOptions { stacks: StackDetail::Nothing, ..TallyOptions::default() });
        prop_assert_eq!((plain.peak, plain.peak_time), (flat.peak, flat.peak_time));
        prop_assert_eq!((plain.live, plain.total), (flat.live, flat.total));
        prop_assert_eq!(plain.heap, flat.heap);
        prop_assert_eq!(flat.stacks.n_stacks(), 1);
    }
}

#[test]
fn site_with_blocks_in_thousands_of_bins_takes_less_than_a_mebibyte() {
    let op = |action, address| Op {
        address,
        size: 64,
        node: 2,
        action,
        allocator: Allocator::Malloc as u8,
    };
    // One site allocates and frees a block in each of two thousand bins.
    let mut tally = Tally::new(0);
    tally.configure(TallyOptions {
        edges: (0..=2_000).map(|n| n * 3).collect(),
        ..TallyOptions::default()
    });
    let pairs = (0..5_000).flat_map(|_| [op(OpAction::Alloc, 0x1000), op(OpAction::Free, 0x1000)]);
    let chunk = chunk(1, pairs.collect());
    tally.apply(&chunk, 0..chunk.ops.len());
    assert!(tally.sites.heap_bytes() < 1 << 20);
    // All blocks of the earlier bins were freed, so later bins reused the numbers of their cohorts.
    assert!(tally.sites.len() <= 4, "{} numbers", tally.sites.len());
    let sums = tally.finish();
    assert_eq!(sums.total.count, 5_000);
    assert_eq!(sums.sites.len(), 1);
}
