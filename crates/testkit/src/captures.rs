//! Captures written as text: one statement per action of a program. Line feeds, `;` and `·` separate statements.
//!
//! ```text
//! alloc x 64 at main:3 > load:7      64 bytes, named x; outermost frame first, with lines
//! alloc m 8192 mmap at main          another allocator
//! alloc y 10                         without a Python frame
//! free x
//! unmap m+4096 4096                  part of m
//! refuse                             the thread's previous free did not happen
//! thread 2 worker                    the following statements happen in this thread, which has this name
//! job 7 import load · job 0          the thread works for job 7, named import, with the key load; then for no job
//! job_end 7 failed                   the job ended
//! time 1500                          microseconds since the start
//! part LibcFree 4096                 a part of the process's memory
//! stopped 1500 42 disk full          the recording failed at this time; 42 events were dropped afterwards
//! resident 70000 · limit 1000000 · own 5000 · lost 3 · end 2000
//! ```
//! A frame is `function[@file][:line]`; the file is `/srv/job/job.py` by default. `%3b` in it means `;`.

use std::collections::{HashMap, HashSet};

use heaptide_capture::area::{BlockHead, ChunkHead, ExtentHead};
use heaptide_capture::wire::Writer;
use heaptide_capture::{
    Allocator, Capture, Code, Entry, Frame, Header, JobBegan, JobEnded, Lost, MemoryPart, Outcome,
    Packer, StopMark, Tables,
};

const N_LINES: i32 = 400;
const BUFFER_BYTES: usize = 1 << 19;

pub fn header() -> Header {
    Header {
        pid: 4711,
        parent_pid: 1,
        started_unix_ns: 1_794_776_072_315_000_000,
        command: vec!["job.py".into(), "--fast".into()],
        python_version: 0x030c_00f0,
        python_allocator: "pymalloc".into(),
        main_thread: 4711,
        stdlib_paths: vec!["/usr/lib/python3.12".into()],
        import_paths: vec!["/srv/job".into(), "/usr/lib/python3.12".into()],
        own_paths: vec!["/opt/heaptide".into()],
        ..Header::default()
    }
}

/// Returns the bytes of a capture of this program.
pub fn capture_bytes(header: &Header, script: &str) -> Vec<u8> {
    let mut builder = Builder::new();
    for statement in script.split(['\n', ';', '·']).map(str::trim) {
        if !statement.is_empty() && !statement.starts_with('#') {
            builder.statement(statement);
        }
    }
    builder.finish(header)
}

pub fn capture(script: &str) -> Capture {
    Capture::from_bytes(capture_bytes(&header(), script)).expect("the builder writes captures")
}

struct Thread {
    tables: Tables,
    bytes: Vec<u8>,
    head: ChunkHead,
    stack: Vec<Frame>,
    n_events: u32,
}

struct Builder {
    threads: HashMap<u32, Thread>,
    current: u32,
    sequence: u64,
    time: u64,
    /// The chunks of the registry; a reader refuses a chunk of more than a megabyte.
    registry: Vec<Vec<u8>>,
    codes: HashMap<(String, String), u32>,
    blocks: HashMap<String, u64>,
    next_address: u64,
    stopped: Option<StopMark>,
    job_names: HashMap<String, u32>,
    jobs: HashSet<u32>,
}

impl Builder {
    fn new() -> Builder {
        let mut builder = Builder {
            threads: HashMap::new(),
            current: 0,
            sequence: 0,
            time: 0,
            registry: vec![Vec::new()],
            codes: HashMap::new(),
            blocks: HashMap::new(),
            next_address: 0x5555_0000_0000,
            stopped: None,
            job_names: HashMap::new(),
            jobs: HashSet::new(),
        };
        // One clock unit is a microsecond.
        for seconds in [0, 1_000] {
            builder.register(Entry::Clock {
                ticks: seconds * 1_000_000,
                monotonic_ns: seconds * 1_000_000_000,
                unix_ns: header().started_unix_ns + seconds * 1_000_000_000,
            });
        }
        builder.switch_to(1, "MainThread");
        builder
    }

    fn register(&mut self, entry: Entry) {
        let mut bytes = vec![0; 1 << 14];
        let len = entry.write(&mut bytes);
        let last = self.registry.len() - 1;
        if self.registry[last].len() + len < BUFFER_BYTES {
            self.registry[last].extend_from_slice(&bytes[..len]);
        } else {
            self.registry.push(bytes[..len].to_vec());
        }
    }

