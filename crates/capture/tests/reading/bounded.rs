//! Bounded captures: at any moment, also while events are removed, their sums equal those of an unbounded capture.

use std::ops::Range;

use heaptide_capture::area::{BlockHead, CHECKPOINT_STREAM, ChunkHead};
use heaptide_capture::read::MAX_CHECKPOINT_LEN;
use heaptide_capture::{Allocator, Capture, DamageCategory};
use heaptide_tally::Tally;
use heaptide_tally::replay;
use heaptide_tally::replay_between;
use proptest::prelude::*;

use crate::file::{FileBuilder, header};
use crate::program::{Action, Chunk, Program, ReplayedOp, SMALLEST_PAYLOAD, any_action, replayed};

/// Small, so that checkpoints have several pieces.
const PIECE_LEN: usize = 200;

/// A program that keeps its capture small.
struct Bounded {
    program: Program,
    tally: Tally,
    cut: u64,
    /// Number of operations before the cut.
    n_before: usize,
    checkpoints: Vec<Vec<Chunk>>,
}

impl Bounded {
    fn new(n_threads: usize) -> Bounded {
        Bounded {
            program: Program::new(n_threads, SMALLEST_PAYLOAD),
            tally: Tally::new(0),
            cut: 0,
            n_before: 0,
            checkpoints: Vec::new(),
        }
    }

    /// Returns the file without the full chunks that end before `cut`.
    fn file(&self, checkpoints: &[Vec<Chunk>], cut: u64) -> FileBuilder {
        let mut header = header();
        header.mode.aggregate = true;
        let mut file = FileBuilder::with_header(&header);
        let slots: Vec<_> = self.program.unfinished().map(Some).collect();
        file.extent(&slots);
        for chunk in self.full_chunks().filter(|chunk| chunk.last_sequence > cut) {
            file.block(chunk);
        }
        for piece in checkpoints.iter().flatten() {
            file.block(piece);
        }
        file
    }

    fn full_chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.program.chunks.iter()
    }

    /// Returns the file without older checkpoints and without the events that the newest one replaces.
    fn smallest_file(&self) -> FileBuilder {
        let newest = self.checkpoints.len().saturating_sub(1);
        self.file(&self.checkpoints[newest..], self.cut)
    }

    /// Reads the events since the last checkpoint back from the file, as the agent does, and writes the next one.
    fn make_checkpoint(&mut self) {
        let cut = self.program.cut();
        let capture = Capture::from_bytes(self.smallest_file().bytes).unwrap();
        let damage = replay_between(&capture, self.cut, cut, 0, &mut |chunk, ops| {
            self.tally.apply(chunk, ops);
        });
        assert_eq!(damage, []);
        self.cut = cut;
        self.n_before = self.program.truth.len();
        let generation = self.checkpoints.len() as u32 + 1;
        self.checkpoints
            .push(pieces(&self.tally.to_bytes(true), cut, generation));
    }

    /// Returns the sums after all events, from a capture in which nothing was removed.
    fn expected(&self) -> Vec<u8> {
        let capture = Capture::from_bytes(self.file(&[], 0).bytes).unwrap();
        assert!(capture.checkpoint.is_none());
        final_state(&capture)
    }
}

fn pieces(bytes: &[u8], cut: u64, generation: u32) -> Vec<Chunk> {
    let pieces = bytes.chunks(PIECE_LEN);
    let n_pieces = pieces.len() as u32;
    let piece = |(number, piece): (u32, &[u8])| Chunk {
        head: ChunkHead {
            stream: CHECKPOINT_STREAM,
            number,
            sequence: cut,
            time: 77,
            generation,
        },
        payload: piece.to_vec(),
        n_events: n_pieces,
        last_sequence: cut,
    };
    (0..).zip(pieces).map(piece).collect()
}

/// Returns all sums of a capture, live blocks included, as bytes: equal bytes are equal sums.
fn final_state(capture: &Capture) -> Vec<u8> {
    assert_eq!(capture.damage, []);
    let mut tally = Tally::for_capture(capture).unwrap();
    let damage = replay(capture, &mut |_| {}, &mut |chunk, ops| {
        tally.apply(chunk, ops);
    });
    assert_eq!(damage, []);
    tally.to_bytes(true)
}

fn alloc(n: u64) -> Action {
    Action::Alloc {
        address: 0x7000_0000 + n * 0x1_0000,
        size: 10 + n,
        allocator: Allocator::Malloc,
    }
}

/// Two threads that take turns, and a checkpoint after each round of events but the last.
fn rounds(rounds: &[Range<u64>]) -> Bounded {
    let mut bounded = Bounded::new(2);
    for (index, round) in rounds.iter().enumerate() {
        if index > 0 {
            bounded.make_checkpoint();
        }
        for n in round.clone() {
            bounded.program.run(n as usize / 20 % 2, alloc(n));
        }
    }
    bounded
}

