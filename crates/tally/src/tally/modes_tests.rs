//! Sums of captures whose mode changed: with one tally, and with a tally that is written and read again after each step.

use super::tests::chunk;
use super::*;
use heaptide_capture::{Mode, ModeChange};

const MEAN: u64 = 512 << 10;

fn op(action: OpAction, address: u64, size: u64) -> Op {
    Op {
        address,
        size,
        node: 0,
        action,
        allocator: Allocator::Malloc as u8,
    }
}

fn sampled(sample_bytes: u64) -> Mode {
    Mode {
        sample_bytes,
        ..Mode::default()
    }
}

/// A tally to which chunks of one thread are applied in order; each chunk names its mode.
struct Steps {
    tally: Tally,
    n_chunks: u32,
}

impl Steps {
    fn new(first: Mode, later: &[Mode]) -> Steps {
        let mut tally = Tally::new(first.sample_bytes);
        let changes = (1..).zip(later).map(|(number, &mode)| ModeChange {
            number,
            time: 0,
            mode,
        });
        let changes: Vec<ModeChange> = changes.collect();
        tally.set_modes(first, &changes, Vec::new());
        Steps { tally, n_chunks: 0 }
    }

    fn apply(&mut self, mode: u32, ops: &[Op]) -> &mut Steps {
        let mut chunk = chunk(1, ops.to_vec());
        chunk.head.number = self.n_chunks;
        chunk.head.generation = mode;
        self.n_chunks += 1;
        self.tally.apply(&chunk, 0..ops.len());
        self
    }

    fn read_again(&mut self) -> &mut Steps {
        let bytes = self.tally.to_bytes(true);
        self.tally = Tally::from_bytes(&bytes).unwrap();
        self
    }
}

#[test]
fn block_counts_by_the_mode_of_its_allocation_even_if_it_is_freed_in_another() {
    for reads in [false, true] {
        let mut steps = Steps::new(Mode::default(), &[sampled(MEAN), Mode::default()]);
        let again = |steps: &mut Steps| {
            if reads {
                steps.read_again();
            }
        };
        steps.apply(
            0,
            &[
                op(OpAction::Alloc, 16, 600),
                op(OpAction::Alloc, 1600, 1000),
            ],
        );
        again(&mut steps);
        steps.apply(
            1,
            &[op(OpAction::Alloc, 3200, 64), op(OpAction::Free, 16, 0)],
        );
        again(&mut steps);
        let now = steps.tally.snapshot();
        assert_eq!(now.live.bytes, 1000 + MEAN + 32);
        assert_eq!(now.live.count, 1 + 8193);
        assert!(now.live.variance > 0.0);
        steps.apply(
            2,
            &[op(OpAction::Free, 3200, 0), op(OpAction::Alloc, 4800, 10)],
        );
        again(&mut steps);
        // A free in sampled mode of a block that was never recorded.
        steps.apply(1, &[op(OpAction::Free, 9999, 0)]);
        let sums = steps.tally.finish();
        assert_eq!((sums.live.bytes, sums.live.count), (1010, 2));
        assert_eq!(sums.live.variance, 0.0);
        assert_eq!(sums.total.bytes, 600 + 1000 + 10 + MEAN + 32);
        assert_eq!(sums.n_unknown_frees, 0);
        let weighed: f64 = sums.weighed_sizes().map(|(_, n)| n).sum();
        assert_eq!(weighed.round() as u64, 3 + 8193, "reads: {reads}");
    }
}

#[test]
fn exact_tally_that_learns_of_a_sampled_mode_later_keeps_its_sums() {
    let mut tally = Tally::new(0);
    let first = chunk(
        1,
        vec![op(OpAction::Alloc, 16, 600), op(OpAction::Alloc, 32, 7)],
    );
    tally.apply(&first, 0..2);
    let change = ModeChange {
        number: 1,
        time: 0,
        mode: sampled(MEAN),
    };
    tally.set_modes(Mode::default(), &[change], Vec::new());
    let mut second = chunk(
        1,
        vec![op(OpAction::Free, 16, 0), op(OpAction::Alloc, 48, 2 * MEAN)],
    );
    (second.head.number, second.head.generation) = (1, 1);
    tally.apply(&second, 0..2);
    let sums = tally.finish();
    let weight = 1.0 / (1.0 - f64::exp(-2.0));
    assert_eq!(
        sums.live.bytes,
        7 + (2.0 * MEAN as f64 * weight).round() as u64
    );
    assert_eq!(sums.live.count, 2);
}

#[test]
fn unknown_mode_of_a_chunk_counts_as_the_last_known_one() {
    let mut steps = Steps::new(Mode::default(), &[sampled(MEAN)]);
    steps.apply(u32::MAX, &[op(OpAction::Alloc, 16, 64)]);
    assert_eq!(steps.tally.snapshot().live.bytes, MEAN + 32);
}
