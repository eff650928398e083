//! Threads that record as the agent does: each into its own chunks, with sequence numbers for the order between them.

use heaptide_capture::area::ChunkHead;
use heaptide_capture::event::MAX_RECORD_BYTES;
use heaptide_capture::wire::Writer;
use heaptide_capture::{Allocator, Capture, Damage, Frame, OpAction, Tables};
use heaptide_tally::replay;
use proptest::prelude::*;

/// Deeper stacks would not fit into the smallest chunks.
pub const MAX_DEPTH: usize = 8;
/// The smallest payload in which a stack and a record always fit.
pub const SMALLEST_PAYLOAD: usize = (MAX_DEPTH + 4) * MAX_RECORD_BYTES;

#[derive(Clone, Copy, Debug)]
pub enum Action {
    Alloc {
        address: u64,
        size: u64,
        allocator: Allocator,
    },
    Free {
        address: u64,
    },
    FreeRange {
        address: u64,
        length: u64,
    },
    Unfree,
    Call(Frame),
    Return,
    Tick(u64),
}

/// An operation as the replay must return it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedOp {
    pub stream: u32,
    pub action: OpAction,
    pub address: u64,
    pub size: u64,
    pub allocator: u8,
    /// Outermost first.
    pub stack: Vec<Frame>,
    pub time: u64,
}

#[derive(Clone, Debug)]
pub struct Chunk {
    pub head: ChunkHead,
    pub payload: Vec<u8>,
    pub n_events: u32,
    pub last_sequence: u64,
}

struct Thread {
    tables: Tables,
    chunk: Chunk,
    stack: Vec<Frame>,
}

pub struct Program {
    payload_len: usize,
    threads: Vec<Thread>,
    sequence: u64,
    time: u64,
    /// The thread that recorded last.
    last: Option<usize>,
    pub chunks: Vec<Chunk>,
    pub truth: Vec<ReplayedOp>,
}

impl Program {
    pub fn new(n_threads: usize, payload_len: usize) -> Program {
        assert!(payload_len >= SMALLEST_PAYLOAD);
        let thread = |index| Thread {
            tables: Tables::new(),
            chunk: empty_chunk(index as u32 + 1, 0),
            stack: Vec::new(),
        };
        Program {
            payload_len,
            threads: (0..n_threads).map(thread).collect(),
            sequence: 0,
            time: 1000,
            last: None,
            chunks: Vec::new(),
            truth: Vec::new(),
        }
    }

    pub fn run(&mut self, thread: usize, action: Action) {
        match action {
            Action::Call(frame) => {
                if self.threads[thread].stack.len() < MAX_DEPTH {
                    self.write(thread, |tables, out| tables.write_push(out, frame));
                    self.threads[thread].stack.push(frame);
                }
            }
            Action::Return => {
                // Pop after writing: if the record begins a chunk, the stack at its beginning still has the frame.
                if !self.threads[thread].stack.is_empty() {
                    self.write(thread, |tables, out| tables.write_pop(out, 1));
                    self.threads[thread].stack.pop();
                }
            }
            Action::Tick(units) => self.time += units,
            Action::Alloc {
                address,
                size,
                allocator,
            } => {
                self.write(thread, |tables, out| {
                    tables.write_alloc(out, allocator, size, address)
                });
                self.expect_op(thread, OpAction::Alloc, address, size, allocator as u8);
            }
            Action::Free { address } => {
                self.write(thread, |tables, out| tables.write_free(out, address));
                self.expect_op(thread, OpAction::Free, address, 0, 0);
            }
            Action::FreeRange { address, length } => {
                self.write(thread, |tables, out| {
                    tables.write_free_range(out, address, length)
                });
                self.expect_op(thread, OpAction::FreeRange, address, length, 0);
            }
            Action::Unfree => {
                self.write(thread, |tables, out| tables.write_unfree(out));
                self.expect_op(thread, OpAction::Unfree, 0, 0, 0);
            }
        }
    }

    /// Reserves a sequence number, so that every segment lies wholly before or after it.
    pub fn cut(&mut self) -> u64 {
        self.sequence += 1;
        self.last = None;
        self.sequence
    }

    /// Returns the chunks that threads are filling.
    pub fn unfinished(&self) -> impl Iterator<Item = &Chunk> {
        let chunks = self.threads.iter().map(|thread| &thread.chunk);
        chunks.filter(|chunk| !chunk.payload.is_empty())
    }

    /// Returns all chunks, full or not, and the operations that a replay must return.
    pub fn finish(mut self) -> (Vec<Chunk>, Vec<ReplayedOp>) {
        for thread in 0..self.threads.len() {
            if !self.threads[thread].chunk.payload.is_empty() {
                self.end_chunk(thread);
            }
        }
        (self.chunks, self.truth)
    }

