//! Retained sizes of groups: the bytes of all objects that no root reaches if the whole group is removed.
//!
//! The dominator tree gives this for single objects. For groups (a type, a set), the search follows paths from the
//! roots that avoid the group. It does this for 64 groups at once: one bit per group travels along references, and is
//! dropped on entering the group.

use super::graph::{Bits, Graph};
use super::set::ObjectSet;

/// Objects that only `set` keeps alive, including the set itself. Other unreachable objects are left out.
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

/// Bytes that each group retains, for groups `0..n_groups`; `group_of` returns the group of an object, if any.
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
        // Objects without bits were not visited yet, or only paths through groups reach them. `reached` distinguishes
        // the two.
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
