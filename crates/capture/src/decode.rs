//! A chunk's bytes as flat arrays: operations, stacks, order and times.
//!
//! Everything in a [`DecodedChunk`] is local to the chunk; readers join the call trees of several chunks. Any bytes can be
//! decoded: at an invalid record, decoding stops and `complete` is false.

mod nodes;

use crate::area::ChunkHead;
use crate::event::{Frame, Record, Tables};
use crate::wire::Reader;

pub use nodes::Node;
use nodes::{NodeIndex, ROOT};

/// One allocation or free, or the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Op {
    /// The block's first byte; 0 for [`OpAction::Unfree`], the number of the job for [`OpAction::JobEnd`].
    pub address: u64,
    /// Requested bytes, or the length of a freed range; 0 otherwise.
    pub size: u64,
    /// The call stack: its innermost frame in [`DecodedChunk::nodes`]. A free has the stack of the
    /// thread's last allocation, because frees are recorded without a stack.
    pub node: u32,
    pub action: OpAction,
    /// The number of an allocation's [`crate::Allocator`], always a valid one; 0 for a free.
    pub allocator: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum OpAction {
    #[default]
    Alloc,
    /// The block that begins at the address is freed.
    Free,
    /// `size` bytes from the address on are freed. They may belong to several blocks, or to parts of them.
    FreeRange,
    /// The previous free of the same thread, perhaps in an earlier chunk, did not happen.
    Unfree,
    /// The job whose number is in the address ended.
    JobEnd,
}

/// The sequence number, in the order of all threads, of the operations from `first_op` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub sequence: u64,
    pub first_op: u32,
}

/// The time, in clock units, of the operations from `first_op` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeMark {
    pub time: u64,
    pub first_op: u32,
}

/// The job of the allocations from `first_op` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct JobMark {
    /// 0 is no job.
    pub job: u32,
    /// The number of the job's name.
    pub name: u32,
    pub first_op: u32,
}

/// The events of one chunk, ready for replay. Decoding again reuses the memory.
#[derive(Clone, Debug, Default)]
pub struct DecodedChunk {
    pub head: ChunkHead,
    pub ops: Vec<Op>,
    /// The call tree. The same stack has, with rare exceptions, the same node throughout the chunk.
    pub nodes: Vec<Node>,
    /// Never empty: the first segment starts at operation 0 with the head's sequence number.
    pub segments: Vec<Segment>,
    /// Never empty: the first mark is at operation 0. A chunk that begins with a time record starts at that time.
    pub times: Vec<TimeMark>,
    /// Empty if no allocation belongs to a job. Allocations before the first mark belong to none.
    pub jobs: Vec<JobMark>,
    /// False if the payload contains an invalid record, at which decoding stopped.
    pub complete: bool,
    /// False if only a part of the chunk is decoded, to save memory, and another part follows. The next part has other
    /// operations and the same nodes, possibly more.
    pub is_last: bool,
    /// In a part: number of the chunk's operations before it.
    pub first_op: usize,
    index: NodeIndex,
}

impl DecodedChunk {
    pub fn new() -> DecodedChunk {
        DecodedChunk::default()
    }

    /// Replaces the content by the events in `raw`, the unpacked payload of a chunk with this head.
    pub fn decode(&mut self, head: &ChunkHead, raw: &[u8]) {
        self.reset(head);
        self.run::<false>(&mut DecodeState::new(head), raw, usize::MAX);
    }

    /// Replaces the operations by the next part of the chunk, about `max_ops` operations. A new `state` begins with the
    /// first part.
    pub fn decode_part(
        &mut self,
        head: &ChunkHead,
        state: &mut DecodeState,
        raw: &[u8],
        max_ops: usize,
    ) {
        if state.position == 0 {
            self.reset(head);
        } else {
            self.first_op += self.ops.len();
            self.ops.clear();
            let job = self.jobs.last().copied();
            self.jobs.clear();
            self.jobs
                .extend(job.map(|job| JobMark { first_op: 0, ..job }));
            self.begin_at(state.tables.sequence(), state.tables.time());
        }
        self.run::<true>(state, raw, max_ops);
    }

