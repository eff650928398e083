//! The dominator tree: for each object, the nearest other object that every path from the roots passes through.
//!
//! When an object is freed, all objects that it dominates are freed; the sum of their bytes is its retained size. The
//! algorithm is semidominators with nearest common ancestors (Georgiadis and Tarjan's simple variant), without
//! recursion. It works on the numbers of a depth-first walk, which keeps memory accesses local.
//!
//! Objects that no root reaches are garbage that the collector has not freed yet. They are also in the tree, so that
//! garbage has retained sizes: the fewest garbage objects that together reach all garbage are children of the top.

use super::graph::{Bits, Graph};

/// The top of the tree, which is not an object. It is the dominator of objects that several roots hold.
pub const TOP: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub struct Dominators {
    /// The immediate dominator of each object.
    pub immediate: Vec<u32>,
    /// Objects in an order that lists each after its dominator.
    pub order: Vec<u32>,
    /// The objects that the roots reach; the others are garbage.
    pub reachable: Bits,
}

impl Dominators {
    /// Computes the tree of a graph. `referrers` is the reversed graph. `is_part` is true for a part of another object,
    /// such as an instance's dict. Of a cycle of garbage, a part is a child of the top only if the cycle has nothing
    /// else.
    pub fn compute(
        graph: &Graph,
        referrers: &Graph,
        roots: &[u32],
        is_part: impl Fn(u32) -> bool,
    ) -> Dominators {
        let reachable = graph.reach(roots.iter().copied(), |_| false);
        let garbage = garbage_roots(graph, &reachable, is_part);
        let starts = || roots.iter().chain(&garbage).copied();
        let walk = Walk::new(graph, starts());
        let n_reachable = reachable.iter().count() as u32;
        let immediate_numbers = walk.immediate_dominators(referrers, starts(), n_reachable);
        let mut immediate = vec![TOP; graph.n_objects()];
        // Number 0 is the top, which is not an object.
        for (number, &dominator) in immediate_numbers.iter().enumerate().skip(1) {
            if dominator != 0 {
                immediate[walk.object_of(number) as usize] = walk.object_of(dominator as usize);
            }
        }
        Dominators {
            immediate,
            order: walk.objects,
            reachable,
        }
    }

    /// For each object, the sum of `sizes` over itself and all objects it dominates.
    pub fn retained(&self, sizes: impl Fn(u32) -> u64) -> Vec<u64> {
        let n_objects = self.immediate.len() as u32;
        let mut retained: Vec<u64> = (0..n_objects).map(sizes).collect();
        for &object in self.order.iter().rev() {
            let dominator = self.immediate[object as usize];
            if dominator != TOP {
                retained[dominator as usize] += retained[object as usize];
            }
        }
        retained
    }

    /// The tree from the top down. The last node of the graph is the top: its children have no dominator.
    pub fn children(&self) -> Graph {
        let n_objects = self.immediate.len();
        let node_of = |dominator: u32| {
            if dominator == TOP {
                n_objects as u32
            } else {
                dominator
            }
        };
        let upward = Graph::build(n_objects + 1, |object| {
            let dominator = self.immediate.get(object as usize).copied();
            dominator.map(node_of).into_iter()
        });
        upward.reversed()
    }

    /// Whether every path from the roots to `object` passes through `holder`.
    pub fn dominates(&self, holder: u32, object: u32) -> bool {
        let mut at = object;
        while at != TOP {
            if at == holder {
                return true;
            }
            at = self.immediate[at as usize];
        }
        false
    }
}

/// The fewest objects that together reach all unreachable objects. They are the objects that no other unreachable
/// object refers to, and one object of each cycle that no unreachable object outside of the cycle refers to.
fn garbage_roots(graph: &Graph, reachable: &Bits, is_part: impl Fn(u32) -> bool) -> Vec<u32> {
    let n_objects = graph.n_objects() as u32;
    let unreachable = (0..n_objects).filter(|&object| !reachable.contains(object));
    let (parts, wholes): (Vec<u32>, Vec<u32>) = unreachable.partition(|&object| is_part(object));
    // A depth-first walk in postorder: no earlier object reaches the last one, unless both are in a cycle.
    let mut postorder: Vec<u32> = Vec::new();
    let mut seen = reachable.clone();
    let mut path: Vec<(u32, u32)> = Vec::new();
    for start in wholes.into_iter().chain(parts) {
        if !seen.insert(start) {
            continue;
        }
        path.push((start, 0));
        while let Some((object, next)) = path.last_mut() {
            let Some(&target) = graph.of(*object).get(*next as usize) else {
                postorder.push(*object);
                path.pop();
                continue;
            };
            *next += 1;
            if seen.insert(target) {
                path.push((target, 0));
            }
        }
    }
    let mut covered = reachable.clone();
    let mut roots = Vec::new();
    let mut waiting = Vec::new();
    for &start in postorder.iter().rev() {
        if !covered.insert(start) {
            continue;
        }
        roots.push(start);
        waiting.push(start);
        while let Some(object) = waiting.pop() {
            let new = graph.of(object).iter();
            waiting.extend(new.copied().filter(|&target| covered.insert(target)));
        }
    }
    roots
}

