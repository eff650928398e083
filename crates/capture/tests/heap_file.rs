//! Heap snapshots as files: they round-trip, and damaged files are refused with an error that names file and remedy.

use std::io::Cursor;
use std::path::PathBuf;

use heaptide_capture::heap::{
    AllocationFrame, AllocationStacks, EdgeType, HeapError, HeapFailure, HeapSnapshot, Label,
    NO_OBJECT, RecordingPosition, RootCategory, write_heap,
};
use heaptide_testkit::HeapBuilder;
use proptest::prelude::*;

fn bytes_of(snapshot: &HeapSnapshot) -> Vec<u8> {
    write_heap(snapshot, Vec::new()).unwrap()
}

fn read(bytes: &[u8]) -> Result<HeapSnapshot, HeapFailure> {
    HeapSnapshot::read_from(Cursor::new(bytes))
}

fn small() -> HeapSnapshot {
    let mut builder = HeapBuilder::new();
    builder.header().pid = 4711;
    builder.header().command = vec!["job.py".into(), "--größe".into()];
    builder.header().notes = vec!["frames could not be read".into()];
    builder.header().recording = Some(RecordingPosition {
        path: "job.tide".into(),
        objects: true,
        segment: 99,
    });
    let module = builder.object("module", 72);
    let dict = builder.object("dict", 232);
    let array = builder.object("numpy.ndarray", 112);
    builder.extra(array, 8_000_000);
    builder.edge(module, dict, Label::new(EdgeType::DictOf, 0));
    builder.named(dict, array, EdgeType::Key, "prices");
    builder.root(RootCategory::Module, "shop", module);
    builder.value(array, "[1 2 3]");
    let mut snapshot = builder.finish();
    snapshot.types[0].object = 1;
    snapshot.stacks = Some(AllocationStacks {
        of_objects: vec![0, 1, 1],
        stacks: vec![vec![], vec![0, 1]],
        frames: vec![
            AllocationFrame {
                function: "main".into(),
                file: "job.py".into(),
                line: 3,
            },
            AllocationFrame::default(),
        ],
    });
    snapshot
}

/// Any snapshot with consistent numbers.
fn snapshots() -> impl Strategy<Value = HeapSnapshot> {
    let objects =
        // Sizes whose sum exceeds any address space are damage to the reader.
        prop::collection::vec((any::<u64>(), 0..5usize, 0..1u64 << 50, any::<u8>()), 0..40);
    let edges = prop::collection::vec(
        (any::<u16>(), any::<u16>(), 0..16usize, any::<u32>()),
        0..120,
    );
    (
        objects,
        edges,
        prop::collection::vec((any::<u16>(), ".{0,9}"), 0..9),
    )
        .prop_map(|(objects, edges, labelled)| {
            let mut builder = HeapBuilder::new();
            let types = ["int", "dict", "a.B", "a.b.C", "list"];
            let mut seen = std::collections::HashSet::new();
            let mut added = Vec::new();
            for (address, number, size, flags) in objects {
                if seen.insert(address) {
                    let object = builder.object_at(address, types[number], size);
                    builder.flags(object, flags);
                    builder.extra(object, size >> 3);
                    added.push(object);
                }
            }
            if added.is_empty() {
                return builder.finish();
            }
            let pick = |number: u16| added[number as usize % added.len()];
            for (from, to, edge_type, number) in edges {
                let edge_type = EdgeType::ALL[edge_type];
                if edge_type.has_name() {
                    builder.named(
                        pick(from),
                        pick(to),
                        edge_type,
                        &format!("name{}", number % 7),
                    );
                } else {
                    builder.edge(pick(from), pick(to), Label::new(edge_type, number));
                }
            }
            // Every walk finds roots.
            builder.root(RootCategory::Interpreter, "sys.modules", added[0]);
            let mut valued = std::collections::HashSet::new();
            for (object, text) in labelled {
                builder.root(RootCategory::Frame, &text, pick(object));
                if valued.insert(pick(object)) {
                    builder.value(pick(object), &text);
                }
            }
            builder.finish()
        })
}

proptest! {
    #[test]
    fn any_snapshot_round_trips(snapshot in snapshots()) {
        prop_assert_eq!(read(&bytes_of(&snapshot)).unwrap(), snapshot);
    }

    #[test]
    fn changed_byte_is_refused_or_leaves_the_snapshot_unchanged(at: prop::sample::Index, flip in 1u8..) {
        let snapshot = small();
        let mut bytes = bytes_of(&snapshot);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(read) = read(&bytes) {
            prop_assert_eq!(read, snapshot);
        }
    }
}

/// The length of a block's head, and the position of the length of its stored bytes.
const HEAD_LEN: usize = 24;
const STORED_LEN: usize = 8;