    /// Decodes records. `IS_PART` is a constant, so that the loop over a whole chunk does not compare with `max_ops`.
    fn run<const IS_PART: bool>(&mut self, state: &mut DecodeState, raw: &[u8], max_ops: usize) {
        let tables = &mut state.tables;
        let rest = raw.get(state.position..).unwrap_or_default();
        let mut input = Reader::new(rest);
        let mut node = state.node;
        loop {
            let start = input.position();
            if IS_PART && self.ops.len() >= max_ops {
                state.position += start;
                state.node = node;
                self.complete = true;
                self.is_last = false;
                return;
            }
            let Some(record) = tables.read(&mut input) else {
                self.complete = start == rest.len();
                self.is_last = true;
                return;
            };
            match record {
                Record::Alloc {
                    address,
                    size,
                    allocator,
                } => self.ops.push(Op {
                    address,
                    size,
                    node,
                    action: OpAction::Alloc,
                    allocator: allocator as u8,
                }),
                Record::Free { address } => self.push_free(OpAction::Free, address, 0, node),
                Record::Push(frame) => node = self.index.child(&mut self.nodes, node, frame),
                Record::Pop(n_frames) => node = self.ancestor(node, n_frames),
                Record::Time(time) => self.mark_time(time),
                Record::Switch(sequence) => self.segments.push(Segment {
                    sequence,
                    first_op: self.ops.len() as u32,
                }),
                Record::FreeRange { address, length } => {
                    self.push_free(OpAction::FreeRange, address, length, node);
                }
                Record::Unfree => self.push_free(OpAction::Unfree, 0, 0, node),
                Record::Job { number, name } => self.mark_job(number, name),
                Record::JobEnd { number } => {
                    self.push_free(OpAction::JobEnd, number.into(), 0, node);
                }
            }
        }
    }

    /// Begins an empty chunk for readers of other profilers' captures, which add operations one by one.
    pub fn begin(&mut self, head: &ChunkHead) {
        self.reset(head);
        self.complete = true;
        self.is_last = true;
    }

    /// Returns the node of a frame called from another node.
    #[inline(always)]
    pub fn child(&mut self, parent: u32, frame: Frame) -> u32 {
        self.index.child(&mut self.nodes, parent, frame)
    }

    fn reset(&mut self, head: &ChunkHead) {
        self.head = *head;
        self.ops.clear();
        self.first_op = 0;
        self.nodes.clear();
        self.nodes.push(Node::default());
        self.jobs.clear();
        self.begin_at(head.sequence, head.time);
        self.index.clear();
        self.complete = false;
        self.is_last = false;
    }

    fn begin_at(&mut self, sequence: u64, time: u64) {
        self.segments.clear();
        self.segments.push(Segment {
            sequence,
            first_op: 0,
        });
        self.times.clear();
        self.times.push(TimeMark { time, first_op: 0 });
    }

    #[inline(always)]
    fn push_free(&mut self, action: OpAction, address: u64, size: u64, node: u32) {
        self.ops.push(Op {
            address,
            size,
            node,
            action,
            allocator: 0,
        });
    }

    /// Returns the node `n_frames` above. The root is its own parent, so a damaged count ends there.
    #[inline(always)]
    fn ancestor(&self, mut node: u32, n_frames: u32) -> u32 {
        for _ in 0..n_frames {
            if node == ROOT {
                break;
            }
            node = self.nodes[node as usize].parent;
        }
        node
    }

    /// Sets the time, in clock units, of the next operation and those after it.
    pub fn mark_time(&mut self, time: u64) {
        let first_op = self.ops.len() as u32;
        match self.times.last_mut() {
            Some(last) if last.first_op == first_op => last.time = time,
            _ => self.times.push(TimeMark { time, first_op }),
        }
    }

    fn mark_job(&mut self, job: u32, name: u32) {
        let first_op = self.ops.len() as u32;
        let mark = JobMark {
            job,
            name,
            first_op,
        };
        match self.jobs.last_mut() {
            Some(last) if last.first_op == first_op => *last = mark,
            _ => self.jobs.push(mark),
        }
    }

    /// Returns the bytes that the chunk takes in memory. They limit the number of chunks that are held at once.
    pub fn heap_bytes(&self) -> usize {
        self.ops.capacity() * size_of::<Op>()
            + self.nodes.capacity() * size_of::<Node>()
            + self.segments.capacity() * size_of::<Segment>()
            + self.times.capacity() * size_of::<TimeMark>()
            + self.jobs.capacity() * size_of::<JobMark>()
            + self.index.heap_bytes()
    }
}

/// The state of decoding a chunk between two of its parts.
pub struct DecodeState {
    tables: Tables,
    /// Offset of the next record in the payload.
    position: usize,
    node: u32,
}