    fn write(&mut self, thread: usize, record: impl FnOnce(&mut Tables, &mut Writer)) {
        if self.last != Some(thread) {
            self.last = Some(thread);
            self.sequence += 1;
        }
        let room_needed = 4 * MAX_RECORD_BYTES;
        if self.threads[thread].chunk.payload.len() + room_needed > self.payload_len {
            self.end_chunk(thread);
        }
        let (sequence, time) = (self.sequence, self.time);
        let Thread {
            tables,
            chunk,
            stack,
        } = &mut self.threads[thread];
        let mut bytes = vec![0; self.payload_len];
        let mut out = Writer::new(&mut bytes);
        if chunk.payload.is_empty() {
            tables.reset(sequence, time);
            chunk.head.sequence = sequence;
            chunk.head.time = time;
            for frame in stack {
                tables.write_push(&mut out, *frame);
            }
        }
        if tables.sequence() != sequence {
            tables.write_switch(&mut out, sequence);
        }
        if tables.time() != time {
            tables.write_time(&mut out, time);
        }
        record(tables, &mut out);
        let len = out.len();
        chunk.payload.extend_from_slice(&bytes[..len]);
        chunk.last_sequence = sequence;
    }

    fn expect_op(
        &mut self,
        thread: usize,
        action: OpAction,
        address: u64,
        size: u64,
        allocator: u8,
    ) {
        if action != OpAction::Unfree {
            self.threads[thread].chunk.n_events += 1;
        }
        self.truth.push(ReplayedOp {
            stream: thread as u32 + 1,
            action,
            address,
            size,
            allocator,
            stack: self.threads[thread].stack.clone(),
            time: self.time,
        });
    }

    fn end_chunk(&mut self, thread: usize) {
        let chunk = &mut self.threads[thread].chunk;
        let next = empty_chunk(chunk.head.stream, chunk.head.number + 1);
        self.chunks.push(std::mem::replace(chunk, next));
    }
}

fn empty_chunk(stream: u32, number: u32) -> Chunk {
    Chunk {
        head: ChunkHead {
            stream,
            number,
            ..ChunkHead::default()
        },
        payload: Vec::new(),
        n_events: 0,
        last_sequence: 0,
    }
}

/// Returns the operations of a replay, and the damage.
pub fn replayed(capture: &Capture) -> (Vec<ReplayedOp>, Vec<Damage>) {
    let mut events = Vec::new();
    let mut n_done = 0;
    let damage = replay(capture, &mut |n| n_done = n, &mut |chunk, ops| {
        assert!(!ops.is_empty());
        for index in ops {
            let op = chunk.ops[index];
            let mut stack = Vec::new();
            let mut node = op.node as usize;
            while node != 0 {
                stack.push(chunk.nodes[node].frame);
                node = chunk.nodes[node].parent as usize;
            }
            stack.reverse();
            let mark = chunk
                .times
                .partition_point(|mark| mark.first_op as usize <= index);
            events.push(ReplayedOp {
                stream: chunk.head.stream,
                action: op.action,
                address: op.address,
                size: op.size,
                allocator: op.allocator,
                stack,
                time: chunk.times[mark - 1].time,
            });
        }
    });
    assert_eq!(n_done, capture.n_events());
    (events, damage)
}

pub fn any_action() -> impl Strategy<Value = Action> {
    let address = prop_oneof![
        8 => (0u64..40).prop_map(|n| 0x7f00_0000_0000 + n * 48),
        1 => any::<u64>()
    ];
    let size = prop_oneof![0u64..6, any::<u64>()];
    let allocator = prop::sample::select(Allocator::ALL.to_vec());
    let frame = prop_oneof![
        8 => (0u32..4, 0u32..4),
        1 => any::<(u32, u32)>()
    ];
    prop_oneof![
        4 => (address.clone(), size, allocator).prop_map(|(address, size, allocator)| Action::Alloc {
            address,
            size,
            allocator,
        }),
        4 => address.clone().prop_map(|address| Action::Free { address }),
        1 => (address, any::<u64>()).prop_map(|(address, length)| Action::FreeRange { address, length }),
        1 => Just(Action::Unfree),
        3 => frame.prop_map(|(code, instruction)| Action::Call(Frame { code, instruction })),
        3 => Just(Action::Return),
        1 => (1u64..100).prop_map(Action::Tick),
    ]
}

/// Runs up to four threads in turns. Each turn is a thread and its actions.
pub fn any_program() -> impl Strategy<Value = (Vec<Chunk>, Vec<ReplayedOp>)> {
    let turn = (0..4usize, prop::collection::vec(any_action(), 1..30));
    let payload_len = SMALLEST_PAYLOAD..2 * SMALLEST_PAYLOAD;
    (prop::collection::vec(turn, 0..60), payload_len).prop_map(|(turns, payload_len)| {
        let mut program = Program::new(4, payload_len);
        for (thread, actions) in turns {
            for action in actions {
                program.run(thread, action);
            }
        }
        program.finish()
    })
}
