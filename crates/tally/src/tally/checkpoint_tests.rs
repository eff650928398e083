//! Compares a tally that is written, read and continued with one that never stopped.

use super::tests::{chunk, step};
use super::*;
use proptest::prelude::*;

/// The events of three threads that take turns: one chunk per thread, and the runs in which they recorded.
struct Events {
    chunks: Vec<DecodedChunk>,
    runs: Vec<(usize, Range<usize>)>,
}

impl Events {
    /// `cuts` are numbers of events after which a run also ends.
    fn new(events: &[(u32, Op)], cuts: &[usize]) -> Events {
        let of_stream = |stream: u32| {
            let own = events.iter().filter(|(owner, _)| *owner == stream);
            own.map(|(_, op)| *op).collect()
        };
        let chunks = (1..4).map(|stream| chunk(stream, of_stream(stream)));
        let mut done = [0; 3];
        let mut runs: Vec<(usize, Range<usize>)> = Vec::new();
        for (at, (stream, _)) in events.iter().enumerate() {
            let thread = *stream as usize - 1;
            match runs.last_mut() {
                Some((owner, run)) if *owner == thread && !cuts.contains(&at) => run.end += 1,
                _ => runs.push((thread, done[thread]..done[thread] + 1)),
            }
            done[thread] += 1;
        }
        Events {
            chunks: chunks.collect(),
            runs,
        }
    }

    /// `between` may replace the tally after each run; it receives the number of events done.
    fn tally(&self, sample_bytes: u64, between: impl Fn(usize, Tally) -> Tally) -> Tally {
        let mut tally = Tally::new(sample_bytes);
        let mut n_done = 0;
        for (thread, run) in &self.runs {
            tally.apply(&self.chunks[*thread], run.clone());
            n_done += run.len();
            tally = between(n_done, tally);
        }
        tally
    }
}

fn assert_same(one: &Sums, other: &Sums) {
    assert!(one.stacks.iter().eq(other.stacks.iter()));
    // A checkpoint has no allocation times.
    let sites = |sums: &Sums| -> Vec<SiteSums> {
        let timeless = |site: &SiteSums| SiteSums {
            block_time: None,
            ..*site
        };
        sums.sites.iter().map(timeless).collect()
    };
    assert_eq!(sites(one), sites(other));
    assert_eq!(
        (one.total, one.live, one.peak, one.mapped_files),
        (other.total, other.live, other.peak, other.mapped_files)
    );
    assert_eq!(
        (one.peak_time, one.last_time),
        (other.peak_time, other.last_time)
    );
    assert_eq!(one.sizes, other.sizes);
    assert_eq!(one.heap, other.heap);
    let counts = |sums: &Sums| {
        (
            sums.n_events,
            sums.n_frees,
            sums.n_unknown_frees,
            sums.n_overlaps,
        )
    };
    assert_eq!(counts(one), counts(other));
    assert!(one.weighed_sizes().eq(other.weighed_sizes()));
}

/// The steps of the naive replay, with sizes and addresses at the limits.
fn any_events() -> impl Strategy<Value = Vec<(u32, Op)>> {
    let limit = prop_oneof![
        Just(1u64),
        Just((1 << 32) + 5),
        Just(u64::MAX - 1),
        any::<u64>()
    ];
    let wild = (1u32..4, 0u8..4, limit.clone(), limit, 0u32..5, 1u8..13).prop_map(
        |(stream, action, address, size, node, allocator)| {
            let action = [
                OpAction::Alloc,
                OpAction::Free,
                OpAction::FreeRange,
                OpAction::Unfree,
            ][action as usize];
            let op = Op {
                address,
                size,
                node,
                action,
                allocator,
            };
            vec![(stream, op)]
        },
    );
    let step = prop_oneof![12 => step(), 1 => wild];
    prop::collection::vec(step, 0..300).prop_map(|steps| steps.concat())
}

fn any_sample_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1000), Just(512 << 10)]
}

