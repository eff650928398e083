//! What a tally remembers of each thread between its events: its previous release, which may be taken back, and the
//! call tree of the chunk it is in, translated into the capture's.

use super::index::{Index, hash};
use super::live::Block;
use super::ranges::Released;
use super::stacks::{StackId, Stacks};
use crate::decode::DecodedChunk;

/// What a node of the present chunk is in the capture, and the site it was last used for.
#[derive(Clone, Copy)]
pub(super) struct NodeSlot {
    pub stack: StackId,
    pub site: u32,
    /// 0: not used for a site yet.
    pub allocator: u8,
}

#[derive(Default)]
pub(super) enum LastFree {
    #[default]
    Nothing,
    Block {
        address: u64,
        block: Block,
    },
    Pieces(Vec<Released>),
}

#[derive(Default)]
pub(super) struct Thread {
    pub stream: u32,
    /// Number and generation of the chunk that `nodes` translates.
    chunk: Option<(u32, u32)>,
    pub nodes: Vec<NodeSlot>,
    pub last_free: LastFree,
}

#[derive(Default)]
pub(super) struct Threads {
    threads: Vec<Thread>,
    index: Index,
    /// Translations that are not in use, for the next chunk.
    spare: Vec<Vec<NodeSlot>>,
}

impl Threads {
    /// Where the thread of a stream is kept.
    pub fn slot(&mut self, stream: u32) -> usize {
        let threads = &mut self.threads;
        let key = hash(stream.into());
        if let Some(at) = self
            .index
            .find(key, |at| threads[at as usize].stream == stream)
        {
            return at as usize;
        }
        let at = threads.len();
        threads.push(Thread {
            stream,
            ..Thread::default()
        });
        self.index.insert(key, at as u32, |at| {
            hash(threads[at as usize].stream.into())
        });
        at
    }

    /// Lends a thread out, so that it can be used beside the rest of the tally.
    pub fn take(&mut self, slot: usize) -> Thread {
        let stream = self.threads[slot].stream;
        let lent = Thread {
            stream,
            ..Thread::default()
        };
        std::mem::replace(&mut self.threads[slot], lent)
    }

    pub fn put_back(&mut self, slot: usize, thread: Thread) {
        self.threads[slot] = thread;
    }

    /// Makes `thread.nodes` the translation of this chunk.
    pub fn map_chunk(&mut self, thread: &mut Thread, chunk: &DecodedChunk, stacks: &mut Stacks) {
        let identity = Some((chunk.head.number, chunk.head.generation));
        if thread.chunk == identity && thread.nodes.len() == chunk.nodes.len() {
            return;
        }
        thread.chunk = identity;
        if thread.nodes.capacity() == 0 {
            thread.nodes = self.spare.pop().unwrap_or_default();
        }
        thread.nodes.clear();
        for (at, node) in chunk.nodes.iter().enumerate() {
            let parent = thread.nodes.get(node.parent as usize);
            let stack = match parent {
                Some(parent) if at > 0 => stacks.intern(parent.stack, node.frame),
                _ => StackId::EMPTY,
            };
            thread.nodes.push(NodeSlot {
                stack,
                site: 0,
                allocator: 0,
            });
        }
    }

    /// The chunk is done: its translation is not needed any more. Programs may have had a million threads.
    pub fn forget_chunk(&mut self, thread: &mut Thread) {
        thread.chunk = None;
        self.spare.push(std::mem::take(&mut thread.nodes));
    }

    pub fn heap_bytes(&self) -> usize {
        let in_use = self.threads.iter().map(|thread| thread.nodes.capacity());
        let spare = self.spare.iter().map(Vec::capacity);
        self.threads.capacity() * size_of::<Thread>()
            + in_use.chain(spare).sum::<usize>() * size_of::<NodeSlot>()
            + self.index.heap_bytes()
    }
}
