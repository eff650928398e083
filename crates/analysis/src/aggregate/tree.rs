//! The call tree that leads to each allocation.

use rustc_hash::FxHashMap;

use super::{amount, quality};
use crate::load::Session;
use crate::model::{Measure, NodeContent, Tree, TreeNode};
use crate::symbols::LocationId;

/// Limits on the part of the tree to show.
#[derive(Clone, Copy, Debug)]
pub struct TreeLimits {
    /// The number of stacks, the largest first; one leaf sums up the others.
    pub n_biggest: usize,
    /// The largest depth in frames, if limited.
    pub max_depth: Option<usize>,
    /// One leaf sums up the sibling nodes with a smaller share of the whole.
    pub min_percent: f64,
}

/// The mapping of frames to nodes of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeShape {
    /// Whether the allocating function is at the root, with its callers below.
    pub is_inverted: bool,
    /// Whether the lines of a function are merged into one node.
    pub by_function: bool,
}

struct Building {
    location: Option<LocationId>,
    parent: usize,
    bytes: u64,
    count: u64,
    children: Vec<usize>,
}

pub fn tree(session: &Session, measure: Measure, limits: TreeLimits, shape: TreeShape) -> Tree {
    let merged = shape.by_function.then(|| by_function(session));
    let node_of = |id: LocationId| match &merged {
        Some(first) => first[id.0 as usize],
        None => id,
    };
    let mut nodes = vec![Building {
        location: None,
        parent: 0,
        bytes: 0,
        count: 0,
        children: Vec::new(),
    }];
    let mut known: FxHashMap<(usize, Option<LocationId>), usize> = FxHashMap::default();
    // One stack may have several sites (threads, allocators); it is one leaf of the tree.
    let mut leaves: FxHashMap<usize, (u64, u64)> = FxHashMap::default();
    for process in &session.processes {
        for site in &process.sums.sites {
            let amount = amount(measure, site);
            if amount.count == 0 && amount.bytes == 0 {
                continue;
            }
            let frames = process.frames(site.stack);
            let frames = frames.chain(process.job_root(site.job));
            let mut path: Vec<Option<LocationId>> = frames.map(|id| Some(node_of(id))).collect();
            if shape.is_inverted {
                path.reverse();
            }
            if path.is_empty() {
                path.push(None);
            }
            let mut at = 0;
            for &location in path.iter().rev() {
                at = *known.entry((at, location)).or_insert_with(|| {
                    nodes.push(Building {
                        location,
                        parent: at,
                        bytes: 0,
                        count: 0,
                        children: Vec::new(),
                    });
                    let child = nodes.len() - 1;
                    nodes[at].children.push(child);
                    child
                });
            }
            let leaf = leaves.entry(at).or_default();
            leaf.0 = leaf.0.saturating_add(amount.bytes);
            leaf.1 = leaf.1.saturating_add(amount.count);
        }
    }

    let mut leaves: Vec<(usize, (u64, u64))> = leaves.into_iter().collect();
    leaves.sort_by_key(|&(node, (bytes, count))| {
        (std::cmp::Reverse(bytes), std::cmp::Reverse(count), node)
    });
    let n_kept = limits.n_biggest.min(leaves.len());
    let dropped = leaves.split_off(n_kept);
    for &(leaf, (bytes, count)) in &leaves {
        let mut at = leaf;
        loop {
            let node = &mut nodes[at];
            node.bytes = node.bytes.saturating_add(bytes);
            node.count = node.count.saturating_add(count);
            if at == 0 {
                break;
            }
            at = nodes[at].parent;
        }
    }
    let elided = Elided {
        bytes: dropped
            .iter()
            .map(|(_, sums)| sums.0)
            .fold(0, u64::saturating_add),
        count: dropped
            .iter()
            .map(|(_, sums)| sums.1)
            .fold(0, u64::saturating_add),
        n_locations: dropped.len() as u64,
    };
    let whole_bytes = nodes[0].bytes.saturating_add(elided.bytes);
    let min_bytes = whole_bytes as f64 * limits.min_percent / 100.0;
    nodes[0].bytes = whole_bytes;
    nodes[0].count = nodes[0].count.saturating_add(elided.count);
    let shaper = Shaper {
        session,
        shape,
        nodes: &nodes,
        max_depth: limits.max_depth.unwrap_or(usize::MAX),
        min_bytes,
    };
    Tree {
        nodes: shaper.shape(elided),
        measure,
        quality: quality(session),
    }
}

