//! Writes a capture of a synthetic program, to benchmark reports:
//! `cargo run --release -p heaptide-analysis --example synthetic -- FILE EVENTS LIVE_BLOCKS [THREADS]`
//!
//! Each thread allocates its share of the live blocks from one hundred call stacks, then replaces them in scattered
//! order. Threads alternate after at most a thousand events.

use std::fs::File;
use std::io::{BufWriter, Write};

use heaptide_capture::area::{BlockHead, ChunkHead};
use heaptide_capture::event::MAX_RECORD_BYTES;
use heaptide_capture::wire;
use heaptide_capture::{Allocator, Code, Entry, Frame, Header, Packer, Tables};

const CHUNK_BYTES: usize = 65_472;
const EVENTS_PER_TURN: u64 = 1_000;

struct Thread {
    head: BlockHead,
    tables: Tables,
    bytes: Vec<u8>,
    depth: usize,
    live: Vec<u64>,
    next_address: u64,
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| {
        arguments
            .get(at)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let path = arguments.get(1).map_or("synthetic.tide", String::as_str);
    let (n_events, n_live, n_threads) = (number(2, 20_000_000), number(3, 100_000), number(4, 1));

    let mut out = BufWriter::new(File::create(path)?);
    let mut packer = Packer::new();
    let mut header = Header {
        python_version: 0x030c_00f0,
        command: vec!["synthetic.py".into()],
        ..Header::default()
    };
    header.import_paths.push("/srv/job".into());
    let mut head = header.to_bytes();
    head.resize(head.len().next_multiple_of(8), 0);
    out.write_all(&head)?;
    out.write_all(packer.block(BlockHead::default(), &registry(n_threads)))?;

    let mut threads: Vec<Thread> = (0..n_threads)
        .map(|n| Thread {
            head: BlockHead {
                chunk: ChunkHead {
                    stream: n as u32 + 1,
                    ..ChunkHead::default()
                },
                ..BlockHead::default()
            },
            tables: Tables::new(),
            bytes: Vec::new(),
            depth: 0,
            live: Vec::new(),
            next_address: 0x7f00_0000_0000 + (n << 36),
        })
        .collect();
    let (mut state, mut sequence) = (1u64, 0);
    let mut n_done = 0;
    while n_done < n_events {
        let thread = &mut threads[(sequence % n_threads) as usize];
        sequence += 1;
        thread.record(|tables, out| tables.write_switch(out, sequence));
        for _ in 0..EVENTS_PER_TURN / 2 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            n_done += thread.step(state, n_live / n_threads);
        }
        thread.record(|tables, out| tables.write_time(out, n_done));
        thread.flush_if_full(&mut packer, &mut out)?;
    }
    for thread in &mut threads {
        thread.flush(&mut packer, &mut out)?;
    }
    out.flush()
}

fn registry(n_threads: u64) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    let mut len = 0;
    for seconds in [0, 1_000] {
        let clock = Entry::Clock {
            ticks: seconds * 1_000_000,
            monotonic_ns: seconds * 1_000_000_000,
            unix_ns: seconds * 1_000_000_000,
        };
        len += clock.write(&mut bytes[len..]);
    }
    for n in 0..n_threads {
        let thread = Entry::Thread {
            stream: n as u32 + 1,
            os_id: n as u32 + 1,
            time: 0,
        };
        len += thread.write(&mut bytes[len..]);
    }
    for id in 0..100 {
        let name = format!("function_{id}");
        let code = Entry::Code(Code {
            id,
            first_line: 10 * id as i32,
            name: name.as_bytes(),
            qualifier: b"",
            file: b"/srv/job/synthetic.py",
            line_table: &[0x80 | 13 << 3, 2],
        });
        len += code.write(&mut bytes[len..]);
    }
    bytes.truncate(len);
    bytes
}

impl Thread {
    fn record(&mut self, write: impl FnOnce(&mut Tables, &mut wire::Writer)) {
        let mut buffer = [0; MAX_RECORD_BYTES];
        let mut out = wire::Writer::new(&mut buffer);
        write(&mut self.tables, &mut out);
        let len = out.len();
        self.bytes.extend_from_slice(&buffer[..len]);
    }

    /// Writes one or two events and returns their number.
    fn step(&mut self, state: u64, n_live: u64) -> u64 {
        // For one allocation in four, the two innermost frames are replaced.
        if state >> 62 == 0 || self.depth == 0 {
            let n_popped = self.depth.min(2);
            if n_popped > 0 {
                self.record(|tables, out| tables.write_pop(out, n_popped));
            }
            self.depth -= n_popped;
            while self.depth < 8 {
                let frame = Frame {
                    code: ((state >> 40) % 10) as u32 + 10 * self.depth as u32,
                    instruction: 0,
                };
                self.record(|tables, out| tables.write_push(out, frame));
                self.depth += 1;
            }
        }
        let size = 16 * (1 + (state >> 52) % 32);
        let (address, n_events) = if (self.live.len() as u64) < n_live {
            let address = self.next_address;
            self.next_address += 512;
            self.live.push(address);
            (address, 1)
        } else {
            // Usually frees one of the newest blocks.
            let n = self.live.len();
            let age = if (state >> 30) % 8 > 0 {
                (state >> 33) as usize % 50.min(n)
            } else {
                (state >> 33) as usize % n
            };
            let address = self.live[n - 1 - age];
            self.record(|tables, out| tables.write_free(out, address));
            (address, 2)
        };
        self.record(|tables, out| tables.write_alloc(out, Allocator::Malloc, size, address));
        self.head.n_events += n_events as u32;
        n_events
    }

    fn flush_if_full(&mut self, packer: &mut Packer, out: &mut impl Write) -> std::io::Result<()> {
        if self.bytes.len() + EVENTS_PER_TURN as usize * MAX_RECORD_BYTES > CHUNK_BYTES {
            self.flush(packer, out)?;
        }
        Ok(())
    }

    fn flush(&mut self, packer: &mut Packer, out: &mut impl Write) -> std::io::Result<()> {
        self.head.last_sequence = self.tables.sequence();
        out.write_all(packer.block(self.head, &self.bytes))?;
        self.bytes.clear();
        let (sequence, time) = (self.tables.sequence(), self.tables.time());
        self.head.chunk.number += 1;
        self.head.chunk.sequence = sequence;
        self.head.chunk.time = time;
        self.head.n_events = 0;
        self.tables.reset(sequence, time);
        // The next chunk repeats its whole stack.
        self.depth = 0;
        Ok(())
    }
}
