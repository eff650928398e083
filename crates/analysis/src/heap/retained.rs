//! What groups of objects keep alive: all that no root reaches any more if the whole group goes.
//!
//! The dominator tree knows it for single objects. For groups — a type, a set — ways that avoid the group are followed from
//! the roots, for 64 groups at once: one bit for each, carried along references and dropped on entering the group.

use super::dominators::TOP;
use super::graph::{Bits, Graph};
use super::set::ObjectSet;

/// Objects that are alive only through `set`, itself included. What no root reaches stays out, unless it is in the set.
pub fn dominated(graph: &Graph, roots: &[u32], set: &ObjectSet) -> ObjectSet {
    let members = Bits::of(graph.n_objects(), set.iter());
    let all = graph.reach(roots.iter().copied(), |_| false);
    let without = graph.reach(roots.iter().copied(), |object| members.contains(object));
    (0..graph.n_objects() as u32)
        .filter(|&object| {
            members.contains(object) || all.contains(object) && !without.contains(object)
        })
        .collect()
}

/// Bytes that each group retains, for groups `0..n_groups`; `group_of` says to which an object belongs, if to any.
pub fn retained_by_groups(
    graph: &Graph,
    roots: &[u32],
    n_groups: usize,
    group_of: impl Fn(u32) -> Option<u32>,
    sizes: impl Fn(u32) -> u64,
) -> Vec<u64> {
    let mut retained = vec![0; n_groups];
    let mut open = vec![0u64; graph.n_objects()];
    for (batch, sums) in retained.chunks_mut(64).enumerate() {
        let first = batch as u32 * 64;
        // The bit of the object's group, if that is one of this batch.
        let own = |object: u32| match group_of(object) {
            Some(group) if group >= first && group - first < 64 => 1u64 << (group - first),
            _ => 0,
        };
        let all = if sums.len() == 64 {
            u64::MAX
        } else {
            (1 << sums.len()) - 1
        };
        // Not reached at all yet is told apart from reached by no way that avoids any group: the latter is marked by the
        // former's absence from `reached`.
        let mut reached = Bits::new(graph.n_objects());
        open.fill(0);
        let mut waiting = std::collections::VecDeque::new();
        for &root in roots {
            if (root as usize) < graph.n_objects() && reached.insert(root) {
                open[root as usize] = all & !own(root);
                waiting.push_back(root);
            }
        }
        while let Some(object) = waiting.pop_front() {
            let passed = open[object as usize];
            for &target in graph.of(object) {
                let mask = passed & !own(target);
                let there = &mut open[target as usize];
                let more = mask & !*there;
                if reached.insert(target) || more != 0 {
                    *there |= mask;
                    waiting.push_back(target);
                }
            }
        }
        for object in 0..graph.n_objects() as u32 {
            let mut closed = if reached.contains(object) {
                all & !open[object as usize]
            } else {
                own(object)
            };
            if closed == 0 {
                continue;
            }
            let size = sizes(object);
            while closed != 0 {
                sums[closed.trailing_zeros() as usize] += size;
                closed &= closed - 1;
            }
        }
    }
    retained
}

/// At least what a set retains, from the tree alone: the sum over its members that no other member dominates.
pub fn retained_at_least(immediate: &[u32], retained: &[u64], set: &ObjectSet) -> u64 {
    let members = Bits::of(immediate.len(), set.iter());
    let has_holder = |object: u32| {
        let mut at = immediate[object as usize];
        while at != TOP && !members.contains(at) {
            at = immediate[at as usize];
        }
        at != TOP
    };
    let tops = set.iter().filter(|&object| !has_holder(object));
    tops.map(|object| retained[object as usize]).sum()
}
