//! Reads any bytes as a capture of memray: as a whole file, packed or not, and after a valid header.
#![no_main]

use heaptide_foreign::memray;
use heaptide_tally::{Tally, replay};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    read(data);
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    read(&[header(choice).as_slice(), rest].concat());
});

/// Opens, sums up and replays a capture, and checks the guarantees for readers.
fn read(bytes: &[u8]) {
    let Some(Ok(capture)) = memray::from_bytes(bytes) else {
        return;
    };
    let mut tally = Tally::for_capture(&capture).expect("no checkpoint can be damaged");
    let damage = replay(&capture, &mut |_| {}, &mut |chunk, ops| {
        assert!(!ops.is_empty() && ops.end <= chunk.ops.len());
        tally.apply(chunk, ops);
    });
    assert!(damage.iter().all(|damage| !damage.to_string().is_empty()));
    tally.finish();
}

/// A header of format 12 and a thread record. `choice` selects native stacks, and all allocations or sums.
fn header(choice: u8) -> Vec<u8> {
    let mut bytes = b"memray\0\x0c\0\0\0\xf0\x01\x0c\x03".to_vec();
    bytes.extend([choice & 1, choice >> 1 & 1]);
    bytes.extend([0; 32]);
    bytes.extend(b"job.py\0");
    bytes.extend([0; 4 + 8 + 8 + 3]);
    bytes.extend([0x0c, 1, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}