/// The positions of all blocks of a file.
fn blocks(bytes: &[u8]) -> Vec<usize> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut blocks = Vec::new();
    let mut at = 24 + word(12);
    while at < bytes.len() {
        blocks.push(at);
        at += HEAD_LEN + word(at + STORED_LEN);
    }
    blocks
}

#[test]
fn changed_tag_of_a_block_is_refused() {
    let without_values = HeapSnapshot {
        values: Vec::new(),
        ..small()
    };
    for (snapshot, n_blocks) in [(small(), 16), (without_values, 15)] {
        let bytes = bytes_of(&snapshot);
        let blocks = blocks(&bytes);
        assert_eq!(blocks.len(), n_blocks);
        for (block, flip) in blocks
            .iter()
            .flat_map(|block| (1..=255u8).map(move |flip| (block, flip)))
        {
            for at in *block..*block + 4 {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                let result = read(&changed);
                let is_refused = matches!(result, Err(HeapFailure::Damaged(_) | HeapFailure::Cut));
                assert!(is_refused, "byte {at} ^ {flip}: {result:?}");
            }
        }
    }
}

#[test]
fn block_after_one_that_is_not_full_cannot_continue_its_column() {
    let bytes = bytes_of(&small());
    let blocks = blocks(&bytes);
    for pair in blocks.windows(2) {
        let twice = [&bytes[..pair[1]], &bytes[pair[0]..]].concat();
        assert!(matches!(read(&twice), Err(HeapFailure::Damaged(_))));
    }
}

#[test]
fn unknown_columns_of_later_versions_are_skipped() {
    let snapshot = small();
    let mut bytes = bytes_of(&snapshot);
    let last = *blocks(&bytes).last().unwrap();
    let mut unknown = bytes[last..].to_vec();
    unknown[..4].copy_from_slice(&99u32.to_le_bytes());
    bytes.splice(last..last, unknown);
    assert!(matches!(read(&bytes), Err(HeapFailure::Damaged(_))));
    // The version is the first field: tag, length, text.
    let version = env!("CARGO_PKG_VERSION").len();
    assert_eq!(bytes[24..26], [21, version as u8]);
    bytes[26] = b'9';
    let fields = 24..24 + u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let sum = heaptide_capture::wire::checksum(&bytes[fields]);
    bytes[16..24].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(read(&bytes).unwrap(), snapshot);
}

#[test]
fn snapshot_with_all_parts_round_trips() {
    let snapshot = small();
    assert_eq!(read(&bytes_of(&snapshot)).unwrap(), snapshot);
}

#[test]
fn truncated_file_is_reported_as_cut() {
    let bytes = bytes_of(&small());
    for len in 1..bytes.len() {
        assert!(
            matches!(read(&bytes[..len]), Err(HeapFailure::Cut)),
            "cut at {len}"
        );
    }
    assert!(matches!(read(&[]), Err(HeapFailure::Empty)));
}

#[test]
fn other_files_and_later_versions_give_different_errors() {
    assert!(matches!(
        read(b"GIF89a..........................."),
        Err(HeapFailure::Foreign)
    ));
    assert!(matches!(
        read(b"\x89TIDE\r\n\x1a................"),
        Err(HeapFailure::Recording)
    ));
    let mut later = bytes_of(&small());
    later[8] = 200;
    let Err(HeapFailure::Newer(newer)) = read(&later) else {
        panic!("a later format")
    };
    assert_eq!(newer.format, 200);
    assert_eq!(newer.written_by.as_deref(), Some(env!("CARGO_PKG_VERSION")));
}

#[test]
fn invalid_indices_are_refused() {
    let spoil: [fn(&mut HeapSnapshot); 7] = [
        |heap| heap.edges.targets[0] = 3,
        |heap| heap.objects.types[2] = 9,
        |heap| heap.edges.labels[1] = Label::new(EdgeType::Key, 700),
        |heap| heap.roots[0].object = NO_OBJECT - 1,
        |heap| heap.values[0].object = 3,
        |heap| heap.objects.addresses.swap(0, 1),
        |heap| heap.stacks.as_mut().unwrap().of_objects[0] = 2,
    ];
    for (number, spoil) in spoil.iter().enumerate() {
        let mut snapshot = small();
        spoil(&mut snapshot);
        let result = read(&bytes_of(&snapshot));
        assert!(
            matches!(result, Err(HeapFailure::Damaged(_))),
            "spoiled {number}"
        );
    }
}

#[test]
fn error_names_the_file_and_the_remedy() {
    let error = HeapError {
        path: PathBuf::from("job.heap"),
        reason: HeapFailure::Cut,
    };
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("job.heap ends in the middle"),
        "{sentence}"
    );
    assert!(sentence.ends_with("take it again"), "{sentence}");
}