/// Maps each location to the first location of the same function.
fn by_function(session: &Session) -> Vec<LocationId> {
    let mut first = FxHashMap::default();
    let names = session.names.iter().zip(0..);
    let ids = names.map(|(at, number)| {
        let function = (at.function.clone(), at.file.clone());
        *first.entry(function).or_insert(LocationId(number))
    });
    ids.collect()
}

#[derive(Clone, Copy, Default)]
struct Elided {
    bytes: u64,
    count: u64,
    n_locations: u64,
}

enum Pending {
    Node(usize),
    Elided(Elided),
}

struct Shaper<'a> {
    session: &'a Session,
    shape: TreeShape,
    nodes: &'a [Building],
    max_depth: usize,
    min_bytes: f64,
}

impl Shaper<'_> {
    /// Walks the tree from the root. `dropped` is the leaf for stacks that are not in the tree.
    fn shape(&self, dropped: Elided) -> Vec<TreeNode> {
        let mut shaped = Vec::new();
        // Nodes to show, with their depth, in reverse order.
        let mut pending = vec![(0, Pending::Node(0))];
        while let Some((depth, item)) = pending.pop() {
            let at = match item {
                Pending::Node(at) => at,
                Pending::Elided(elided) => {
                    shaped.push(elided.node(depth));
                    continue;
                }
            };
            shaped.push(self.node(at, depth));
            if depth >= self.max_depth {
                continue;
            }
            let (children, elided) = self.children(at);
            if at == 0 && dropped.n_locations > 0 {
                pending.push((1, Pending::Elided(dropped)));
            }
            if elided.n_locations > 0 {
                pending.push((depth + 1, Pending::Elided(elided)));
            }
            let children = children.into_iter().rev();
            pending.extend(children.map(|child| (depth + 1, Pending::Node(child))));
        }
        shaped
    }

    /// The children to show, largest first, and the sum of those that are too small.
    fn children(&self, at: usize) -> (Vec<usize>, Elided) {
        let mut elided = Elided::default();
        let mut children = Vec::new();
        for &child in &self.nodes[at].children {
            let node = &self.nodes[child];
            if node.count == 0 && node.bytes == 0 {
                // This node is only part of stacks that are not among the largest.
                continue;
            }
            if (node.bytes as f64) < self.min_bytes {
                elided.bytes = elided.bytes.saturating_add(node.bytes);
                elided.count = elided.count.saturating_add(node.count);
                elided.n_locations += 1;
            } else {
                children.push(child);
            }
        }
        children.sort_by_key(|&child| {
            let node = &self.nodes[child];
            (std::cmp::Reverse((node.bytes, node.count)), child)
        });
        (children, elided)
    }

    fn node(&self, at: usize, depth: usize) -> TreeNode {
        let node = &self.nodes[at];
        let content = match node.location {
            Some(id) => {
                let mut location = self.session.names.get(id).clone();
                if self.shape.by_function {
                    location.line = 0;
                }
                NodeContent::Frame(location)
            }
            None if at == 0 => NodeContent::Root,
            None => NodeContent::NoFrames,
        };
        TreeNode {
            depth,
            content,
            bytes: node.bytes,
            count: node.count,
            has_children: !node.children.is_empty(),
        }
    }
}

impl Elided {
    fn node(&self, depth: usize) -> TreeNode {
        TreeNode {
            depth,
            content: NodeContent::Elided {
                n_locations: self.n_locations,
            },
            bytes: self.bytes,
            count: self.count,
            has_children: false,
        }
    }
}