proptest! {
    #[test]
    fn tally_continued_from_its_bytes_equals_one_that_never_stopped(
        events in any_events(),
        cuts in prop::collection::vec(0..300usize, 0..8),
        sample_bytes in any_sample_bytes(),
    ) {
        let whole = Events::new(&events, &[]).tally(sample_bytes, |_, tally| tally);
        let continued = Events::new(&events, &cuts).tally(sample_bytes, |n_done, tally| {
            if !cuts.contains(&n_done) {
                return tally;
            }
            Tally::from_bytes(&tally.to_bytes(true)).expect("just written")
        });
        // First compares the bytes, which contain everything including live blocks, then all sums.
        prop_assert_eq!(continued.to_bytes(true), whole.to_bytes(true));
        assert_same(&continued.finish(), &whole.finish());
    }

    #[test]
    fn sums_without_blocks_are_the_sums_at_that_moment(events in any_events(), sample_bytes in any_sample_bytes()) {
        let tally = Events::new(&events, &[]).tally(sample_bytes, |_, tally| tally);
        let sums_alone = Tally::from_bytes(&tally.to_bytes(false)).expect("just written");
        assert_same(&sums_alone.finish(), &tally.finish());
    }

    #[test]
    fn changed_bytes_are_refused_or_read_without_panic(
        events in any_events(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let events = Events::new(&events, &[]);
        let mut bytes = events.tally(0, |_, tally| tally).to_bytes(true);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(mut tally) = Tally::from_bytes(&bytes) {
            for (thread, run) in &events.runs {
                tally.apply(&events.chunks[*thread], run.clone());
            }
            tally.to_bytes(true);
            tally.finish();
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 2..400)) {
        bytes[0] = 1;
        bytes[1] &= 1;
        if let Some(tally) = Tally::from_bytes(&bytes) {
            tally.finish();
        }
    }
}

fn op(action: OpAction, address: u64, size: u64, allocator: Allocator) -> Op {
    Op {
        address,
        size,
        node: 2,
        action,
        allocator: allocator as u8,
    }
}

fn tally_of(ops: Vec<Op>) -> (Tally, DecodedChunk) {
    let chunk = chunk(1, ops);
    (Tally::new(0), chunk)
}

#[test]
fn free_before_the_cut_can_be_undone_after_it() {
    for release in [
        op(OpAction::Free, 0x1000, 0, Allocator::Malloc),
        op(OpAction::FreeRange, 0x10_1000, 0x1000, Allocator::Mmap),
    ] {
        let (mut tally, chunk) = tally_of(vec![
            op(OpAction::Alloc, 0x1000, 0x3000, Allocator::Malloc),
            op(OpAction::Alloc, 0x10_0000, 0x3000, Allocator::Mmap),
            release,
            op(OpAction::Unfree, 0, 0, Allocator::Malloc),
            op(OpAction::Free, 0x1000, 0, Allocator::Malloc),
            op(OpAction::FreeRange, 0x10_0000, 0x2000, Allocator::Mmap),
        ]);
        tally.apply(&chunk, 0..3);
        let mut tally = Tally::from_bytes(&tally.to_bytes(true)).unwrap();
        tally.apply(&chunk, 3..6);
        let sums = tally.finish();
        assert_eq!((sums.live.bytes, sums.peak.bytes), (0x1000, 0x6000));
        assert_eq!((sums.n_frees, sums.n_unknown_frees), (2, 0));
    }
}

#[test]
fn truncated_bytes_are_refused() {
    let (mut tally, chunk) = tally_of(
        (1..200)
            .map(|n| op(OpAction::Alloc, n * 48, n * 100, Allocator::Malloc))
            .chain([op(OpAction::Free, 48, 0, Allocator::Malloc)])
            .collect(),
    );
    tally.apply(&chunk, 0..chunk.ops.len());
    let bytes = tally.to_bytes(true);
    assert!(Tally::from_bytes(&bytes).is_some());
    for len in 0..bytes.len() {
        assert!(
            Tally::from_bytes(&bytes[..len]).is_none(),
            "cut at {len} of {}",
            bytes.len()
        );
    }
}

#[test]
fn tally_of_another_version_is_refused() {
    let mut bytes = Tally::new(0).to_bytes(true);
    assert!(Tally::from_bytes(&bytes).is_some());
    bytes[0] += 1;
    assert!(Tally::from_bytes(&bytes).is_none());
}

#[test]
fn block_takes_at_most_six_bytes_in_a_checkpoint() {
    let n_blocks = 100_000;
    let blocks = |n: u64| {
        op(
            OpAction::Alloc,
            0x7f00_0000_0000 + n * 80,
            16 + n % 500,
            Allocator::Malloc,
        )
    };
    let (mut tally, chunk) = tally_of((0..n_blocks).map(blocks).collect());
    tally.apply(&chunk, 0..chunk.ops.len());
    let without = tally.to_bytes(false).len();
    let with = tally.to_bytes(true).len();
    assert!(
        with - without <= 6 * n_blocks as usize,
        "{} bytes",
        with - without
    );
    assert!(without < 20_000, "{without} bytes");
}
