//! Captures truncated and overwritten anywhere: intact parts are read, damaged parts are reported, and nothing panics.

use heaptide_capture::area::{BlockHead, ExtentHead, SlotHead};
use heaptide_capture::{Allocator, Capture, DamageCategory, Entry};
use proptest::prelude::*;

use crate::file::{FileBuilder, SLOT_LEN, registry_chunk};
use crate::program::{Action, Chunk, Program, ReplayedOp, SMALLEST_PAYLOAD, any_program, replayed};

fn two_threads() -> (Vec<Chunk>, Vec<ReplayedOp>) {
    let mut program = Program::new(2, SMALLEST_PAYLOAD);
    for n in 0..500u64 {
        let address = 0x7000_0000 + n * 0x1_0000;
        let alloc = Action::Alloc {
            address,
            size: n,
            allocator: Allocator::Malloc,
        };
        program.run(n as usize / 20 % 2, alloc);
    }
    program.finish()
}

fn categories(capture: &Capture) -> Vec<DamageCategory> {
    capture
        .damage
        .iter()
        .map(|note| note.category.clone())
        .collect()
}

/// Every block in intact bytes must be found and unpack to its original payload.
fn assert_intact_blocks_are_read(
    capture: &Capture,
    file: &FileBuilder,
    chunks: &[Chunk],
    is_intact: impl Fn(usize) -> bool,
) {
    let mut raw = Vec::new();
    for (range, stream, number) in &file.blocks {
        if !range.clone().all(&is_intact) {
            continue;
        }
        let reference = capture
            .chunks
            .iter()
            .find(|chunk| (chunk.head.stream, chunk.head.number) == (*stream, *number))
            .unwrap_or_else(|| panic!("chunk {number} of thread {stream} is intact and not found"));
        capture.read_chunk(reference, &mut raw).unwrap();
        let written = chunks
            .iter()
            .find(|chunk| (chunk.head.stream, chunk.head.number) == (*stream, *number));
        assert_eq!(Some(&raw), written.map(|chunk| &chunk.payload));
    }
}

/// A capture as a killed process leaves it: extent, blocks, and the last chunk of each thread in a slot.
fn killed(chunks: &[Chunk]) -> FileBuilder {
    let is_last = |chunk: &&Chunk| {
        !chunks.iter().any(|other| {
            (other.head.stream, other.head.number) == (chunk.head.stream, chunk.head.number + 1)
        })
    };
    let mut file = FileBuilder::new();
    let registry = registry_chunk(0, &[Entry::Limit { bytes: 5 }]);
    let mut slots = vec![Some(&registry), None];
    slots.extend(chunks.iter().filter(is_last).map(Some));
    file.extent(&slots);
    for chunk in chunks.iter().filter(|chunk| !is_last(chunk)) {
        file.block(chunk);
    }
    file
}

#[test]
fn capture_of_a_killed_process_is_complete() {
    let (chunks, truth) = two_threads();
    let capture = Capture::from_bytes(killed(&chunks).bytes).unwrap();
    assert_eq!(capture.damage, []);
    assert_eq!(capture.registry.limit, Some(5));
    assert_eq!(capture.registry.end, None);
    assert_eq!(replayed(&capture), (truth, vec![]));
}

#[test]
fn truncated_file_keeps_every_block_before_the_cut() {
    let (chunks, truth) = two_threads();
    let file = killed(&chunks);
    let header_len = FileBuilder::new().bytes.len();
    for len in header_len..=file.bytes.len() {
        let capture = Capture::from_bytes(file.bytes[..len].to_vec()).unwrap();
        assert_intact_blocks_are_read(&capture, &file, &chunks, |at| at < len);
        let (events, damage) = replayed(&capture);
        if events.len() < truth.len() && len > header_len {
            assert!(
                !capture.damage.is_empty() || !damage.is_empty(),
                "cut at {len}"
            );
        }
    }
}