/// Turns of four threads: a thread, its actions, and whether a checkpoint follows.
fn any_turns() -> impl Strategy<Value = Vec<(usize, Vec<Action>, bool)>> {
    let actions = prop::collection::vec(any_action(), 1..20);
    let turn = (0..4usize, actions, prop::bool::weighted(0.15));
    prop::collection::vec(turn, 1..30)
}

fn bounded_of(turns: Vec<(usize, Vec<Action>, bool)>) -> Bounded {
    let mut bounded = Bounded::new(4);
    for (thread, actions, checkpoint_follows) in turns {
        for action in actions {
            bounded.program.run(thread, action);
        }
        if checkpoint_follows {
            bounded.make_checkpoint();
        }
    }
    bounded
}

proptest! {
    #[test]
    fn sums_of_a_bounded_capture_equal_those_of_an_unbounded_one(turns in any_turns()) {
        let bounded = bounded_of(turns);
        let capture = Capture::from_bytes(bounded.smallest_file().bytes).unwrap();
        let newest = bounded.checkpoints.len() as u32;
        let checkpoint = capture.checkpoint.as_ref();
        prop_assert_eq!(checkpoint.map_or(0, |one| one.generation), newest);
        prop_assert_eq!(checkpoint.map_or(0, |one| one.cut), bounded.cut);
        prop_assert_eq!(final_state(&capture), bounded.expected());
        let (events, _) = replayed(&capture);
        prop_assert_eq!(&events[..], &bounded.program.truth[bounded.n_before..]);
    }

    #[test]
    fn events_before_a_checkpoint_count_once_even_if_they_are_still_in_the_file(
        turns in any_turns(),
        removed in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let bounded = bounded_of(turns);
        // Killed while removing: some of the events and of the older checkpoints are gone.
        let mut file = bounded.smallest_file();
        let mut is_removed = removed.iter().cycle();
        let (older, _) = bounded.checkpoints.split_at(bounded.checkpoints.len().saturating_sub(1));
        let before = bounded.full_chunks().filter(|chunk| chunk.last_sequence < bounded.cut);
        for chunk in before.chain(older.iter().flatten()) {
            if is_removed.next() != Some(&true) {
                file.block(chunk);
            }
        }
        prop_assert_eq!(final_state(&Capture::from_bytes(file.bytes).unwrap()), bounded.expected());
    }
}

#[test]
fn program_killed_while_it_writes_a_checkpoint_loses_no_event() {
    for n_checkpoints in [1, 2] {
        let bounded = rounds(&[0..200, 200..400, 400..500][2 - n_checkpoints..]);
        assert_eq!(bounded.checkpoints.len(), n_checkpoints);
        let (older, newest) = bounded.checkpoints.split_at(n_checkpoints - 1);
        // The events before the older checkpoint are removed; those before the newest one are still in the file.
        let cut_before = older.first().map_or(0, |pieces| pieces[0].head.sequence);
        let mut file = bounded.file(older, cut_before);
        let len_before = file.bytes.len();
        for piece in &newest[0] {
            file.block(piece);
        }
        assert!(newest[0].len() > 2);
        let expected = bounded.expected();
        for len in (len_before..=file.bytes.len())
            .step_by(5)
            .chain([file.bytes.len()])
        {
            let capture = Capture::from_bytes(file.bytes[..len].to_vec()).unwrap();
            assert_eq!(final_state(&capture), expected, "killed at {len}");
        }
    }
}

#[test]
fn damaged_checkpoint_is_replaced_by_the_one_before_it() {
    let bounded = rounds(&[0..200, 200..400, 400..500]);
    let cut = bounded.checkpoints[0][0].head.sequence;
    let mut file = bounded.file(&bounded.checkpoints, cut);
    let newest = file.blocks.len() - 2;
    let start = file.blocks[newest].0.start;
    file.bytes[start + BlockHead::LEN + 5] ^= 1;
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert_eq!(
        capture.checkpoint.as_ref().map(|one| one.generation),
        Some(1)
    );
    assert_eq!(final_state(&capture), bounded.expected());
}

#[test]
fn damage_of_the_only_checkpoint_is_reported_and_later_events_are_read() {
    let bounded = rounds(&[0..300, 300..400]);
    let mut file = bounded.smallest_file();
    let last = file.blocks.len() - 1;
    let start = file.blocks[last].0.start;
    file.bytes[start + BlockHead::LEN + 5] ^= 1;
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert!(capture.checkpoint.is_none());
    let is_named = |category: &DamageCategory| matches!(category, DamageCategory::WrongChecksum { stream, .. } if *stream == CHECKPOINT_STREAM);
    assert!(capture.damage.iter().any(|note| is_named(&note.category)));
    let (events, damage) = replayed(&capture);
    assert_eq!(damage, []);
    assert!(events.ends_with(&bounded.program.truth[bounded.n_before..]));
}

