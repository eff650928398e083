//! Checks the worked examples in `docs/reference/capture-format.md`: Heaptide writes and reads the same bytes.
//!
//! An example is a list of lines `bytes in hexadecimal ; meaning` below the heading that names it.

use heaptide_capture::area::{BlockHead, ChunkHead};
use heaptide_capture::wire::Writer;
use heaptide_capture::{Allocator, Capture, DecodedChunk, Frame, OpAction, Packer, Tables};
use heaptide_tally::replay;

use crate::file::FileBuilder;

const DOCUMENT: &str = include_str!("../../../../docs/reference/capture-format.md");
const BLOCK: u64 = 0x5555_0000_1230;

/// Returns the bytes of the example below this heading.
fn example(heading: &str) -> Vec<u8> {
    let (_, below) = DOCUMENT
        .split_once(&format!("\n#### {heading}\n"))
        .unwrap_or_else(|| panic!("no heading `{heading}`"));
    let section = below.split("\n#").next().unwrap_or_default();
    // Every second part between fences is an example; the others are prose.
    let fenced = section.split("```").skip(1).step_by(2);
    fenced
        .flat_map(str::lines)
        .filter_map(|line| line.split_once(';'))
        .flat_map(|(hex, _)| hex.split_whitespace())
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

fn payload(sequence: u64, time: u64, write: impl FnOnce(&mut Tables, &mut Writer)) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let mut out = Writer::new(&mut bytes);
    let mut tables = Tables::new();
    tables.reset(sequence, time);
    write(&mut tables, &mut out);
    let len = out.len();
    bytes.truncate(len);
    bytes
}

/// A function calls another, which allocates and frees a block twice, keeps a third one, and maps a mebibyte briefly.
fn loop_payload() -> Vec<u8> {
    payload(1, 500, |tables, out| {
        let frame = |code, instruction| Frame { code, instruction };
        tables.write_push(out, frame(3, 20));
        tables.write_push(out, frame(4, 10));
        for _ in 0..2 {
            tables.write_alloc(out, Allocator::Malloc, 600, BLOCK);
            tables.write_free(out, BLOCK);
        }
        tables.write_time(out, 503);
        tables.write_alloc(out, Allocator::Malloc, 600, BLOCK + 0x260);
        tables.write_pop(out, 1);
        tables.write_push(out, frame(4, 10));
        tables.write_alloc(out, Allocator::Mmap, 1 << 20, BLOCK & !0xfff);
        tables.write_free_range(out, BLOCK & !0xfff, 1 << 20);
    })
}

fn loop_block() -> Vec<u8> {
    let head = BlockHead {
        chunk: ChunkHead {
            stream: 1,
            number: 0,
            sequence: 1,
            time: 500,
            generation: 0,
        },
        n_events: 7,
        last_sequence: 1,
        ..BlockHead::default()
    };
    Packer::new().block(head, &loop_payload()).to_vec()
}

fn first_thread() -> Vec<u8> {
    payload(1, 500, |tables, out| {
        tables.write_alloc(out, Allocator::Malloc, 64, BLOCK);
        tables.write_switch(out, 3);
        tables.write_alloc(out, Allocator::Malloc, 64, BLOCK);
        tables.write_switch(out, 5);
        tables.write_free(out, BLOCK);
    })
}

fn second_thread() -> Vec<u8> {
    payload(2, 500, |tables, out| {
        tables.write_free(out, BLOCK);
        tables.write_switch(out, 4);
        tables.write_alloc(out, Allocator::Malloc, 4096, BLOCK + 0x1000);
    })
}

fn job_payload() -> Vec<u8> {
    payload(1, 500, |tables, out| {
        tables.write_job(out, 7, 2);
        tables.write_alloc(out, Allocator::Malloc, 64, BLOCK);
        tables.write_job_end(out, 7);
        tables.write_job(out, 0, 0);
        tables.write_alloc(out, Allocator::Malloc, 64, BLOCK + 0x100);
    })
}

#[test]
fn example_of_jobs_equals_the_written_bytes_and_is_decoded() {
    assert_eq!(example("Example: jobs"), job_payload());
    let mut chunk = DecodedChunk::new();
    chunk.decode(&ChunkHead::default(), &job_payload());
    let marks: Vec<_> = chunk
        .jobs
        .iter()
        .map(|mark| (mark.job, mark.name, mark.first_op))
        .collect();
    assert_eq!(marks, [(7, 2, 0), (0, 0, 2)]);
    assert_eq!(chunk.ops[1].action, OpAction::JobEnd);
    assert_eq!(chunk.ops[1].address, 7);
    assert!(chunk.complete);
}

#[test]
fn example_of_a_payload_equals_the_written_bytes() {
    assert_eq!(example("Example: a payload"), loop_payload());
}

#[test]
fn example_of_a_block_equals_the_written_bytes() {
    assert_eq!(example("Example: a block"), loop_block());
}

#[test]
fn example_of_two_threads_equals_the_written_bytes_and_replays_in_the_documented_order() {
    let payloads = [first_thread(), second_thread()];
    assert_eq!(example("Example: two threads"), payloads.concat());
    let mut file = FileBuilder::new();
    for (index, payload) in payloads.into_iter().enumerate() {
        let mut chunk = crate::file::registry_chunk(0, &[]);
        chunk.head.stream = index as u32 + 1;
        chunk.head.sequence = index as u64 + 1;
        chunk.payload = payload;
        file.block(&chunk);
    }
    let mut events = Vec::new();
    let capture = Capture::from_bytes(file.bytes).unwrap();
    replay(&capture, &mut |_| {}, &mut |chunk, ops| {
        let ops = chunk.ops[ops].iter();
        events.extend(ops.map(|op| (chunk.head.stream, op.action, op.address)));
    });
    let expected = [
        (1, OpAction::Alloc, BLOCK),
        (2, OpAction::Free, BLOCK),
        (1, OpAction::Alloc, BLOCK),
        (2, OpAction::Alloc, BLOCK + 0x1000),
        (1, OpAction::Free, BLOCK),
    ];
    assert_eq!(events, expected);
}