/// A depth-first walk from the top. Objects are numbered in the order of visits; the top has number 0.
struct Walk {
    /// By number, without the top.
    objects: Vec<u32>,
    /// By object.
    numbers: Vec<u32>,
    /// By number: the number it was first visited from.
    parents: Vec<u32>,
}

impl Walk {
    fn new(graph: &Graph, starts: impl Iterator<Item = u32>) -> Walk {
        let mut walk = Walk {
            objects: Vec::with_capacity(graph.n_objects()),
            numbers: vec![0; graph.n_objects()],
            parents: vec![0],
        };
        let mut path: Vec<(u32, u32)> = Vec::new();
        for start in starts {
            if !walk.visit(start, 0) {
                continue;
            }
            path.push((start, 0));
            while let Some((object, next)) = path.last_mut() {
                let Some(&target) = graph.of(*object).get(*next as usize) else {
                    path.pop();
                    continue;
                };
                *next += 1;
                let parent = walk.numbers[*object as usize];
                if walk.visit(target, parent) {
                    path.push((target, 0));
                }
            }
        }
        walk
    }

    fn visit(&mut self, object: u32, parent: u32) -> bool {
        match self.numbers.get_mut(object as usize) {
            Some(number @ 0) => {
                self.objects.push(object);
                *number = self.objects.len() as u32;
                self.parents.push(parent);
                true
            }
            _ => false,
        }
    }

    fn object_of(&self, number: usize) -> u32 {
        self.objects[number - 1]
    }

    /// Immediate dominators by number. The first `n_reachable` numbers are objects that roots reach; references to them
    /// from garbage do not count.
    fn immediate_dominators(
        &self,
        referrers: &Graph,
        starts: impl Iterator<Item = u32>,
        n_reachable: u32,
    ) -> Vec<u32> {
        let n_numbers = self.parents.len();
        let mut semi: Vec<u32> = (0..n_numbers as u32).collect();
        for start in starts {
            if let Some(&number) = self.numbers.get(start as usize) {
                semi[number as usize] = 0;
            }
        }
        let mut forest = Forest {
            ancestors: self.parents.clone(),
            labels: (0..n_numbers as u32).collect(),
            path: Vec::new(),
        };
        for number in (1..n_numbers).rev() {
            // Children of the top stay at 0.
            if semi[number] == 0 {
                continue;
            }
            let mut least = number as u32;
            for &referrer in referrers.of(self.object_of(number)) {
                let from = self.numbers[referrer as usize];
                if from > n_reachable && number as u32 <= n_reachable {
                    continue;
                }
                least = least.min(forest.least(from, number as u32, &semi));
            }
            semi[number] = least;
        }
        let mut immediate = self.parents.clone();
        for number in 1..n_numbers {
            let mut dominator = immediate[number];
            while dominator > semi[number] {
                dominator = immediate[dominator as usize];
            }
            immediate[number] = dominator;
        }
        immediate
    }
}

/// Paths up the tree of the walk. Queries compress the paths they follow.
struct Forest {
    ancestors: Vec<u32>,
    labels: Vec<u32>,
    path: Vec<u32>,
}

impl Forest {
    /// The smallest semidominator on the path up from `from`, among the finished numbers: those greater than `current`.
    fn least(&mut self, from: u32, current: u32, semi: &[u32]) -> u32 {
        // A number that is not finished counts as itself, even if it is a root.
        if from <= current {
            return from;
        }
        self.path.clear();
        let mut at = from;
        while self.ancestors[at as usize] > current {
            self.path.push(at);
            at = self.ancestors[at as usize];
        }
        let mut best = self.labels[at as usize];
        let top = self.ancestors[at as usize];
        for &number in self.path.iter().rev() {
            let own = self.labels[number as usize];
            if semi[own as usize] < semi[best as usize] {
                best = own;
            }
            self.labels[number as usize] = best;
            self.ancestors[number as usize] = top;
        }
        semi[best as usize]
    }
}
