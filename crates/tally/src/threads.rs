//! What a tally remembers of each thread between its events: its previous release, which may be taken back, and the
//! call tree of the chunk it is in, translated into the capture's.

use crate::encoding::{Decoder, Encoder};
use crate::index::{Index, hash};
use crate::live_blocks::Block;
use crate::ranges::{Ranges, Released};
use crate::recent::Recent;
use crate::stacks::{StackId, Stacks};
use heaptide_capture::DecodedChunk;

/// What a node of the present chunk is in the capture, and the site it was last used for.
#[derive(Clone, Copy)]
pub(crate) struct NodeSlot {
    stack: StackId,
    pub site: u32,
    /// 0: not used for a site yet.
    pub allocator: u8,
    /// Of the site.
    pub is_wanted: bool,
    /// The bin of time for which `site` is the number to count under.
    pub epoch: u16,
}

impl NodeSlot {
    const UNKNOWN: NodeSlot = NodeSlot {
        stack: StackId(u32::MAX),
        site: 0,
        allocator: 0,
        is_wanted: false,
        epoch: 0,
    };
}

#[derive(Default)]
pub(crate) enum LastFree {
    #[default]
    Nothing,
    Block {
        address: u64,
        block: Block,
        /// Its place among the recent allocations, if the block was temporary.
        place: Option<usize>,
    },
    Pieces {
        pieces: Vec<Released>,
        place: Option<usize>,
    },
}

impl LastFree {
    /// The numbers of the sites, or their cohorts, that get a block back if the release is taken back.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let (block, pieces): (_, &[Released]) = match self {
            LastFree::Nothing => (None, &[]),
            LastFree::Block { block, .. } => (Some(block.site), &[]),
            LastFree::Pieces { pieces, .. } => (None, pieces),
        };
        block
            .into_iter()
            .chain(pieces.iter().map(|piece| piece.site))
    }
}

#[derive(Default)]
pub(crate) struct Thread {
    pub stream: u32,
    /// Number and generation of the chunk that `nodes` translates.
    chunk: Option<(u32, u32)>,
    pub nodes: Vec<NodeSlot>,
    pub last_free: LastFree,
    pub recent: Recent,
}

impl Thread {
    /// The stack of a node of the chunk that is mapped. Stacks get their numbers when something is first allocated on
    /// them, so that the numbers do not depend on how a thread's events lie in chunks, or on where a checkpoint cuts them.
    pub fn stack_of(&mut self, node: u32, chunk: &DecodedChunk, stacks: &mut Stacks) -> StackId {
        let unknown = NodeSlot::UNKNOWN.stack;
        let mut below = Vec::new();
        let mut at = node;
        let mut stack = loop {
            match self.nodes.get(at as usize) {
                None => return StackId::EMPTY,
                Some(slot) if slot.stack != unknown => break slot.stack,
                Some(_) => below.push(at),
            }
            // Parents stand before their children; anything else would lead round in circles.
            let parent = chunk.nodes[at as usize].parent;
            at = if parent < at { parent } else { 0 };
        };
        while let Some(at) = below.pop() {
            stack = stacks.intern(stack, chunk.nodes[at as usize].frame);
            self.nodes[at as usize].stack = stack;
        }
        stack
    }
}

#[derive(Default)]
pub(crate) struct Threads {
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

    /// Makes `thread.nodes` the translation of this chunk, to be filled in as nodes are asked for.
    pub fn map_chunk(&mut self, thread: &mut Thread, chunk: &DecodedChunk) {
        let identity = Some((chunk.head.number, chunk.head.generation));
        if thread.chunk == identity && thread.nodes.len() == chunk.nodes.len() {
            return;
        }
        // A later part of the chunk has the same nodes, and more.
        let is_further = thread.chunk == identity && thread.nodes.len() < chunk.nodes.len();
        thread.chunk = identity;
        if thread.nodes.capacity() == 0 {
            thread.nodes = self.spare.pop().unwrap_or_default();
        }
        if !is_further {
            thread.nodes.clear();
        }
        thread.nodes.resize(chunk.nodes.len(), NodeSlot::UNKNOWN);
        if let Some(root) = thread.nodes.first_mut() {
            root.stack = StackId::EMPTY;
        }
    }

    /// The chunk is done: its translation is not needed any more. Programs may have had a million threads.
    pub fn forget_chunk(&mut self, thread: &mut Thread) {
        thread.chunk = None;
        self.spare.push(std::mem::take(&mut thread.nodes));
    }

    /// The numbers that releases may still be taken back for.
    pub fn may_come_back(&self) -> impl Iterator<Item = u32> + '_ {
        self.threads
            .iter()
            .flat_map(|thread| thread.last_free.numbers())
    }

    /// What each thread freed last. The rest of a thread is in its chunk.
    pub fn write(&self, ranges: &Ranges, out: &mut Encoder) {
        let may_undo = |thread: &&Thread| !matches!(thread.last_free, LastFree::Nothing);
        let mut threads: Vec<&Thread> = self.threads.iter().filter(may_undo).collect();
        threads.sort_unstable_by_key(|thread| thread.stream);
        out.number(threads.len() as u64);
        for thread in threads {
            out.number(thread.stream.into());
            match &thread.last_free {
                LastFree::Nothing => {}
                LastFree::Block { address, block, .. } => {
                    // No block stands at 0: there it says that pieces of ranges follow.
                    out.number(*address);
                    out.number(block.size);
                    out.number(block.site.into());
                }
                LastFree::Pieces { pieces, .. } => {
                    out.number(0);
                    out.number(pieces.len() as u64);
                    for piece in pieces {
                        ranges.write_released(piece, out);
                    }
                }
            }
        }
    }

    /// The threads, and how many of them have a release that may be taken back.
    pub fn read(input: &mut Decoder, ranges: &Ranges, n_sites: usize) -> Option<(Threads, u64)> {
        let mut threads = Threads::default();
        let n_threads = input.length(3)?;
        for _ in 0..n_threads {
            let slot = threads.slot(input.number32()?);
            let last_free = match input.number()? {
                0 => {
                    let n_pieces = input.length(8)?;
                    let mut pieces = Vec::with_capacity(n_pieces);
                    for _ in 0..n_pieces {
                        pieces.push(ranges.read_released(input, n_sites)?);
                    }
                    LastFree::Pieces {
                        pieces,
                        place: None,
                    }
                }
                address => LastFree::Block {
                    address,
                    block: Block {
                        size: input.number()?,
                        site: input.site(n_sites)?,
                    },
                    place: None,
                },
            };
            threads.threads[slot].last_free = last_free;
        }
        Some((threads, n_threads as u64))
    }

    pub fn heap_bytes(&self) -> usize {
        let in_use = self.threads.iter().map(|thread| thread.nodes.capacity());
        let spare = self.spare.iter().map(Vec::capacity);
        let recent = self.threads.iter().map(|thread| thread.recent.heap_bytes());
        self.threads.capacity() * size_of::<Thread>()
            + recent.sum::<usize>()
            + in_use.chain(spare).sum::<usize>() * size_of::<NodeSlot>()
            + self.index.heap_bytes()
    }
}