    fn switch_to(&mut self, stream: u32, name: &str) {
        self.sequence += 1;
        self.current = stream;
        let (sequence, time) = (self.sequence, self.time);
        if let Some(thread) = self.threads.get_mut(&stream) {
            let record = |tables: &mut Tables, out: &mut Writer| tables.write_switch(out, sequence);
            thread.write(record);
            thread.write(|tables, out| tables.write_time(out, time));
            return;
        }
        let mut tables = Tables::new();
        tables.reset(sequence, time);
        let head = ChunkHead {
            stream,
            sequence,
            time,
            ..ChunkHead::default()
        };
        let thread = Thread {
            tables,
            bytes: Vec::new(),
            head,
            stack: Vec::new(),
            n_events: 0,
        };
        self.threads.insert(stream, thread);
        self.register(Entry::Thread {
            stream,
            os_id: 4710 + stream,
            time,
        });
        let name = name.as_bytes();
        self.register(Entry::ThreadName { stream, name });
    }

    fn thread(&mut self) -> &mut Thread {
        self.threads
            .get_mut(&self.current)
            .expect("made by switch_to")
    }

    fn statement(&mut self, statement: &str) {
        let words: Vec<&str> = statement.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match words[0] {
            "alloc" => self.alloc(&words[1..]),
            "free" => {
                let address = self.blocks[words[1]];
                self.thread()
                    .event(|tables, out| tables.write_free(out, address));
            }
            "unmap" => {
                let (name, offset) = words[1].split_once('+').unwrap_or((words[1], "0"));
                let address = self.blocks[name] + offset.parse::<u64>().expect("an offset");
                let length = number(2);
                self.thread()
                    .event(|tables, out| tables.write_free_range(out, address, length));
            }
            "job" => {
                let job = number(1) as u32;
                let name = words.get(2).map_or("", |name| name);
                let n_names = self.job_names.len() as u32;
                let name_number = match job {
                    0 => 0,
                    _ => *self.job_names.entry(name.to_owned()).or_insert(n_names + 1),
                };
                if job != 0 && self.jobs.insert(job) {
                    let time = self.time;
                    self.register(Entry::JobBegan(JobBegan {
                        number: job,
                        name_number,
                        parent: 0,
                        thread: 4711,
                        time,
                        unix_ns: header().started_unix_ns + time * 1_000,
                        name: name.as_bytes(),
                        key: words.get(3).map(|key| key.as_bytes()),
                        labels: b"",
                    }));
                }
                self.thread()
                    .write(|tables, out| tables.write_job(out, job, name_number));
            }
            "job_end" => {
                let job = number(1) as u32;
                let outcome = words.get(2).and_then(|name| Outcome::from_name(name));
                let time = self.time;
                self.thread()
                    .write(|tables, out| tables.write_job_end(out, job));
                self.register(Entry::JobEnded(JobEnded {
                    number: job,
                    time,
                    unix_ns: header().started_unix_ns + time * 1_000,
                    outcome: outcome.unwrap_or(Outcome::Ok),
                    error: b"",
                }));
            }
            "refuse" => self.thread().event(|tables, out| tables.write_unfree(out)),
            "thread" => self.switch_to(number(1) as u32, words.get(2).unwrap_or(&"worker")),
            "time" => {
                let time = number(1);
                self.time = time;
                self.thread()
                    .write(|tables, out| tables.write_time(out, time));
            }
            "resident" => {
                let (time, bytes) = (self.time, number(1));
                self.register(Entry::Resident { time, bytes });
            }
            "limit" => self.register(Entry::Limit { bytes: number(1) }),
            "own" => self.register(Entry::OwnMemory { bytes: number(1) }),
            "part" => {
                let name = |part: &MemoryPart| format!("{part:?}") == words[1];
                let part = MemoryPart::ALL.into_iter().find(name).expect("a part");
                let bytes = number(2);
                self.register(Entry::Memory { part, bytes });
            }
            "lost" => self.register(Entry::Lost {
                reason: Lost::WriteFailed,
                count: number(1),
            }),
            "stopped" => {
                self.stopped = Some(StopMark {
                    time: number(1),
                    n_dropped: number(2),
                    reason: words[3..].join(" "),
                });
            }
            "end" => self.register(Entry::End { time: number(1) }),
            other => panic!("no such statement: {other}"),
        }
    }

