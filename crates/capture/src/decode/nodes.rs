//! The call tree of a chunk, and an index that finds a frame below its caller.

use crate::event::Frame;

/// A node of the chunk's call tree. Node 0 is the root and has no frame; parents precede their children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Node {
    pub parent: u32,
    pub frame: Frame,
}

pub(super) const ROOT: u32 = 0;

/// Finds the child of a node by its frame: open addressing over `nodes`, which hold the keys.
///
/// After [`NodeIndex::MAX_STEPS`] a search stops and adds a second node for the same stack. That costs a little
/// memory, but a crafted file with many collisions cannot make decoding slow.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeIndex {
    /// Indices into `nodes`. 0 marks an empty slot, because the root is never a child. The length is a power of two.
    slots: Vec<u32>,
}

impl NodeIndex {
    const MAX_STEPS: usize = 16;
    const SMALLEST: usize = 1024;

    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }

    /// Forgets all nodes and shrinks to the initial size.
    pub(super) fn clear(&mut self) {
        self.slots.truncate(NodeIndex::SMALLEST);
        self.slots.fill(ROOT);
        self.slots.resize(NodeIndex::SMALLEST, ROOT);
    }

    #[inline(always)]
    pub(super) fn child(&mut self, nodes: &mut Vec<Node>, parent: u32, frame: Frame) -> u32 {
        let wanted = Node { parent, frame };
        let first = self.first_slot(&wanted);
        let node = self.slots[first];
        if node != ROOT && nodes[node as usize] == wanted {
            return node;
        }
        self.search_or_add(nodes, wanted, first)
    }

    #[inline(never)]
    fn search_or_add(&mut self, nodes: &mut Vec<Node>, wanted: Node, first: usize) -> u32 {
        let mask = self.slots.len() - 1;
        let added = nodes.len() as u32;
        for step in 0..NodeIndex::MAX_STEPS {
            let slot = &mut self.slots[(first + step) & mask];
            if *slot == ROOT {
                *slot = added;
                break;
            }
            if nodes[*slot as usize] == wanted {
                return *slot;
            }
        }
        nodes.push(wanted);
        if nodes.len() * 2 > self.slots.len() {
            self.grow(nodes);
        }
        added
    }

    fn grow(&mut self, nodes: &[Node]) {
        let len = self.slots.len() * 2;
        self.slots.clear();
        self.slots.resize(len, ROOT);
        for (index, node) in nodes.iter().enumerate().skip(1) {
            let first = self.first_slot(node);
            let free = (first..first + NodeIndex::MAX_STEPS)
                .map(|slot| slot & (len - 1))
                .find(|slot| self.slots[*slot] == ROOT);
            if let Some(slot) = free {
                self.slots[slot] = index as u32;
            }
        }
    }

    #[inline(always)]
    fn first_slot(&self, node: &Node) -> usize {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let frame = u64::from(node.frame.code) << 32 | u64::from(node.frame.instruction);
        let mixed = (frame ^ u64::from(node.parent).rotate_left(40)).wrapping_mul(SPREAD);
        (mixed >> 32) as usize & (self.slots.len() - 1)
    }
}