#[test]
fn truncated_block_is_not_damage_while_its_slot_holds_the_chunk() {
    let (chunks, truth) = two_threads();
    let mut file = FileBuilder::new();
    file.extent(&[Some(&chunks[1])]);
    for chunk in chunks.iter().filter(|chunk| chunk.head != chunks[1].head) {
        file.block(chunk);
    }
    let start = file.bytes.len();
    file.block(&chunks[1]);
    for len in start..file.bytes.len() {
        let capture = Capture::from_bytes(file.bytes[..len].to_vec()).unwrap();
        assert_eq!(capture.damage, [], "cut at {len}");
        assert_eq!(replayed(&capture).0.len(), truth.len());
    }
}

#[test]
fn truncated_block_is_damage_if_no_slot_holds_the_chunk() {
    let (chunks, _) = two_threads();
    let mut file = FileBuilder::new();
    file.block(&chunks[0]);
    let (start, stream) = (file.bytes.len(), chunks[1].head.stream);
    file.block(&chunks[1]);
    for len in start + 16..file.bytes.len() - 8 {
        let capture = Capture::from_bytes(file.bytes[..len].to_vec()).unwrap();
        let cut = DamageCategory::Cut {
            stream: Some(stream),
        };
        assert_eq!(categories(&capture), [cut], "cut at {len}");
    }
}

#[test]
fn overwritten_block_is_reported_and_the_others_are_replayed() {
    let (chunks, truth) = two_threads();
    let mut file = FileBuilder::new();
    for chunk in &chunks {
        file.block(chunk);
    }
    let (range, stream, _) = file.blocks[2].clone();
    file.bytes[range.start + BlockHead::LEN + 3] ^= 0x40;
    let capture = Capture::from_bytes(file.bytes.clone()).unwrap();
    assert_eq!(capture.damage, []);
    let (events, damage) = replayed(&capture);
    assert_eq!(events.len(), truth.len() - chunks[2].n_events as usize);
    let message = damage[0].to_string();
    assert_eq!(damage.len(), 1);
    assert!(
        message.starts_with(&format!("bytes {} to ", range.start))
            && message.ends_with(&format!(
                "are damaged: the block of thread {stream} does not match its checksum and was left out"
            )),
        "{message}"
    );
}

#[test]
fn damaged_block_is_replaced_by_the_slot_that_still_holds_its_chunk() {
    let (chunks, truth) = two_threads();
    let mut file = FileBuilder::new();
    file.extent(&[Some(&chunks[0])]);
    for chunk in &chunks {
        file.block(chunk);
    }
    let start = file.blocks[0].0.start;
    file.bytes[start + BlockHead::LEN..][..40].fill(0);
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert_eq!(replayed(&capture), (truth, vec![]));
}

#[test]
fn destroyed_head_is_damage_up_to_the_next_intact_area() {
    let (chunks, _) = two_threads();
    let mut file = FileBuilder::new();
    for chunk in &chunks {
        file.block(chunk);
    }
    let (start, end) = (file.blocks[1].0.start, file.blocks[3].0.start);
    file.bytes[start] ^= 1;
    let second = file.blocks[2].0.start;
    file.bytes[second + 20] ^= 1;
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert_eq!(capture.damage[0].offset, start as u64);
    assert!(categories(&capture).contains(&DamageCategory::Unreadable { end: end as u64 }));
    assert_eq!(capture.chunks.len(), chunks.len() - 2);
}

#[test]
fn slots_are_found_if_the_head_of_their_extent_is_destroyed() {
    let (chunks, truth) = two_threads();
    let mut file = killed(&chunks);
    let start = FileBuilder::new().bytes.len();
    file.bytes[start..start + ExtentHead::LEN].fill(0xff);
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert_eq!(capture.registry.limit, Some(5));
    assert!(matches!(
        categories(&capture)[..],
        [DamageCategory::Unreadable { .. }]
    ));
    assert_eq!(replayed(&capture).0, truth);
}

#[test]
fn reserved_space_of_an_unwritten_block_is_not_damage_while_a_slot_holds_the_chunk() {
    let (chunks, truth) = two_threads();
    let mut file = FileBuilder::new();
    file.extent(&[Some(&chunks[0])]);
    file.bytes.resize(file.bytes.len() + 400, 0);
    for chunk in &chunks[1..] {
        file.block(chunk);
    }
    file.bytes.resize(file.bytes.len() + 5000, 0);
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert_eq!(capture.damage, []);
    assert_eq!(replayed(&capture).0, truth);
}