#[test]
fn truncated_file_is_reported_as_damaged_or_has_lost_no_event() {
    let bounded = rounds(&[0..300, 300..400]);
    let file = bounded.smallest_file();
    let expected = bounded.expected();
    let start = FileBuilder::with_header(&header()).bytes.len();
    for len in (start + 16..file.bytes.len()).step_by(5) {
        let capture = Capture::from_bytes(file.bytes[..len].to_vec()).unwrap();
        if capture.damage.is_empty() {
            assert_eq!(final_state(&capture), expected, "cut at {len}");
        }
    }
}

#[test]
fn missing_chunk_after_a_checkpoint_is_reported() {
    let bounded = rounds(&[0..200, 200..600]);
    let whole = bounded.smallest_file();
    let (gap, stream, number) = whole.blocks[2].clone();
    let mut bytes = whole.bytes.clone();
    bytes.drain(gap);
    let capture = Capture::from_bytes(bytes).unwrap();
    let categories: Vec<_> = capture.damage.iter().map(|note| &note.category).collect();
    let missing = DamageCategory::Missing {
        stream,
        first: number,
        n_chunks: 1,
    };
    assert_eq!(categories, [&missing]);
}

#[test]
fn duplicate_pieces_count_once() {
    let bounded = rounds(&[0..200, 200..300]);
    let mut file = bounded.smallest_file();
    for piece in bounded.checkpoints[0].iter().rev() {
        file.block(piece);
    }
    // While the file is compacted, the first copy may already be overwritten.
    let first = file
        .blocks
        .iter()
        .position(|block| block.1 == CHECKPOINT_STREAM);
    let start = file.blocks[first.unwrap()].0.start;
    file.bytes[start + BlockHead::LEN..][..20].fill(0);
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert_eq!(final_state(&capture), bounded.expected());
}

#[test]
fn gap_too_small_for_an_area_is_not_damage() {
    let bounded = rounds(&[0..200, 200..300]);
    let mut file = bounded.file(&[], 0);
    file.bytes.extend_from_slice(b"tideBLK1leftover");
    for piece in &bounded.checkpoints[0] {
        file.block(piece);
    }
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert!(capture.checkpoint.is_some());
    assert_eq!(final_state(&capture), bounded.expected());
}

#[test]
fn checkpoint_with_an_impossible_length_is_refused_without_allocating_it() {
    let piece_len = 1 << 20;
    let n_pieces = (MAX_CHECKPOINT_LEN / piece_len) as u32 + 1;
    let mut file = FileBuilder::new();
    let mut piece = pieces(&[0], 5, 1).remove(0);
    piece.payload = vec![0; piece_len as usize];
    piece.n_events = n_pieces;
    file.block(&piece);
    let area = file.bytes[file.blocks[0].0.clone()].to_vec();
    for number in 1..n_pieces {
        let mut head = BlockHead::from_bytes(&area).unwrap();
        head.chunk.number = number;
        file.bytes.extend_from_slice(&head.to_bytes());
        file.bytes.extend_from_slice(&area[BlockHead::LEN..]);
    }
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert!(capture.checkpoint.is_none());
    assert!(matches!(
        capture.damage[..],
        [heaptide_capture::Damage {
            category: DamageCategory::ImplausibleLength { .. },
            ..
        }]
    ));
}

#[test]
fn only_segments_between_two_numbers_are_replayed() {
    let mut program = Program::new(3, SMALLEST_PAYLOAD);
    let mut cuts = vec![(0, 0)];
    for n in 0..600 {
        program.run(n as usize / 7 % 3, alloc(n));
        if n % 50 == 49 {
            cuts.push((program.cut(), program.truth.len()));
        }
    }
    let (chunks, truth) = program.finish();
    let mut file = FileBuilder::new();
    for chunk in &chunks {
        file.block(chunk);
    }
    let capture = Capture::from_bytes(file.bytes).unwrap();
    let between = |after: u64, before: u64, n_workers: usize| -> Vec<u64> {
        let mut addresses = Vec::new();
        let damage = replay_between(&capture, after, before, n_workers, &mut |chunk, ops| {
            addresses.extend(chunk.ops[ops].iter().map(|op| op.address));
        });
        assert_eq!(damage, []);
        addresses
    };
    let addresses =
        |events: &[ReplayedOp]| -> Vec<u64> { events.iter().map(|one| one.address).collect() };
    for n_workers in [0, 2] {
        for (first, &(after, from)) in cuts.iter().enumerate() {
            for &(before, to) in &cuts[first..] {
                let expected = addresses(&truth[from..to]);
                assert_eq!(between(after, before, n_workers), expected);
            }
        }
    }
    assert_eq!(between(0, u64::MAX, 0), addresses(&truth));
    assert!(between(u64::MAX, u64::MAX, 0).is_empty());
    assert!(between(0, 0, 0).is_empty());
}
