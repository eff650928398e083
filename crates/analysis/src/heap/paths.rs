//! Shortest paths from roots to objects. Paths of equal length are ordered by roots and references, so that
//! the same snapshot always gives the same result.

use std::collections::VecDeque;
use std::ops::Range;

use super::graph::{Bits, Graph};
use super::set::ObjectSet;

/// The numbers of objects that reports show at the beginning and at the end of a long path.
const N_FIRST: usize = 30;
const N_LAST: usize = 10;

/// The positions of a path that reports leave out: a linked list has paths of a million objects.
pub fn hidden(path: &[u32]) -> Range<usize> {
    if path.len() <= N_FIRST + N_LAST {
        return path.len()..path.len();
    }
    N_FIRST..path.len() - N_LAST
}

/// The distance of an object that no path reaches.
pub const UNREACHED: u32 = u32::MAX;

/// The distance of roots that count only for objects no other root reaches: larger than any real distance.
const LAST_RESORT: u32 = 1 << 31;

/// The distance of each object from the roots, and the previous object on a shortest path.
#[derive(Clone, Debug)]
pub struct Distances {
    /// 0 for roots, [`LAST_RESORT`] for roots of last resort.
    pub steps: Vec<u32>,
    /// [`UNREACHED`] for roots and for unreachable objects.
    pub before: Vec<u32>,
}

impl Distances {
    pub fn compute(
        graph: &Graph,
        roots: impl IntoIterator<Item = u32>,
        avoid: impl Fn(u32) -> bool,
    ) -> Distances {
        let n_objects = graph.n_objects();
        let mut distances = Distances {
            steps: vec![UNREACHED; n_objects],
            before: vec![UNREACHED; n_objects],
        };
        distances.spread(graph, roots, 0, avoid);
        distances
    }

    /// Adds paths from further roots to objects that have none yet.
    pub fn add_last_resort(
        &mut self,
        graph: &Graph,
        roots: impl IntoIterator<Item = u32>,
        avoid: impl Fn(u32) -> bool,
    ) {
        self.spread(graph, roots, LAST_RESORT, avoid);
    }

    fn spread(
        &mut self,
        graph: &Graph,
        roots: impl IntoIterator<Item = u32>,
        first: u32,
        avoid: impl Fn(u32) -> bool,
    ) {
        let Distances { steps, before } = self;
        let mut waiting = VecDeque::new();
        for root in roots {
            let is_known = (root as usize) < steps.len();
            if is_known && !avoid(root) && steps[root as usize] == UNREACHED {
                steps[root as usize] = first;
                waiting.push_back(root);
            }
        }
        while let Some(object) = waiting.pop_front() {
            let next = steps[object as usize] + 1;
            for &target in graph.of(object) {
                if steps[target as usize] == UNREACHED && !avoid(target) {
                    steps[target as usize] = next;
                    before[target as usize] = object;
                    waiting.push_back(target);
                }
            }
        }
    }

    /// A shortest path from a root to an object, both included; `None` if there is none.
    pub fn path_to(&self, object: u32) -> Option<Vec<u32>> {
        if *self.steps.get(object as usize)? == UNREACHED {
            return None;
        }
        let mut path = vec![object];
        let mut at = object;
        while self.before[at as usize] != UNREACHED {
            at = self.before[at as usize];
            path.push(at);
        }
        path.reverse();
        Some(path)
    }
}

/// All shortest paths to the nearest objects of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShortestPaths {
    /// The paths from roots to objects of the set, in a fixed order, up to the requested number.
    pub paths: Vec<Vec<u32>>,
    /// The number of all shortest paths, listed or not. Several references from one object to the next count once.
    pub n_paths: u64,
}

/// Finds the shortest paths to the objects of a set that are nearest to the roots.
pub fn shortest_paths(
    referrers: &Graph,
    distances: &Distances,
    set: &ObjectSet,
    max_paths: usize,
) -> ShortestPaths {
    let steps = |object: u32| distances.steps[object as usize];
    let nearest = set.iter().map(steps).min().unwrap_or(UNREACHED);
    if nearest == UNREACHED {
        return ShortestPaths::default();
    }
    let ends: Vec<u32> = set.iter().filter(|&end| steps(end) == nearest).collect();
    // All objects on shortest paths, level by level from the ends to the roots, with the number of paths from each to an end.
    let mut n_paths_from = rustc_hash::FxHashMap::default();
    let mut after: rustc_hash::FxHashMap<u32, Vec<u32>> = rustc_hash::FxHashMap::default();
    for &end in &ends {
        n_paths_from.insert(end, 1u64);
    }
    let mut level = ends;
    let n_steps = nearest % LAST_RESORT;
    for _ in 0..n_steps {
        let mut above = Vec::new();
        for &object in &level {
            let n_paths = n_paths_from[&object];
            let mut last = None;
            for &referrer in referrers.of(object) {
                let is_above = steps(referrer) != UNREACHED && steps(referrer) + 1 == steps(object);
                // Referrers are sorted, so repeated ones are neighbours.
                if !is_above || last == Some(referrer) {
                    continue;
                }
                last = Some(referrer);
                let sum = n_paths_from.entry(referrer).or_insert_with(|| {
                    above.push(referrer);
                    0
                });
                *sum = sum.saturating_add(n_paths);
                after.entry(referrer).or_default().push(object);
            }
        }
        above.sort_unstable();
        level = above;
    }
    let n_paths = level
        .iter()
        .fold(0u64, |sum, start| sum.saturating_add(n_paths_from[start]));
    let mut paths = Vec::new();
    // One path that grows and shrinks: copying it at each step would take quadratic time.
    let mut path = Vec::new();
    let mut open: Vec<(usize, u32)> = level.iter().rev().map(|&start| (0, start)).collect();
    while let Some((at, object)) = open.pop() {
        if paths.len() >= max_paths {
            break;
        }
        path.truncate(at);
        path.push(object);
        if at as u32 == n_steps {
            paths.push(path.clone());
        } else if let Some(following) = after.get(&object) {
            let following = following.iter().rev();
            open.extend(following.map(|&object| (at + 1, object)));
        }
    }
    ShortestPaths { paths, n_paths }
}

/// The referrers of a set, without duplicates.
pub fn referrers_of(referrers: &Graph, set: &ObjectSet) -> ObjectSet {
    neighbours(referrers, set)
}

/// The objects that a set refers to, without duplicates.
pub fn referents_of(graph: &Graph, set: &ObjectSet) -> ObjectSet {
    neighbours(graph, set)
}

fn neighbours(graph: &Graph, set: &ObjectSet) -> ObjectSet {
    let mut others = Bits::new(graph.n_objects());
    for object in set.iter() {
        for &other in graph.of(object) {
            others.insert(other);
        }
    }
    others.iter().collect()
}
