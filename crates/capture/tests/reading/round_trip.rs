//! The events of all threads are read completely and in order, for any layout of their chunks in the file.

use heaptide_capture::{Capture, ClockPoint, Code, Entry, Resident};
use proptest::prelude::*;

use crate::file::{FileBuilder, SLOT_LEN, header};
use crate::program::{Chunk, any_program, replayed};

/// Where a chunk is stored.
#[derive(Clone, Copy, Debug)]
enum Placement {
    Block,
    Slot,
    Both,
    TwoBlocks,
}

fn any_placement() -> impl Strategy<Value = Placement> {
    prop_oneof![
        5 => Just(Placement::Block),
        1 => Just(Placement::Slot),
        1 => Just(Placement::Both),
        1 => Just(Placement::TwoBlocks),
    ]
}

/// Writes the chunks in the given order, with extents and padding between the blocks.
fn lay_out(chunks: &[Chunk], order: &[(u64, Placement)]) -> FileBuilder {
    let mut file = FileBuilder::new();
    let mut placed: Vec<_> = chunks.iter().zip(order.iter().cycle()).collect();
    placed.sort_by_key(|(_, (key, _))| *key);
    for (chunk, (key, placement)) in placed {
        assert!(chunk.payload.len() + 64 <= SLOT_LEN);
        match placement {
            Placement::Block => file.block(chunk),
            Placement::Slot => file.extent(&[None, Some(chunk)]),
            Placement::Both => {
                file.extent(&[Some(chunk)]);
                file.block(chunk);
            }
            Placement::TwoBlocks => {
                file.block(chunk);
                file.padding(*key as usize % 100);
                file.block(chunk);
            }
        }
    }
    file.bytes.extend_from_slice(&[0; 1000]);
    file
}

proptest! {
    #[test]
    fn events_of_all_threads_are_replayed_in_order(
        (chunks, truth) in any_program(),
        order in prop::collection::vec((any::<u64>(), any_placement()), 1..40),
    ) {
        let file = lay_out(&chunks, &order);
        let capture = Capture::from_bytes(file.bytes).unwrap();
        // A file without chunks is reported as one that ends after its header.
        prop_assert_eq!(capture.damage.is_empty(), !chunks.is_empty(), "{:?}", capture.damage);
        prop_assert_eq!(capture.header.pid, header().pid);
        prop_assert_eq!(capture.chunks.len(), chunks.len());
        let n_events: u64 = chunks.iter().map(|chunk| u64::from(chunk.n_events)).sum();
        prop_assert_eq!(capture.n_events(), n_events);
        let (events, damage) = replayed(&capture);
        prop_assert_eq!(damage, []);
        prop_assert_eq!(events, truth);
    }
}

#[test]
fn chunk_in_a_slot_has_the_same_description_as_in_a_block() {
    let mut program = crate::program::Program::new(2, crate::program::SMALLEST_PAYLOAD);
    for n in 0..20 {
        let address = 0x1000 + n * 16;
        program.run(n as usize % 2, crate::program::Action::Free { address });
    }
    let (chunks, _) = program.finish();
    let mut in_blocks = FileBuilder::new();
    let mut in_slots = FileBuilder::new();
    for chunk in &chunks {
        in_blocks.block(chunk);
        in_slots.extent(&[Some(chunk)]);
    }
    let descriptions = |file: FileBuilder| -> Vec<_> {
        let capture = Capture::from_bytes(file.bytes).unwrap();
        let chunks = capture.chunks.iter();
        chunks
            .map(|chunk| (chunk.head, chunk.n_events, chunk.last_sequence))
            .collect()
    };
    assert_eq!(descriptions(in_blocks), descriptions(in_slots));
}

#[test]
fn registry_is_read_in_the_order_of_its_chunks() {
    let clock = |ticks, monotonic_ns| Entry::Clock {
        ticks,
        monotonic_ns,
        unix_ns: 7,
    };
    let name = |name| Entry::ThreadName { stream: 1, name };
    let code = Entry::Code(Code {
        id: 3,
        first_line: 12,
        name: b"load",
        qualifier: b"Table.",
        file: b"job.py",
        line_table: &[1, 2, 3],
    });
    let mut file = FileBuilder::new();
    file.registry(
        1,
        &[name(b"worker"), clock(2000, 1500), Entry::End { time: 9 }],
    );
    let resident = Entry::Resident {
        time: 4,
        bytes: 1 << 20,
    };
    let limit = Entry::Limit { bytes: 1 << 30 };
    let own = |bytes| Entry::OwnMemory { bytes };
    file.registry(
        0,
        &[
            code,
            name(b"early"),
            clock(1000, 500),
            resident,
            limit,
            own(9),
            own(5),
        ],
    );
    let capture = Capture::from_bytes(file.bytes).unwrap();
    let registry = &capture.registry;
    assert_eq!(capture.damage, []);
    assert!(capture.chunks.is_empty());
    assert_eq!(registry.codes[&3].qualified_name, "Table.load");
    assert_eq!(registry.codes[&3].line_table, [1, 2, 3]);
    assert_eq!(registry.threads[0].name.as_deref(), Some("worker"));
    assert_eq!(
        registry.resident,
        [Resident {
            time: 4,
            bytes: 1 << 20
        }]
    );
    assert_eq!((registry.limit, registry.own_memory), (Some(1 << 30), 9));
    assert_eq!(registry.end, Some(9));
    assert_eq!(
        registry.clocks[0],
        ClockPoint {
            ticks: 1000,
            monotonic_ns: 500,
            unix_ns: 7
        }
    );
    assert_eq!(registry.elapsed_ns(1500), 500);
}
