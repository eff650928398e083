//! Chains: sequences of objects, each of which holds the next, such as linked lists, nested closures and exceptions
//! with their contexts.
//!
//! Each link of a chain holds little besides the next link. The search for accumulation points would descend to the end
//! of the chain and miss nearly all of it.

use super::{Accumulation, Search};
use crate::heap::graph::Bits;
use crate::heap::view::Heap;

/// A path with fewer objects is no chain: attributes, dicts and containers that lead to the data.
const MIN_LINKS: usize = 100;

/// The objects that the search for chains has already followed: no chain begins at any of them.
pub(super) struct Chains {
    known: Bits,
}

impl Chains {
    pub(super) fn new(heap: &Heap) -> Chains {
        Chains {
            known: Bits::new(heap.n_objects()),
        }
    }
}

impl Search<'_> {
    /// Adds the chain that begins at an object or below it, and the branches at its end. Returns false if there is none.
    pub(super) fn follow_chain(
        &self,
        object: u32,
        chains: &mut Chains,
        open: &mut Vec<u32>,
        points: &mut Vec<Accumulation>,
    ) -> bool {
        if chains.known.contains(object) || self.is_namespace(object) {
            return false;
        }
        let links = self.links(object);
        if links.len() < MIN_LINKS {
            // Remember the path, so that no path is followed twice.
            for link in links {
                chains.known.insert(link);
            }
            return false;
        }
        // The path may begin with objects of other kinds. The first link is the first object of the kind in the middle.
        let kind = self.heap.kinds.of(links[links.len() / 2]);
        let mut candidates = links.iter().copied();
        let first = candidates.find(|&link| self.heap.kinds.of(link) == kind);
        let first = first.unwrap_or(object);
        let last = links[links.len() - 1];
        // Large branches of the last link are searched separately. If it has none, the chain includes all objects that
        // it dominates.
        let has_branches = self.large_branches(last).next().is_some();
        let end = has_branches.then_some(last);
        if let Some(end) = end {
            chains.known.insert(end);
            open.push(end);
        }
        let items = self.dominated(first, end);
        let weights = items.iter().map(|&item| self.weights[item as usize]);
        points.push(Accumulation {
            point: Some(first),
            bytes: weights.fold(0, u64::saturating_add),
            items,
            is_sole_holder: true,
            is_chain: true,
        });
        true
    }

    /// The path down from this object, as long as each object has one large branch and holds little besides it.
    fn links(&self, first: u32) -> Vec<u32> {
        let mut links = vec![first];
        let mut last = first;
        loop {
            let mut large = self.large_branches(last);
            let (Some(next), None) = (large.next(), large.next()) else {
                return links;
            };
            let besides = self.retained[last as usize].saturating_sub(self.retained[next as usize]);
            if besides >= self.least || self.is_namespace(next) {
                return links;
            }
            links.push(next);
            last = next;
        }
    }

    fn large_branches(&self, object: u32) -> impl Iterator<Item = u32> + '_ {
        let children = self.children.of(object).iter().copied();
        children.filter(|&child| self.retained[child as usize] >= self.least)
    }

    /// An object and all objects that it dominates, without the branch of `end`.
    fn dominated(&self, first: u32, end: Option<u32>) -> Vec<u32> {
        let mut objects = Vec::new();
        let mut open = vec![first];
        while let Some(object) = open.pop() {
            objects.push(object);
            let children = self.children.of(object).iter().copied();
            open.extend(children.filter(|&child| Some(child) != end));
        }
        objects
    }
}
