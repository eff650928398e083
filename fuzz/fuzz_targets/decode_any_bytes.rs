//! Reads any bytes as a capture: as a whole file, after a valid header, and as payloads of chunks with valid checksums,
//! because random changes would rarely pass the checksum.
#![no_main]

use heaptide_capture::area::{BlockHead, ChunkHead, SlotHead};
use heaptide_capture::read::MAX_CHUNK_LEN;
use heaptide_capture::{Capture, DecodedChunk, Header, Packer};
use heaptide_tally::replay;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    read(data.to_vec());
    read([good_header(), data.to_vec()].concat());
    read([good_header(), chunks(data)].concat());
    read([good_header(), slots(data)].concat());
    DecodedChunk::new().decode(&ChunkHead::default(), data);
});

/// Opens and replays a capture, and checks the guarantees for readers.
fn read(bytes: Vec<u8>) {
    let Ok(capture) = Capture::from_bytes(bytes) else {
        return;
    };
    for damage in &capture.damage {
        assert!(!damage.to_string().is_empty());
    }
    let mut n_ops = 0;
    replay(&capture, &mut |_| {}, &mut |chunk, ops| {
        assert!(!ops.is_empty() && ops.end <= chunk.ops.len());
        assert!(
            chunk.ops[ops.clone()]
                .iter()
                .all(|op| (op.node as usize) < chunk.nodes.len())
        );
        n_ops += ops.len();
    });
    // A small block may unpack to the longest chunk, and no operation is shorter than a byte.
    assert!(n_ops <= capture.chunks.len() * MAX_CHUNK_LEN as usize);
    for sample in &capture.registry.resident {
        capture.registry.elapsed_ns(sample.time);
    }
}

fn good_header() -> Vec<u8> {
    let mut bytes = Header::default().to_bytes();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// The data cut into chunks of three streams, the registry among them.
fn chunks(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut packer = Packer::new();
    for (index, payload) in data.chunks(64).enumerate() {
        let chunk = ChunkHead {
            stream: index as u32 % 3,
            number: index as u32 / 3,
            // From the data, so that the fuzzer also chooses the order between threads.
            sequence: u64::from(payload[0]),
            ..ChunkHead::default()
        };
        let head = BlockHead {
            chunk,
            ..BlockHead::default()
        };
        bytes.extend_from_slice(packer.block(head, payload));
    }
    bytes
}

/// The data in a slot whose extent has lost its head.
fn slots(data: &[u8]) -> Vec<u8> {
    let head = SlotHead {
        chunk: ChunkHead {
            stream: 1,
            ..ChunkHead::default()
        },
        committed: data.len() as u64,
        in_use: true,
    };
    [&head.to_bytes(), data].concat()
}