    /// `name size [allocator] [at frames]`
    fn alloc(&mut self, words: &[&str]) {
        let size: u64 = words[1].parse().expect("a size");
        let mut rest = &words[2..];
        let mut allocator = Allocator::Malloc;
        if let Some(&name) = rest.first().filter(|&&word| word != "at") {
            let is_named = |known: &Allocator| known.name().eq_ignore_ascii_case(name);
            allocator = Allocator::ALL
                .into_iter()
                .find(is_named)
                .expect("an allocator");
            rest = &rest[1..];
        }
        let path = rest.get(1..).unwrap_or_default().join(" ");
        let frames = path.split(" > ").filter(|frame| !frame.is_empty());
        let frames: Vec<Frame> = frames.map(|frame| self.frame(frame)).collect();
        let address = *self.blocks.entry(words[0].to_owned()).or_insert_with(|| {
            let address = self.next_address;
            // Blocks may be larger than any address space, as in a damaged file.
            self.next_address += size.min(1 << 40).next_multiple_of(4096) + 4096;
            address
        });
        let thread = self.thread();
        thread.change_stack(&frames);
        thread.event(|tables, out| tables.write_alloc(out, allocator, size, address));
    }

    fn frame(&mut self, text: &str) -> Frame {
        let text = text.replace("%3b", ";");
        let text = text.as_str();
        let (text, line) = match text.rsplit_once(':') {
            Some((text, line)) => (text, line.parse().expect("a line")),
            None => (text, 1),
        };
        let (name, file) = text.split_once('@').unwrap_or((text, "/srv/job/job.py"));
        let key = (name.to_owned(), file.to_owned());
        let id = self.codes.get(&key).copied().unwrap_or_else(|| {
            let id = self.codes.len() as u32 + 1;
            self.register(Entry::Code(Code {
                id,
                first_line: 1,
                name: name.as_bytes(),
                qualifier: b"",
                file: file.as_bytes(),
                line_table: &line_table(),
            }));
            self.codes.insert(key, id);
            id
        });
        Frame {
            code: id,
            instruction: line - 1,
        }
    }

    fn finish(mut self, header: &Header) -> Vec<u8> {
        let mut bytes = header.to_bytes();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        if let Some(mark) = &self.stopped {
            bytes.extend_from_slice(&extent_with(mark));
        }
        let mut packer = Packer::new();
        for (number, chunk) in std::mem::take(&mut self.registry).iter().enumerate() {
            let head = ChunkHead {
                number: number as u32,
                ..ChunkHead::default()
            };
            let head = BlockHead {
                chunk: head,
                ..BlockHead::default()
            };
            bytes.extend_from_slice(packer.block(head, chunk));
        }
        let mut streams: Vec<u32> = self.threads.keys().copied().collect();
        streams.sort_unstable();
        for stream in streams {
            let thread = &self.threads[&stream];
            let head = BlockHead {
                chunk: thread.head,
                n_events: thread.n_events,
                last_sequence: thread.tables.sequence(),
                ..BlockHead::default()
            };
            bytes.extend_from_slice(packer.block(head, &thread.bytes));
        }
        bytes
    }
}

impl Thread {
    fn write(&mut self, record: impl FnOnce(&mut Tables, &mut Writer)) {
        let mut buffer = [0; 64];
        let mut out = Writer::new(&mut buffer);
        record(&mut self.tables, &mut out);
        let len = out.len();
        self.bytes.extend_from_slice(&buffer[..len]);
        assert!(
            self.bytes.len() < BUFFER_BYTES,
            "the builder writes one chunk per thread"
        );
    }

    fn event(&mut self, record: impl FnOnce(&mut Tables, &mut Writer)) {
        self.n_events += 1;
        self.write(record);
    }

    fn change_stack(&mut self, frames: &[Frame]) {
        let pairs = self.stack.iter().zip(frames);
        let n_common = pairs.take_while(|(one, other)| one == other).count();
        let n_gone = self.stack.len() - n_common;
        if n_gone > 0 {
            self.write(|tables, out| tables.write_pop(out, n_gone));
        }
        for &frame in &frames[n_common..] {
            self.write(|tables, out| tables.write_push(out, frame));
        }
        self.stack = frames.to_vec();
    }
}

/// An extent that has a mark and no slots.
fn extent_with(mark: &StopMark) -> Vec<u8> {
    let head = ExtentHead {
        area_len: 4096,
        slots_offset: 4096,
        slot_len: 4096,
        n_slots: 0,
    };
    let mut area = head.to_bytes().to_vec();
    area.resize(StopMark::AT, 0);
    area.extend_from_slice(&mark.to_bytes());
    area.resize(head.area_len as usize, 0);
    area
}

/// One code unit per line, in the format of Python 3.11 and later.
fn line_table() -> Vec<u8> {
    let unit = 0x80 | 13 << 3;
    let mut bytes = vec![unit, 0];
    for _ in 1..N_LINES {
        bytes.extend_from_slice(&[unit, 2]);
    }
    bytes
}