#[test]
fn slot_with_an_impossible_length_is_left_out_and_reported() {
    let (chunks, _) = two_threads();
    let mut file = FileBuilder::new();
    let extent = file.bytes.len();
    file.extent(&[Some(&chunks[0]), Some(&chunks[1])]);
    let at = FileBuilder::slot_offset(extent, 0);
    let committed = (SLOT_LEN - SlotHead::LEN + 1) as u64;
    file.bytes[at + SlotHead::COMMITTED_AT..][..8].copy_from_slice(&committed.to_le_bytes());
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert_eq!(capture.chunks.len(), 1);
    assert!(categories(&capture).contains(&DamageCategory::WrongSlot));
}

#[test]
fn slot_that_is_not_in_use_is_skipped() {
    let (chunks, _) = two_threads();
    let mut file = FileBuilder::new();
    let extent = file.bytes.len();
    file.extent(&[Some(&chunks[0])]);
    let at = FileBuilder::slot_offset(extent, 0);
    file.bytes[at + SlotHead::IN_USE_AT] = 0;
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert_eq!((capture.chunks.len(), capture.damage.len()), (0, 0));
}

#[test]
fn impossible_lengths_are_refused_without_allocating_them() {
    let mut file = FileBuilder::new();
    let head = BlockHead {
        raw_len: u32::MAX,
        stored_len: 8,
        ..BlockHead::default()
    };
    file.bytes.extend_from_slice(&head.to_bytes());
    file.bytes.extend_from_slice(&[0; 8]);
    let endless = ExtentHead {
        area_len: u64::MAX,
        slots_offset: 64,
        slot_len: 65,
        n_slots: u32::MAX,
    };
    file.bytes.extend_from_slice(&endless.to_bytes());
    file.bytes.extend_from_slice(&[0; 4096]);
    let capture = Capture::from_bytes(file.bytes).unwrap();
    assert!(matches!(
        categories(&capture)[..],
        [
            DamageCategory::ImplausibleLength { .. },
            DamageCategory::Cut { stream: None }
        ]
    ));
}

#[test]
fn payload_is_used_up_to_its_first_invalid_record() {
    let (chunks, truth) = two_threads();
    let mut broken = chunks[0].clone();
    broken.payload.push(0x3f);
    let mut file = FileBuilder::new();
    file.block(&broken);
    for chunk in &chunks[1..] {
        file.block(chunk);
    }
    let (events, damage) = replayed(&Capture::from_bytes(file.bytes).unwrap());
    assert_eq!(events, truth);
    assert!(matches!(
        damage[0].category,
        DamageCategory::WrongRecord { .. }
    ));
}

proptest! {
    #[test]
    fn changed_bytes_lose_only_the_blocks_that_contain_them(
        (chunks, _) in any_program(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..12),
    ) {
        let mut file = killed(&chunks);
        let header_len = FileBuilder::new().bytes.len();
        let areas_len = file.bytes.len() - header_len;
        let mut changed = Vec::new();
        for (at, flip) in flips {
            let at = header_len + at.index(areas_len);
            file.bytes[at] ^= flip;
            changed.push(at);
        }
        let capture = Capture::from_bytes(file.bytes.clone()).unwrap();
        assert_intact_blocks_are_read(&capture, &file, &chunks, |at| !changed.contains(&at));
        replayed(&capture);
    }

    #[test]
    fn any_bytes_after_the_header_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let mut file = FileBuilder::new();
        file.bytes.extend_from_slice(&bytes);
        let capture = Capture::from_bytes(file.bytes).unwrap();
        replayed(&capture);
    }

    #[test]
    fn any_bytes_in_a_chunk_are_replayed_without_panic(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 1..6),
        sequences in prop::collection::vec(0u64..10, 6),
    ) {
        let mut file = FileBuilder::new();
        for (index, payload) in payloads.into_iter().enumerate() {
            let mut chunk = registry_chunk(index as u32 / 2, &[]);
            chunk.head.stream = index as u32 % 2;
            chunk.head.sequence = sequences[index];
            chunk.payload = payload;
            file.block(&chunk);
        }
        replayed(&Capture::from_bytes(file.bytes).unwrap());
    }
}
