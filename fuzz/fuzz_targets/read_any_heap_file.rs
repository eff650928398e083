//! Reads any bytes as a heap snapshot: as a whole file, as blocks with valid checksums after a valid header, and as objects
//! and references of a valid snapshot. The last form is needed because random blocks rarely agree on the number of objects.
//! Analyses every snapshot that can be read.
#![no_main]

use heaptide_analysis::heap::explore::{ExploreLimits, explore};
use heaptide_analysis::heap::suspects::suspects;
use heaptide_analysis::heap::waste::waste;
use heaptide_analysis::heap::{By, Heap, types};
use heaptide_capture::heap::{
    EdgeType, HeapSnapshot, Label, NO_OBJECT, Root, RootCategory, TypeInfo, Value, write_heap,
};
use heaptide_capture::wire::checksum;
use libfuzzer_sys::fuzz_target;

/// Magic number, version, length of the fields, checksum of the fields.
const PREFIX_LEN: usize = 24;
const N_TAGS: u32 = 16;
const END: u32 = 0x444e_4548;

fuzz_target!(|data: &[u8]| {
    read(data);
    read(&blocks(data));
    read(&write_heap(&graph(data), Vec::new()).expect("writing to a vector"));
});

fn read(bytes: &[u8]) {
    let Ok(snapshot) = HeapSnapshot::read_from(bytes) else {
        return;
    };
    let heap = Heap::new(snapshot);
    let n_objects = heap.n_objects() as u32;
    assert_eq!(heap.retained().len(), heap.n_objects());
    assert!(heap.dominators().order.len() == heap.n_objects());
    suspects(&heap, None, 5);
    waste(&heap);
    types::kinds_table(&heap, By::Kind, types::Order::Retained);
    explore(&heap, None, ExploreLimits::default());
    if n_objects > 0 {
        let last = std::iter::once(n_objects - 1).collect();
        for path in &heap.shortest_paths(&last, 5).paths {
            heap.path_text(path);
        }
    }
}

/// Types that the analysis treats differently.
const TYPES: [(&str, &str); 12] = [
    ("module", "builtins"),
    ("type", "builtins"),
    ("dict", "builtins"),
    ("list", "builtins"),
    ("tuple", "builtins"),
    ("set", "builtins"),
    ("str", "builtins"),
    ("function", "builtins"),
    ("frame", "builtins"),
    ("cell", "builtins"),
    ("Order", "shop"),
    ("ReferenceType", "weakref"),
];
const NAMES: [&str; 6] = [
    "",
    "__main__",
    "sys.modules",
    Root::INTERNED_STRINGS,
    "path_importer_cache",
    "\u{1b}[1m",
];

/// A valid snapshot. Each object takes a byte for the type, two for its size, one for flags, one for its number of
/// references, two for each reference, and bytes for a root and a value.
fn graph(data: &[u8]) -> HeapSnapshot {
    let mut bytes = data.iter().copied();
    let mut next = || u32::from(bytes.next().unwrap_or(0));
    let n_objects = next() * 2 + next() % 2;
    let mut snapshot = HeapSnapshot::default();
    for name in &NAMES[1..] {
        snapshot.names.push(name);
    }
    for (name, module) in TYPES {
        let object = next();
        snapshot.types.push(TypeInfo {
            name: name.to_owned(),
            module: module.to_owned(),
            address: u64::from(object) * 64,
            object: if object < n_objects {
                object
            } else {
                NO_OBJECT
            },
            flags: object & 15,
        });
    }
    for object in 0..n_objects {
        let (head, size, objects) = (next(), next() << (next() % 40 / 2), &mut snapshot.objects);
        objects.addresses.push(u64::from(object + 1) * 64);
        objects.types.push(head % TYPES.len() as u32);
        objects.sizes.push(u64::from(size));
        objects.extras.push(u64::from(head / 200 * size));
        objects.flags.push(next() as u8);
        for _ in 0..next() % 9 {
            let (label, target) = (next(), next() * n_objects / 256);
            let edge_type = EdgeType::ALL[label as usize % EdgeType::ALL.len()];
            snapshot.edges.targets.push(target);
            snapshot
                .edges
                .labels
                .push(Label::new(edge_type, label % NAMES.len() as u32));
        }
        snapshot
            .edges
            .starts
            .push(snapshot.edges.targets.len() as u32);
        let root = next();
        if let Some(category) = RootCategory::from_number((root % 16) as u8) {
            let name = root / 16 % NAMES.len() as u32;
            snapshot.roots.push(Root {
                category,
                name,
                object,
            });
        }
        if root > 200 {
            let text = format!("'{}'", "a".repeat(root as usize % 8));
            snapshot.values.push(Value { object, text });
        }
    }
    snapshot
}

/// A file whose blocks hold parts of the data: a byte for the tag, a byte for the length, the content.
fn blocks(data: &[u8]) -> Vec<u8> {
    let mut bytes = write_heap(&HeapSnapshot::default(), Vec::new()).expect("writing to a vector");
    let fields_len = bytes.get(12..16).and_then(|len| len.try_into().ok());
    let fields_len = fields_len.map_or(0, u32::from_le_bytes) as usize;
    bytes.truncate(PREFIX_LEN + fields_len);
    let mut rest = data;
    while let [tag, len, after @ ..] = rest {
        let (content, next) = after.split_at(usize::from(*len).min(after.len()));
        append(&mut bytes, u32::from(*tag) % N_TAGS, content);
        rest = next;
    }
    append(&mut bytes, END, &[]);
    bytes
}

fn append(bytes: &mut Vec<u8>, tag: u32, content: &[u8]) {
    let len = content.len() as u32;
    for word in [tag, len, len, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&checksum(content).to_le_bytes());
    bytes.extend_from_slice(content);
}
