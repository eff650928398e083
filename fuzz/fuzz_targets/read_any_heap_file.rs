//! Reads any bytes as a heap snapshot: as a whole file, and as blocks with valid checksums after a valid header. Analyses
//! every snapshot that can be read.
#![no_main]

use heaptide_analysis::heap::explore::{ExploreLimits, explore};
use heaptide_analysis::heap::suspects::suspects;
use heaptide_analysis::heap::waste::waste;
use heaptide_analysis::heap::{By, Heap, types};
use heaptide_capture::heap::{HeapSnapshot, write_heap};
use heaptide_capture::wire::checksum;
use libfuzzer_sys::fuzz_target;

/// Magic number, version, length of the fields, checksum of the fields.
const PREFIX_LEN: usize = 24;
const N_TAGS: u32 = 16;
const END: u32 = 0x444e_4548;

fuzz_target!(|data: &[u8]| {
    read(data);
    read(&blocks(data));
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
