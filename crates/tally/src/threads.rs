//! The state of each thread between its events: its previous free, which may be undone, and the call tree of its current
//! chunk, translated to the stacks of the capture.

use crate::encoding::{Decoder, Encoder};
use crate::index::{Index, hash};
use crate::jobs::JobKey;
use crate::live_blocks::Block;
use crate::ranges::{Ranges, Released};
use crate::recent::Recent;
use crate::stacks::{StackId, Stacks};
use heaptide_capture::DecodedChunk;

/// The stack of a node of the current chunk, and the site it was last used for.
#[derive(Clone, Copy)]
pub(crate) struct NodeSlot {
    stack: StackId,
    pub site: u32,
    /// The allocator of the site; 0 until the node is used for a site.
    pub allocator: u8,
    /// Whether the caller's filter selects the site.
    pub is_wanted: bool,
    /// The bin of time in which blocks are counted under `site`.
    pub epoch: u16,
    /// The job of the site.
    pub job: JobKey,
}

impl NodeSlot {
    const UNKNOWN: NodeSlot = NodeSlot {
        stack: StackId(u32::MAX),
        site: 0,
        allocator: 0,
        is_wanted: false,
        epoch: 0,
        job: JobKey::NONE,
    };
}

#[derive(Default)]
pub(crate) enum LastFree {
    #[default]
    Nothing,
    Block {
        address: u64,
        block: Block,
        /// Its position among the recent allocations, if the block was temporary.
        recent_position: Option<usize>,
    },
    Pieces {
        pieces: Vec<Released>,
        recent_position: Option<usize>,
    },
}

impl LastFree {
    /// Returns the numbers of the sites or cohorts whose blocks are live again if the free is undone.
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
    /// The job of its next allocation.
    pub job: JobKey,
}

impl Thread {
    /// Returns the stack of a node of the current chunk. A stack gets its number at its first allocation, so that numbers
    /// do not depend on the boundaries of chunks or checkpoints.
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
            // Parents precede their children; otherwise this could loop forever.
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
    /// Unused translations, for the next chunks.
    spare: Vec<Vec<NodeSlot>>,
}

impl Threads {
    /// Returns the index of the thread of a stream.
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

    /// Moves a thread out, so that it can be changed together with the rest of the tally.
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

    /// Makes `thread.nodes` the translation of this chunk, which is filled on demand.
    pub fn map_chunk(&mut self, thread: &mut Thread, chunk: &DecodedChunk) {
        let identity = Some((chunk.head.number, chunk.head.generation));
        if thread.chunk == identity && thread.nodes.len() == chunk.nodes.len() {
            return;
        }
        // A later part of the chunk has the same nodes and possibly more.
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

    /// Drops the translation of a finished chunk. A program may have started a million threads.
    pub fn forget_chunk(&mut self, thread: &mut Thread) {
        thread.chunk = None;
        self.spare.push(std::mem::take(&mut thread.nodes));
    }

    /// Makes the counts of all frees that may be undone fixed-point numbers.
    pub fn make_fixed_point(&mut self) {
        for thread in &mut self.threads {
            if let LastFree::Pieces { pieces, .. } = &mut thread.last_free {
                for piece in pieces {
                    piece.amount.make_fixed_point();
                }
            }
        }
    }

    /// Returns the numbers of sites or cohorts with a free that may still be undone.
    pub fn with_undoable_frees(&self) -> impl Iterator<Item = u32> + '_ {
        self.threads
            .iter()
            .flat_map(|thread| thread.last_free.numbers())
    }

    /// Writes the last free of each thread. The rest of a thread's state is in its chunk.
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
                    // No block is at address 0, so 0 means that pieces of ranges follow.
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

    /// Reads the threads. Also returns the number of threads with a free that may be undone.
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
                        recent_position: None,
                    }
                }
                address => LastFree::Block {
                    address,
                    block: Block {
                        size: input.number()?,
                        site: input.site(n_sites)?,
                    },
                    recent_position: None,
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