impl DecodeState {
    pub fn new(head: &ChunkHead) -> DecodeState {
        let mut tables = Tables::new();
        tables.reset(head.sequence, head.time);
        DecodeState {
            tables,
            position: 0,
            node: ROOT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Allocator;
    use crate::event::MAX_RECORD_BYTES;
    use crate::wire::Writer;
    use proptest::prelude::*;

    fn frame(code: u32) -> Frame {
        Frame {
            code,
            instruction: 7,
        }
    }

    fn decoded(write: impl FnOnce(&mut Tables, &mut Writer)) -> DecodedChunk {
        let mut bytes = vec![0; 1 << 16];
        let mut out = Writer::new(&mut bytes);
        let mut tables = Tables::new();
        tables.reset(5, 100);
        write(&mut tables, &mut out);
        let len = out.len();
        let mut chunk = DecodedChunk::new();
        let head = ChunkHead {
            sequence: 5,
            time: 100,
            ..ChunkHead::default()
        };
        chunk.decode(&head, &bytes[..len]);
        chunk
    }

    fn frames_of(chunk: &DecodedChunk, mut node: u32) -> Vec<u32> {
        let mut codes = Vec::new();
        while node != ROOT {
            codes.push(chunk.nodes[node as usize].frame.code);
            node = chunk.nodes[node as usize].parent;
        }
        codes
    }

    #[test]
    fn operation_is_24_bytes() {
        assert_eq!(size_of::<Op>(), 24);
    }

    #[test]
    fn same_stack_has_the_same_node() {
        let chunk = decoded(|tables, out| {
            for _ in 0..2 {
                tables.write_push(out, frame(1));
                tables.write_push(out, frame(2));
                tables.write_alloc(out, Allocator::Malloc, 8, 0x1000);
                tables.write_pop(out, 1);
                tables.write_push(out, frame(3));
                tables.write_alloc(out, Allocator::Malloc, 8, 0x2000);
                tables.write_pop(out, 2);
            }
        });
        assert!(chunk.complete);
        assert_eq!(chunk.nodes.len(), 4);
        assert_eq!(frames_of(&chunk, chunk.ops[0].node), [2, 1]);
        assert_eq!(frames_of(&chunk, chunk.ops[1].node), [3, 1]);
        assert_eq!(chunk.ops[0].node, chunk.ops[2].node);
        assert_eq!(chunk.ops[1].node, chunk.ops[3].node);
    }

    #[test]
    fn segments_and_times_name_their_first_operation() {
        let chunk = decoded(|tables, out| {
            tables.write_alloc(out, Allocator::Calloc, 8, 0x1000);
            tables.write_time(out, 150);
            tables.write_time(out, 160);
            tables.write_free(out, 0x1000);
            tables.write_switch(out, 9);
            tables.write_free_range(out, 0x3000, 4096);
            tables.write_unfree(out);
        });
        let actions: Vec<_> = chunk.ops.iter().map(|op| op.action).collect();
        assert_eq!(
            actions,
            [
                OpAction::Alloc,
                OpAction::Free,
                OpAction::FreeRange,
                OpAction::Unfree
            ]
        );
        assert_eq!(chunk.ops[0].allocator, Allocator::Calloc as u8);
        assert_eq!(chunk.ops[2].size, 4096);
        let segments: Vec<_> = chunk
            .segments
            .iter()
            .map(|s| (s.sequence, s.first_op))
            .collect();
        assert_eq!(segments, [(5, 0), (9, 2)]);
        let times: Vec<_> = chunk.times.iter().map(|t| (t.time, t.first_op)).collect();
        assert_eq!(times, [(100, 0), (160, 1)]);
    }

    #[test]
    fn more_pops_than_frames_end_at_the_root() {
        let chunk = decoded(|tables, out| {
            tables.write_push(out, frame(1));
            tables.write_pop(out, u32::MAX as usize);
            tables.write_alloc(out, Allocator::Malloc, 8, 0x1000);
            tables.write_push(out, frame(2));
            tables.write_alloc(out, Allocator::Malloc, 8, 0x1000);
        });
        assert_eq!(chunk.ops[0].node, ROOT);
        assert_eq!(frames_of(&chunk, chunk.ops[1].node), [2]);
    }

    #[test]
    fn records_before_an_invalid_one_are_kept() {
        let mut bytes = [0; MAX_RECORD_BYTES + 1];
        let mut out = Writer::new(&mut bytes);
        Tables::new().write_alloc(&mut out, Allocator::Malloc, 8, 0x1000);
        out.u8(0x3f);
        let len = out.len();
        let mut chunk = DecodedChunk::new();
        chunk.decode(&ChunkHead::default(), &bytes[..len]);
        assert!(!chunk.complete);
        assert_eq!(chunk.ops.len(), 1);
    }

    #[test]
    fn thousands_of_distinct_stacks_get_distinct_nodes() {
        let mut nodes = vec![Node::default()];
        let mut index = NodeIndex::default();
        index.clear();
        let made: Vec<u32> = (0..20_000)
            .map(|n| index.child(&mut nodes, n / 7, frame(n)))
            .collect();
        for (n, node) in made.iter().enumerate() {
            let expected = Node {
                parent: n as u32 / 7,
                frame: frame(n as u32),
            };
            assert_eq!(nodes[*node as usize], expected);
        }
        assert!(made.windows(2).all(|pair| pair[0] < pair[1]));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_a_tree_whose_parents_come_first(raw in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut chunk = DecodedChunk::new();
            chunk.decode(&ChunkHead::default(), &raw);
            for (index, node) in chunk.nodes.iter().enumerate().skip(1) {
                prop_assert!((node.parent as usize) < index);
            }
            for op in &chunk.ops {
                prop_assert!((op.node as usize) < chunk.nodes.len());
                prop_assert!(op.action != OpAction::Alloc || Allocator::from_number(op.allocator).is_some());
            }
            prop_assert!(chunk.segments.is_sorted_by_key(|segment| segment.first_op));
            prop_assert!(chunk.segments.iter().all(|segment| segment.first_op as usize <= chunk.ops.len()));
        }
    }
}
